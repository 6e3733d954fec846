"""Transitions (s, a, r, s′) in the order in which they were recorded."""

from typing import Any

from rosmo.data.arrays.flat import from_flat
from rosmo.types import Trajectory


def from_transitions(
    observations: Any,
    actions: Any,
    rewards: Any,
    next_observations: Any,
    terminals: Any,
    timeouts: Any = None,
    *,
    invalid_actions: Any = None,
    num_actions: int | None = None,
) -> Trajectory:
    """Returns the steps `[N]` of transitions, as the buffer of an online agent holds them in their order.

    Shuffled ones are refused: a model is trained on several steps in a row of one episode, and of single
    transitions no one knows which follows which. What each argument is, `from_flat` says.
    """
    if next_observations is None:
        raise ValueError(
            "next_observations are missing, without which nothing says whether the transitions are in order; "
            "from_flat takes rows without them"
        )
    data = {"observations": observations, "actions": actions, "rewards": rewards, "terminals": terminals}
    data["next_observations"] = next_observations
    optional = {"timeouts": timeouts, "invalid_actions": invalid_actions}
    return from_flat(data | {k: v for k, v in optional.items() if v is not None}, num_actions=num_actions)
