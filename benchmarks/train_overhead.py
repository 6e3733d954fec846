"""What `rosmo train` costs beside the bare learner: metrics, checkpoints, events and the progress display.

    ./dev python -m benchmarks.train_overhead [--rounds 12]

Trains ROSMO on catch, collected first if it is missing. After each row of metrics the bare learner takes as
many updates on the same data, so that both are timed in turns; evaluations are left out. Prints medians.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import jax

if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

from jax.sharding import AxisType

from rosmo import configs
from rosmo.commands.shared import load_data
from rosmo.data import window_sampler
from rosmo.runs.folder import RunFolder
from rosmo.runs.listeners import tensorboard
from rosmo.runs.train import train


class Bare:
    """The learner on its own, timed whenever the run has logged a row."""

    def __init__(self, training, steps, mesh):
        agent = training.build_agent()
        self.learner = training.learner(agent, mesh=mesh)
        sampler = window_sampler(steps, window=agent.window, num_actions=training.spaces()[1])
        self.source = self.learner.place(sampler)
        self.state = self.learner.init(jax.random.key(0))
        self.updates = training.log_every
        self.run_seconds, self.bare_seconds = [], []
        self._update()
        self.last = time.perf_counter()

    def _update(self) -> float:
        start = time.perf_counter()
        self.state, metrics = self.learner.update_many(self.state, self.source, self.updates)
        jax.block_until_ready((self.state, metrics))
        return time.perf_counter() - start

    def __call__(self, row: dict) -> None:
        if "return" not in row:
            self.run_seconds.append(time.perf_counter() - self.last)
            self.bare_seconds.append(self._update())
        self.last = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    args = parser.parse_args()
    updates = 1_000 * (args.rounds + 2)  # the first row compiles and the last one is evaluated
    bindings = [f"num_updates = {updates}", f"train.eval_every = {updates}"]
    training = configs.load(["bsuite/rosmo"], bindings)
    steps = load_data(training, args.data_dir)
    mesh = jax.make_mesh((len(jax.devices()),), ("data",), axis_types=(AxisType.Auto,))
    bare = Bare(training, steps, mesh)
    with tempfile.TemporaryDirectory() as folder:
        listeners = (tensorboard(Path(folder)), bare)  # the bare learner last: its time is not the run's
        train(training, steps, RunFolder(Path(folder)), seed=0, listeners=listeners, mesh=mesh)
    run, alone = (statistics.median(times[1:]) for times in (bare.run_seconds, bare.bare_seconds))
    ratios = [a / b for a, b in zip(bare.run_seconds[1:], bare.bare_seconds[1:], strict=True)]
    print(f"rosmo train: {1_000 / run:,.0f} updates/s; bare learner: {1_000 / alone:,.0f} updates/s")
    print(
        f"time of the run over the bare learner's, median of {len(ratios)}: {statistics.median(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
