"""How to train several seeds on a CPU: a process on each core, all vmapped in one, or one after the other.

    ./dev python -m benchmarks.seeds [--rounds 3]

Every way trains as many seeds of ROSMO as there are cores, on data of catch's shape, at the BSuite setting.
The ways take turns; the table holds medians of the updates per second of all seeds together.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

import jax

if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


from benchmarks.learner_step import fake_data, make_agent, settings
from rosmo import Learner
from rosmo.data import window_sampler

CORES = len(os.sched_getaffinity(0))
UPDATES = 1_000


def build(devices: int = 1):
    setting = settings()["bsuite"]
    agent = make_agent(setting, "rosmo")
    source = window_sampler(fake_data(setting), window=agent.window, num_actions=3)
    mesh = jax.make_mesh((devices,), ("data",), devices=jax.devices()[:devices])
    learner = Learner(agent, batch_size=setting.batch_size, mesh=mesh, cache_targets=False)
    return learner, learner.place(source)


def child() -> None:
    """Trains one seed whenever told to, and says when it is done."""
    learner, source = build()
    state = learner.init(jax.random.key(0))
    for _ in range(1 + int(sys.argv[-1])):
        state, metrics = learner.update_many(state, source, UPDATES)
        jax.block_until_ready(metrics)
        print("done", flush=True)
        sys.stdin.readline()


class Processes:
    """One single-threaded process on each core."""

    def __init__(self, rounds: int):
        command = "import os; os.sched_setaffinity(0, [{}]); import benchmarks.seeds as s; s.child()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.children = [
            subprocess.Popen([sys.executable, "-c", command.format(core), "--child", str(rounds)], **pipes)
            for core in sorted(os.sched_getaffinity(0))
        ]
        self._wait()

    def _wait(self) -> None:
        for process in self.children:
            assert process.stdout is not None
            process.stdout.readline()

    def run(self) -> None:
        for process in self.children:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        self._wait()


class Vmapped:
    """All seeds in one program."""

    def __init__(self):
        learner, self.source = build()
        keys = jax.random.split(jax.random.key(0), CORES)
        self.states = jax.vmap(learner._init)(keys)
        many = jax.vmap(lambda s, d: learner._step.on_source(s, d, 1, UPDATES, False), in_axes=(0, None))
        self.update = jax.jit(many, donate_argnums=0)
        self.run()

    def run(self) -> None:
        self.states, metrics = self.update(self.states, self.source)
        jax.block_until_ready(metrics)


class InTurn:
    """One seed after the other, each with its batch split over the cores."""

    def __init__(self):
        self.learner, self.source = build(CORES)
        self.states = [self.learner.init(jax.random.key(seed)) for seed in range(CORES)]
        self.run()

    def run(self) -> None:
        for seed, state in enumerate(self.states):
            self.states[seed], metrics = self.learner.update_many(state, self.source, UPDATES)
            jax.block_until_ready(metrics)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ways = {"a process on each core": Processes(args.rounds), "vmapped": Vmapped(), "in turn": InTurn()}
    seconds = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way.run()
            seconds[name].append(time.perf_counter() - start)
    print(f"\n| {CORES} seeds | updates/s of all |\n|---|---|")
    for name, times in seconds.items():
        print(f"| {name} | {CORES * UPDATES / statistics.median(times):,.0f} |")


if __name__ == "__main__":
    main()
