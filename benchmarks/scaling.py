"""How an update scales: over devices and processes, with its settings, and with saving beside it.

    ./dev python -m benchmarks.scaling [--parts layouts costs saving] [--rounds 5] [--out docs/images]

**layouts**: ROSMO at the BSuite setting on 1 to 8 simulated devices, on a split state, and in two processes.
They take turns within a round; efficiency is the rate over that of one device and the cores in use. FLOP are
those of the trace, over the devices; bytes are of the collectives in the compiled update. **costs**: FLOP and
milliseconds of an update as the batch, the unroll, the actions and the simulations grow, as a picture.
**saving**: updates with a checkpoint after each call beside the same without, in turns.
"""

import argparse
import functools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from benchmarks.learner_step import fake_data, make_agent, settings
from rosmo import Learner, agents
from rosmo.costs.compute import shapes_of_batch, update_compute
from rosmo.costs.hlo import collectives
from rosmo.costs.speed import update_rate
from rosmo.data import window_sampler
from rosmo.learner.sharding import make_mesh, mesh_shape
from rosmo.report.style import looks, panels, save
from rosmo.runs.checkpoint import Checkpoints

CORES = len(os.sched_getaffinity(0))
LAYOUTS = ("data=1", "data=2", "data=4", "data=8", "data=1,model=2", "data=4,model=2")
UPDATES = 200
RATE = "updates per second: "  # what a child says, apart from what its libraries print


class Subject:
    """ROSMO on one layout, compiled, that can be timed."""

    def __init__(self, mesh: str):
        setting = settings()["bsuite"]
        self.mesh, self.rates = mesh, []
        agent = make_agent(setting, "rosmo")
        self.learner = Learner(
            agent, batch_size=setting.batch_size, cache_targets=False, mesh=make_mesh(mesh_shape(mesh))
        )
        source = window_sampler(fake_data(setting), window=agent.window, num_actions=3)
        self.source = self.learner.place(source)
        self.state = self.learner.init(jax.random.key(0))
        self.run()

    def run(self) -> float:
        """Returns updates per second."""
        self.state, rate = update_rate(self.learner, self.state, self.source, UPDATES)
        return rate

    def exchanged(self) -> list[dict]:
        """The collectives of one update."""
        batch = shapes_of_batch(self.learner.batch_size, self.learner.agent.window, (10, 5))
        return collectives(self.learner.trace(batch).lower().compile().as_text() or "")


class Pair:
    """Two processes with a device each, that take their turn when they are told to."""

    mesh = "data=2 in two processes"

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
        program = "import benchmarks.scaling as s; s.child()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-c", program, str(port)]
        self.children: list[Any] = [subprocess.Popen([*command, str(index)], **pipes) for index in (0, 1)]
        self.rates = []
        self.run()

    def run(self) -> float:
        """Returns updates per second."""
        for process in self.children:
            print("go", file=process.stdin, flush=True)
        lines = [next(line for line in process.stdout if line.startswith(RATE)) for process in self.children]
        return min(float(line.removeprefix(RATE)) for line in lines)

    def close(self) -> None:
        for process in self.children:
            process.stdin.close()
        for process in self.children:  # they wait for each other
            process.wait()


def child() -> None:
    """Times updates whenever told to."""
    port, index = sys.argv[-2:]
    jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(f"localhost:{port}", 2, int(index))
    subject = Subject("data=2")
    for _ in sys.stdin:
        print(f"{RATE}{subject.run()}", flush=True)


def layouts(rounds: int) -> None:
    subjects = [Subject(mesh) for mesh in LAYOUTS]
    pair = Pair()
    for _ in range(rounds):
        for subject in (*subjects, pair):
            subject.rates.append(subject.run())
    pair.close()
    agent = subjects[0].learner.agent
    flops = update_compute(agent, batch_size=128, observation_shape=(10, 5)).flops
    print(f"\nROSMO, batch 128, {UPDATES} updates a call, {CORES} cores, medians of {rounds} rounds\n")
    print(
        "| mesh | updates/s | efficiency | MFLOP per device | collectives of an update |\n" + "|---" * 5 + "|"
    )
    for subject in (*subjects, pair):
        measured = subject if isinstance(subject, Subject) else subjects[1]
        devices = measured.learner.mesh.size
        ratio = statistics.median(a / b for a, b in zip(subject.rates, subjects[0].rates, strict=True)) / min(
            devices, CORES
        )
        found = [f"{c['count']} {c['kind']}, {c['bytes'] / 1e3:,.0f} kB" for c in measured.exchanged()]
        cells = [subject.mesh, f"{statistics.median(subject.rates):,.0f}", f"{ratio:.0%}"]
        print("| " + " | ".join([*cells, f"{flops / devices / 1e6:,.0f}", "; ".join(found) or "none"]) + " |")


