"""Times the updates of a configuration, and of variants of it, beside this machine's large matrix product."""

import argparse
import math
import os
import statistics

import jax

from rosmo import configs
from rosmo.commands.shared import DEFAULT_CONFIGS, add_configuration, simulate_devices
from rosmo.costs import update_compute
from rosmo.costs.speed import made_up_steps, product_rate, update_rate
from rosmo.data import window_sampler
from rosmo.learner.sharding import make_mesh, mesh_shape
from rosmo.runs.training import Training

_STEPS = 2_000  # of made-up data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    add_configuration(parser)
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="BINDING",
        help="a variant to time in turn, '--against \"operator = @mcts\"'",
    )
    parser.add_argument("--mesh", help="data=8, or data=4,model=2 (default: as many as there are cores)")
    parser.add_argument(
        "--updates", type=int, default=100, help="in a call; on a CPU, 1 for networks with convolutions"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of which the table holds medians")


def run(args: argparse.Namespace) -> None:
    """Compiles every variant, times them in turn and prints a table."""
    for name in ("updates", "rounds"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(args, name)}")
    mesh = args.mesh or f"data={os.cpu_count() or 1}"
    simulate_devices(math.prod(mesh_shape(mesh).values()))
    names, variants = args.configs or DEFAULT_CONFIGS, [[], *([binding] for binding in args.against)]
    subjects = []
    for extra in variants:
        training = configs.load(names, [*args.bind, *extra], args.imports)
        # Compiled at once: its parts ask gin, which knows one configuration at a time.
        subjects.append(_Subject(" ".join([*names, *extra]), training, mesh, args.updates))
    products = []
    for _ in range(args.rounds):
        products.append(product_rate())
        for subject in subjects:
            subject.measure(products[-1])
    product = statistics.median(products)
    print(f"Large product: {product / 1e9:.0f} GFLOP/s. Medians of {args.rounds} rounds, {mesh}.\n")
    print("| configuration | updates/s | against the first | GFLOP per update | share of the product |")
    print("|---|---|---|---|---|")
    for subject in subjects:
        print(subject.row(subjects[0]))


class _Subject:
    """One configuration, compiled, that computes the targets of every batch afresh."""

    def __init__(self, name: str, training: Training, mesh: str, updates: int):
        agent = training.build_agent()
        shape, actions = training.spaces()
        self.name, self._updates = name, updates
        self._learner = training.learner(agent, mesh=make_mesh(mesh_shape(mesh)), cache_targets=False)
        steps = made_up_steps(_STEPS, shape, actions)
        self._source = self._learner.place(window_sampler(steps, window=agent.window, num_actions=actions))
        self._state = self._learner.init(jax.random.key(0))
        batch_size = self._learner.batch_size
        self._flops = update_compute(agent, batch_size=batch_size, observation_shape=shape).flops
        self.rates: list[float] = []
        self._shares: list[float] = []
        self._run()

    def measure(self, product: float) -> None:
        """Times one call; `product` is what the machine's large product reached just before."""
        self.rates.append(self._run())
        self._shares.append(self.rates[-1] * self._flops / product)

    def row(self, first: "_Subject") -> str:
        """Returns a row of the table."""
        ratios = [a / b for a, b in zip(self.rates, first.rates, strict=True)]
        return (
            f"| {self.name} | {statistics.median(self.rates):,.1f} | {statistics.median(ratios):.2f} "
            f"| {self._flops / 1e9:,.3f} | {statistics.median(self._shares):.1%} |"
        )

    def _run(self) -> float:
        self._state, rate = update_rate(self._learner, self._state, self._source, self._updates)
        return rate
