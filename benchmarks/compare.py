"""Whether updates have become faster or slower between two commits, or two folders, in one run.

    ./dev python -m benchmarks.compare OLD NEW [--settings bsuite] [--presets rosmo mzu] [--rounds 7]

Each side is a process with a checkout of its own. In every round every case is timed on one side right after
the other, and in the next round the other way round, so that what else the machine does hits both alike. A
ratio is of one round: how many times as fast NEW is. The table has medians, and the smallest and the largest.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measured import PRODUCT, SETTINGS

PRESETS = ("rosmo", "sampled_rosmo", "mzu", "mzu_q", "bc", "crr", "cql")
_WORKER = Path(__file__).with_name("measured.py")


class Side:
    """A process that times one checkout."""

    def __init__(self, checkout: Path, devices: int):
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(
            [sys.executable, str(_WORKER), str(devices)], cwd=checkout, env=environment, **pipes
        )

    def ask(self, case: object) -> float | str:
        """Returns the seconds of an update, or what is wrong with the case on this side."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the process ended"}')
        return answer.get("seconds", answer.get("error"))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def checkout(name: str) -> Iterator[Path]:
    """Yields a folder with the library as it is in a folder, or as it was at a commit."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "rosmo")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", place, name], check=True)
        try:
            yield Path(place)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", place], check=True)


def cases(settings: list[str], presets: list[str], devices: int) -> Iterator[dict]:
    """Yields what is timed."""
    for setting in settings:
        for preset in presets:
            for count in sorted({1, devices if setting == "bsuite" else 1}):
                for updates in SETTINGS[setting][-1]:
                    yield {"setting": setting, "preset": preset, "devices": count, "updates": updates}


def compare(old: Side, new: Side, case: dict, rounds: int) -> dict:
    """Times one case on both sides in turns."""
    seconds: dict[str, list[float]] = {"old": [], "new": [], "product": []}
    sides = {"old": old, "new": new}
    for side in sides.values():
        if isinstance(problem := side.ask(case), str):
            return case | {"error": problem}
    for number in range(rounds):
        seconds["product"].append(float(old.ask("product")))
        for name in sorted(sides, reverse=number % 2 == 0):
            seconds[name].append(float(sides[name].ask(case)))
    for side in sides.values():
        side.ask({"forget": True})
    return case | {"seconds": seconds}


def row(found: dict) -> str:
    """A case as a line of the table."""
    cells = [str(found[name]) for name in ("setting", "preset", "devices", "updates")]
    if "error" in found:
        return "| " + " | ".join([*cells, found["error"], "", "", ""]) + " |"
    old, new, product = (found["seconds"][name] for name in ("old", "new", "product"))
    ratios = [a / b for a, b in zip(old, new, strict=True)]
    rate = 2 * PRODUCT**3 / statistics.median(product) / 1e9
    cells += [f"{statistics.median(times) * 1e3:,.2f}" for times in (old, new)]
    cells += [f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})", f"{rate:.0f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", help="a commit, or a folder with a checkout")
    parser.add_argument("new", help="the same; . is what stands here")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--presets", nargs="+", default=list(PRESETS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="where the times of every round are written")
    args = parser.parse_args()
    devices, found = os.cpu_count() or 1, []
    with checkout(args.old) as before, checkout(args.new) as after, contextlib.ExitStack() as stack:
        old, new = Side(before, devices), Side(after, devices)
        stack.callback(old.close)
        stack.callback(new.close)
        print(
            "| setting | preset | devices | updates a call | old, ms | new, ms | times as fast | GFLOP/s |\n"
            + "|---" * 8
            + "|"
        )
        for case in cases(args.settings, args.presets, devices):
            found.append(compare(old, new, case, args.rounds))
            print(row(found[-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