@functools.cache
def cost(name: str, *, batch: int, unroll: int, actions: int, simulations: int):
    """Returns MFLOP and the milliseconds of an update, the best of three calls."""
    setting = settings()["bsuite"]
    model = setting.model.func
    keywords = setting.model.keywords | {"num_actions": actions}
    extra = {"num_simulations": simulations} if name == "mzu" else {}
    agent = agents.get(name)(lambda key: model(key, **keywords), unroll_steps=unroll, **extra)
    learner = Learner(agent, batch_size=batch, cache_targets=False, mesh=make_mesh({"data": CORES}))
    source = learner.place(window_sampler(fake_data(setting), window=agent.window, num_actions=actions))
    state, rates = learner.init(jax.random.key(0)), []
    for _ in range(4):
        state, rate = update_rate(learner, state, source, 20)
        rates.append(rate)
    work = update_compute(agent, batch_size=batch, observation_shape=(10, 5))
    return work.flops / 1e6, 1e3 / max(rates)


def costs(out: Path) -> None:
    grids = {
        "batch": (32, 64, 128, 256, 512),
        "unroll": (1, 2, 5, 10),
        "actions": (3, 6, 12, 18),
        "simulations": (2, 4, 10, 20),
    }
    usual = {"batch": 128, "unroll": 5, "actions": 3, "simulations": 4}
    figure, axes = panels(2, len(grids), width=2.6, height=2.2, sharex="col")
    style = looks(["ROSMO", "MZU"])
    print("\n| setting | value | ROSMO MFLOP | ROSMO ms | MZU MFLOP | MZU ms |\n" + "|---" * 6 + "|")
    for column, (setting, values) in enumerate(grids.items()):
        found = {
            "ROSMO": [
                cost("rosmo", **usual | ({} if setting == "simulations" else {setting: v})) for v in values
            ],
            "MZU": [cost("mzu", **usual | {setting: v}) for v in values],
        }
        for value, *pairs in zip(values, *found.values(), strict=True):
            cells = [f"{number:,.1f}" for pair in pairs for number in pair]
            print("| " + " | ".join([setting, str(value), *cells]) + " |", flush=True)
        for row, unit in enumerate(("MFLOP", "ms")):
            for method, pairs in found.items():
                axes[row][column].plot(values, [p[row] for p in pairs], "o-", label=method, **style[method])
            axes[row][column].set_ylim(bottom=0)
            axes[row][0].set_ylabel(f"{unit} per update")
        axes[1][column].set_xlabel(setting)
    axes[0][0].legend(frameon=False)
    print(save(figure, out / "scaling.png"))


def saving(rounds: int) -> None:
    subject = Subject(f"data={CORES}")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder) / "checkpoints")
        for _ in range(rounds + 1):
            alone = sum(1 / subject.run() for _ in range(5))
            start = time.perf_counter()
            checkpoints.save(subject.state)  # 1,000 updates beside the writing, as in a run
            blocked = time.perf_counter() - start
            beside = sum(1 / subject.run() for _ in range(5))
            ratios.append((beside * UPDATES + blocked) / (alone * UPDATES))
        checkpoints.close()
    print(
        f"\n1,000 updates with a checkpoint take {statistics.median(ratios[1:]):.3f} times as long as "
        f"without (median of {rounds}; from {min(ratios[1:]):.3f} to {max(ratios[1:]):.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ["layouts", "costs", "saving"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)
    if "layouts" in args.parts:
        layouts(args.rounds)
    if "costs" in args.parts:
        costs(args.out)
    if "saving" in args.parts:
        saving(args.rounds)


if __name__ == "__main__":
    main()
