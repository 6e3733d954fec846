"""Rows of transitions, episodes one after the other, as d4rl has them."""

from typing import Any

import numpy as np
from jaxtyping import Int

from rosmo.data.arrays.columns import closed, entry, flags, rows, single_array
from rosmo.data.check import Columns, as_typed, refuse_bad_observations
from rosmo.data.episodes import checked
from rosmo.data.rlds.episodes import named
from rosmo.types import Trajectory


def from_flat(data: Any, *, num_actions: int | None = None) -> Trajectory:
    """Returns the steps `[N]` of a dictionary of arrays in the layout of d4rl.

    Row t has an observation, the action taken there and the reward that followed, and every row is one
    transition, the last of an episode too. `terminals` and `timeouts` mark the last rows of episodes that
    terminated and that were cut off; what ends without either was cut off there. The observation that
    closes an episode is

    - its last one of `next_observations`, where they are given;
    - without them, at a termination, the last observation once more: the value of a closing step of a
      termination is 0, and no agent is trained on what it shows;
    - without them, where the episode was cut off, the last observation itself: what followed it is not
      known, so returns end with its value, and its action and reward go unused.

    Args:
        data: `observations` (an array, or a dictionary with one entry), `actions`, `rewards`, `terminals`
            and, where there are any, `timeouts`, `next_observations` and `invalid_actions` `[T, actions]`.
        num_actions: every action must lie below it; where not given, up to the largest that was taken.
    """
    if not hasattr(data, "keys"):  # tables of pandas and open HDF5 files are none of Python's mappings
        raise TypeError(
            f"rows come as a dictionary of arrays, and not as {type(data).__name__}: from_episodes takes "
            "lists of episodes"
        )
    observations = single_array(entry(data, "observations", "observation"))
    actions, rewards = entry(data, "actions", "action"), entry(data, "rewards", "reward")
    terminals = flags("terminals", entry(data, "terminals", "terminations", "terminated"))
    timeouts = [data[name] for name in ("timeouts", "truncations", "truncated") if name in data]
    ended = flags("timeouts", timeouts[0]) if timeouts else np.zeros_like(terminals)
    masks = data.get("invalid_actions", data.get("invalid_action"))
    given = rows(observations, actions, rewards, masks, num_actions)
    following = data.get("next_observations", data.get("next_observation"))
    following = None if following is None else as_typed("observation", single_array(following))
    lengths = {"observations": len(observations), "terminals": len(terminals), "timeouts": len(ended)}
    lengths |= {} if following is None else {"next_observations": len(following)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the arrays of the data differ in length: {lengths}")
    if not len(terminals):
        raise ValueError("the data has no rows")
    last = np.flatnonzero(terminals | ended | (np.arange(len(ended)) == len(ended) - 1))
    if following is None:
        return checked(_without_following(given, last, terminals[last]), num_actions)
    if following.shape != given["observation"].shape:
        shapes = [list(x.shape[1:]) for x in (following, given["observation"])]
        raise ValueError(f"next_observations have the shape {shapes[0]}, and observations {shapes[1]}")
    _refuse_gaps(given["observation"], following, last)
    with named("next_observations"):
        refuse_bad_observations(following)
    steps = closed(given, np.diff(last, prepend=-1), {"observation": following[last]}, terminals[last])
    return checked(steps, num_actions)


def _without_following(
    given: Columns, last: Int[np.ndarray, "episodes"], terminated: np.ndarray
) -> Trajectory:
    """Closes episodes by their own last observations: a truncated one has a transition less by that."""
    kept = np.ones(len(given["action"]), bool)
    kept[last[~terminated]] = False
    closing = {field: given[field][last] for field in ("observation", "invalid_actions") if field in given}
    lengths = np.diff(last, prepend=-1) - ~terminated
    return closed({field: values[kept] for field, values in given.items()}, lengths, closing, terminated)


def _refuse_gaps(observations: np.ndarray, following: np.ndarray, last: Int[np.ndarray, "episodes"]) -> None:
    """Refuses rows inside of an episode that the next row does not go on from."""
    inside = np.ones(len(observations) - 1, bool)
    inside[last[:-1]] = False
    count = max(1, inside.sum())
    same = (following[:-1] == observations[1:]).all(axis=tuple(range(1, observations.ndim)))
    gaps = np.flatnonzero(inside & ~same)
    if not gaps.size:
        return
    where = f"the next observation of row {gaps[0]} is not the observation of row {gaps[0] + 1}"
    if gaps.size > count / 2:
        raise ValueError(
            f"the rows are transitions in no order: {where}, and so for {gaps.size} of {count} rows; a model "
            "is trained on several steps in a row of one episode, so put them in the order in which they "
            "were recorded"
        )
    raise ValueError(
        f"{where} ({gaps.size} of {count} rows): where an episode was cut off there, set its timeouts; where "
        "rows are missing, mark the cut in the same way"
    )
