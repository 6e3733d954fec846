"""How the seconds of an update grow with the number of actions, exact and sampled.

    ./dev python -m benchmarks.many_actions [--actions 3 30 300 3000] [--out many_actions]

BSuite's networks, 16 windows in a batch. The cases are timed in turns; the fastest round counts. It writes
`OUT.json` and `OUT.png`.
"""

import argparse
import functools
import json
import time
from pathlib import Path

import jax

import rosmo
from benchmarks.measured import made_up
from rosmo import agents
from rosmo.data import window_sampler

OPERATORS = {"rosmo": "exact", "sampled_rosmo": "sampled"}


class Case:
    """An agent that chooses between so many actions, and its source."""

    def __init__(self, preset: str, actions: int):
        model = functools.partial(rosmo.latent_model, observation_shape=(10, 5), num_actions=actions)
        agent = agents.get(preset)(model)
        source = window_sampler(made_up((10, 5), actions, 2_000), window=agent.window, num_actions=actions)
        self.learner = rosmo.Learner(agent, batch_size=16, cache_targets=False)
        self.source = self.learner.place(source)
        self.state = self.learner.init(jax.random.key(0))
        compiled = self.learner.lower_many(self.state, self.source, 1).compile()
        memory = compiled.memory_analysis()
        self.megabytes = None if memory is None else memory.temp_size_in_bytes / 1e6
        self.seconds()

    def seconds(self) -> float:
        """Returns the seconds of an update."""
        start = time.perf_counter()
        self.state, metrics = self.learner.update_many(self.state, self.source, 1)
        jax.block_until_ready((self.state, metrics))
        return time.perf_counter() - start


def measure(counts: list[int], rounds: int) -> list[dict]:
    """Times all cases in turns."""
    cases = {(preset, count): Case(preset, count) for preset in OPERATORS for count in counts}
    seconds: dict[tuple[str, int], list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            seconds[name].append(case.seconds())
    return [
        {"preset": preset, "actions": count, "seconds": seconds[preset, count], "megabytes": case.megabytes}
        for (preset, count), case in cases.items()
    ]


def draw(found: list[dict], path: Path) -> None:
    """Draws how often as long as with the fewest actions an update takes."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for preset, label in OPERATORS.items():
        rows = [row for row in found if row["preset"] == preset]
        axes.plot(
            [row["actions"] for row in rows], [min(row["seconds"]) * 1e3 for row in rows], "o-", label=label
        )
    axes.set(xscale="log", yscale="log", xlabel="actions", ylabel="milliseconds an update")
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--actions", type=int, nargs="+", default=[3, 30, 300, 3_000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("many_actions"))
    args = parser.parse_args()
    found = measure(args.actions, args.rounds)
    print("| look-ahead | actions | ms | times the fewest | temporaries, MB |\n" + "|---" * 5 + "|")
    for row in found:
        first = min(next(x["seconds"] for x in found if x["preset"] == row["preset"]))
        best, memory = min(row["seconds"]), row["megabytes"]
        cells = [OPERATORS[row["preset"]], f"{row['actions']:,}", f"{best * 1e3:,.1f}", f"{best / first:.1f}"]
        print("| " + " | ".join([*cells, "" if memory is None else f"{memory:,.0f}"]) + " |")
    args.out.with_suffix(".json").write_text(json.dumps(found, indent=1))
    draw(found, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
