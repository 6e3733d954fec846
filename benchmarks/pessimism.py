"""What an ensemble costs: ROSMO's BSuite update with M members beside the same with one, in turns.

    ./dev python -m benchmarks.pessimism [--members 1 5 10] [--rounds 9]

With kept targets, which small data sets have, and with fresh ones. Every round times every number of members
one after the other on one core, as the runs of an experiment have it; a ratio is of one round, to the first
number. The seconds are of the processor, which what else the machine does changes less than those of a clock.
The table has medians, and the smallest and the largest ratio.
"""

import argparse
import functools
import os
import statistics
import time

if __name__ == "__main__" and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before jax counts the cores

import jax

from rosmo import Learner, agents, latent_model
from rosmo.costs.speed import made_up_steps
from rosmo.data import window_sampler

_SHAPE, _ACTIONS = (10, 5), 3


class Subject:
    """ROSMO with a number of members, compiled, that can be timed."""

    def __init__(self, members: int, kept: bool, updates: int):
        model = functools.partial(
            latent_model, observation_shape=_SHAPE, num_actions=_ACTIONS, ensemble=members
        )
        agent = agents.rosmo(model, pessimism=1.0 if members > 1 else 0.0)
        self.learner = Learner(agent, batch_size=128, cache_targets=kept)
        steps = made_up_steps(5_000, _SHAPE, _ACTIONS)
        source = window_sampler(steps, window=agent.window, num_actions=_ACTIONS)
        self.source, self.updates = self.learner.place(source), updates
        self.state = self.learner.init(jax.random.key(0))
        self.seconds()

    def seconds(self) -> float:
        """Returns the processor's seconds of an update."""
        start = time.process_time()
        self.state, _ = self.learner.update_many(self.state, self.source, self.updates)
        jax.block_until_ready(self.state)
        return (time.process_time() - start) / self.updates


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--updates", type=int, default=200, help="in a call")
    args = parser.parse_args()
    print("| targets | members | ms an update | times as long | smallest | largest |")
    print("|---|---|---|---|---|---|")
    for kept in (True, False):
        subjects = [Subject(members, kept, args.updates) for members in args.members]
        rounds = [[subject.seconds() for subject in subjects] for _ in range(args.rounds)]
        for place, members in enumerate(args.members):
            ratios = [times[place] / times[0] for times in rounds]
            cells = [f"{1e3 * statistics.median(times[place] for times in rounds):.2f}"]
            cells += [f"{f(ratios):.2f}" for f in (statistics.median, min, max)]
            print(f"| {'kept' if kept else 'fresh'} | {members} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
