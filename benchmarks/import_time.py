"""The time of a bare `import rosmo` beside that of importing the packages it is built on.

    ./dev python -m benchmarks.import_time [--rounds 5]

Fresh processes, in turn; the ratio is taken within each round. The bar is 1.5.
"""

import argparse
import statistics
import subprocess
import sys
import time

PEERS = "import jax, equinox, optax, mctx, chex, distrax"


def seconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    seconds("import rosmo")  # fills the caches
    pairs = [(seconds("import rosmo"), seconds(PEERS)) for _ in range(rounds)]
    ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"import rosmo {ours:.2f} s; {PEERS.removeprefix('import ')} {theirs:.2f} s; ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
