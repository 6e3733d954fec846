"""Whole episodes of a data set: how many there are, some of them, and a share that is set apart."""

from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jaxtyping import Int

from rosmo.data.check import checked_steps
from rosmo.types import Trajectory

_MOST_ACTIONS = 2**16  # that are taken for numbers of actions, and not for names of them
_HELD_OUT = 2**31  # apart from the draw that a fraction of a data set is chosen by


def number_of_actions(steps: Trajectory) -> int:
    """Returns how many actions the data tells of: as its masks are wide, or up to the largest one taken."""
    if steps.invalid_actions is not None:
        return int(steps.invalid_actions.shape[-1])
    taken = np.asarray(steps.action)[~np.asarray(steps.is_last)]
    largest = int(taken.max(initial=0))
    if largest >= _MOST_ACTIONS:
        raise ValueError(
            f"the largest action is {largest:,}, and an agent would choose among all below it: number the "
            "actions from 0 without gaps, or say num_actions"
        )
    return largest + 1


def checked(steps: Trajectory, num_actions: int | None = None) -> Trajectory:
    """Returns steps `[N]` as the one check of the library leaves them.

    Args:
        steps: episodes one after the other.
        num_actions: every real action must lie below it; where not given, what the data tells of.
    """
    count = number_of_actions(steps) if num_actions is None else num_actions
    return checked_steps(steps, window=1, num_actions=count)[0]


def each_episode(steps: Trajectory) -> Iterator[Trajectory]:
    """Yields the episodes `[L+1]` of steps `[N]`."""
    last = np.flatnonzero(steps.is_last)
    for first, end in zip(np.append(0, last[:-1] + 1), last + 1, strict=True):
        yield jax.tree.map(lambda x, part=slice(first, end): x[part], steps)


def take_episodes(steps: Trajectory, chosen: Sequence[int] | Int[np.ndarray, "chosen"]) -> Trajectory:
    """Returns the chosen episodes of steps `[N]`, by their numbers and in the order given."""
    last = np.flatnonzero(steps.is_last)
    first = np.append(0, last[:-1] + 1)
    rows = np.concatenate([np.arange(first[i], last[i] + 1) for i in chosen])
    return jax.tree.map(lambda x: np.asarray(x)[rows], steps)


def held_out_episodes(count: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divides episodes by number into those to train on and a share that is held out, at least one of each.

    A larger share holds out those of a smaller one, too. Both come in ascending order.
    """
    if count < 2:
        raise ValueError(
            f"there is {count} episode, and some are to be held out for evaluation: bring more episodes, or "
            "name an environment to evaluate in"
        )
    order = np.random.default_rng((seed, _HELD_OUT)).permutation(count)
    held = min(max(1, round(share * count)), count - 1)
    return np.sort(order[held:]), np.sort(order[:held])
