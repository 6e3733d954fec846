"""What arrays of any origin have in common: their types, their checks, and the steps that close episodes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from rosmo.data.check import Columns, refuse_bad_shapes, refuse_bad_values, typed
from rosmo.data.rlds.episodes import discounts
from rosmo.types import Trajectory, refuse_counts


def entry(data: Any, *names: str) -> Any:
    """Returns an entry by one of its names, or says what there is."""
    for name in names:
        if name in data:
            return data[name]
    found = ", ".join(map(repr, data)) or "nothing"
    hint = ""
    if "dones" in data or "done" in data:
        hint = (
            "; a `done` does not say whether an episode terminated or was cut off, so name it 'terminals' or "
            "'timeouts'"
        )
    raise ValueError(f"the data has no {names[0]!r} (it has: {found}){hint}")


def single_array(observations: Any) -> np.ndarray:
    """Returns observations as one array; a dictionary with one entry counts as that entry."""
    while isinstance(observations, Mapping) and len(observations) == 1:
        (observations,) = observations.values()
    if isinstance(observations, list | tuple) and observations and isinstance(observations[0], Mapping):
        parts = observations[0].keys()
        if not all(isinstance(one, Mapping) and one.keys() == parts for one in observations):
            raise ValueError("observations do not all have the same parts: bring them to the same ones")
        return single_array({key: [one[key] for one in observations] for key in parts})
    if isinstance(observations, Mapping):
        raise ValueError(
            f"observations have several parts ({', '.join(observations)}): combine them into one"
        )
    try:
        return np.asarray(observations)
    except ValueError as error:  # NumPy's own words are of its sequences
        raise ValueError("observations are not all of one shape: bring them to one") from error


def per_row(values: Any) -> np.ndarray:
    """Returns one value a row; a second axis of length 1 is dropped."""
    array = np.asarray(values)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def flags(name: str, values: Any) -> Bool[np.ndarray, "rows"]:
    """Returns flags that are booleans, or the numbers 0 and 1."""
    array = per_row(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one flag a row, got the shape {list(array.shape)}")
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must be booleans, or 0 and 1, got {array.dtype} of other values")
    return array.astype(bool)


def rows(
    observations: Any, actions: Any, rewards: Any, invalid_actions: Any, num_actions: int | None
) -> Columns:
    """Returns transitions `[N]` by field, with their types, once every one of them is seen to be whole."""
    fields = {"observation": single_array(observations), "action": per_row(actions)}
    columns = typed({**fields, "reward": per_row(rewards), "invalid_actions": invalid_actions})
    if columns["action"].ndim != 1:
        raise ValueError(
            f"actions must be one whole number a row, got the shape {list(columns['action'].shape)}: give "
            "the number of the one that was taken"
        )
    if num_actions is not None:
        refuse_counts(num_actions=num_actions)
    if invalid_actions is not None and columns["invalid_actions"].ndim == 2:
        num_actions = columns["invalid_actions"].shape[1] if num_actions is None else num_actions
    if num_actions is None:
        num_actions = int(columns["action"].max(initial=0)) + 1
    refuse_bad_shapes(columns, num_actions)
    going_on = np.zeros(len(columns["action"]), bool)
    whole = columns | {"is_last": going_on, "is_terminal": going_on}
    refuse_bad_values(whole | {"discount": np.ones(len(going_on), np.float32)}, num_actions)
    return columns


def closed(
    transitions: Columns, lengths: Int[np.ndarray, "episodes"], closing: Columns, terminated: np.ndarray
) -> Trajectory:
    """Returns steps `[N + E]` of N transitions of E episodes, each with the step that closes it.

    Args:
        transitions: observation, action, reward and masks, where there are any; episodes in a row.
        lengths: transitions of each episode; one without any is left out.
        closing: the observation, and the mask, of each closing step `[E]`.
        terminated: whether each episode terminated; the others were truncated.
    """
    some = lengths > 0
    if not some.any():
        raise ValueError("the data has no step with an action and an observation that follows it")
    lengths, terminated = lengths[some], np.asarray(terminated)[some]
    last = np.cumsum(lengths + 1) - 1
    is_last = np.zeros(last[-1] + 1, bool)
    is_last[last] = True
    is_terminal = np.zeros_like(is_last)
    is_terminal[last] = terminated
    columns = {}
    for field, values in transitions.items():
        columns[field] = np.zeros((len(is_last), *values.shape[1:]), values.dtype)
        columns[field][~is_last] = values
    for field, values in closing.items():
        columns[field][last] = values[some]
    return Trajectory(
        **columns,
        discount=discounts(is_terminal),
        is_first=np.append(True, is_last[:-1]),
        is_last=is_last,
        is_terminal=is_terminal,
    )
