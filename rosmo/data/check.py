"""What steps of experience must be: the one check of data in memory, from files and in stores.

A field is first given its type, which may round a float and changes no other value. Then the shapes, the ends
of the episodes and the values are looked at. Whatever is wrong gets one sentence that names the first step.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from rosmo.types import Trajectory

Columns = dict[str, np.ndarray]  # the fields of a Trajectory, by name

DTYPES = {  # of every field but the observation, which keeps its own
    "action": np.int32,
    "reward": np.float32,
    "discount": np.float32,
    "is_first": np.bool_,
    "is_last": np.bool_,
    "is_terminal": np.bool_,
    "invalid_actions": np.bool_,
}
NO_CONTINUOUS = (  # said wherever actions are real numbers
    "continuous actions are not supported, so choose a few of them and give the number of the one taken"
)
_NOUNS = {"action": "an action", "reward": "a reward", "discount": "a discount"}
_LARGEST = 1e15  # of an observation: the squares of larger ones, which networks take, overflow in float32
_BLOCK = 2**22  # numbers of an observation that are looked at together


def checked_steps(
    steps: Trajectory, *, window: int, num_actions: int
) -> tuple[Trajectory, Int[np.ndarray, "starts"]]:
    """Returns a data set that can be trained on as NumPy arrays, and the steps that windows begin with."""
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    columns = typed(vars(steps))
    refuse_bad_shapes(columns, num_actions)
    is_first, is_last = columns["is_first"], columns["is_last"]
    if is_last.all():
        raise ValueError("the data set has no step with an action")
    refuse_bad_ends(is_first, is_last)
    refuse_bad_values(columns, num_actions)
    closing = np.flatnonzero(is_last)
    warn_of_closing_rewards(closing, columns["reward"][closing])
    return Trajectory(**columns), np.flatnonzero(~is_last).astype(np.int32)


def typed(fields: Mapping[str, Any]) -> Columns:
    """Gives every field that is there its type."""
    return {field: as_typed(field, values) for field, values in fields.items() if values is not None}


def as_typed(field: str, values: Any) -> np.ndarray:
    """Gives a field its type, and refuses what would change by it."""
    if np.ma.is_masked(values):
        raise TypeError(f"{field} has masked entries, whose values would be taken for data: fill them first")
    array = np.asarray(values)
    if field == "observation":
        _refuse_bad_observation_type(array.dtype)
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if field == "action":
        if not _is_real(array.dtype, np.integer):
            raise TypeError(f"actions must be integers, got {array.dtype}{_hint_of_floats(array)}")
        kept, limits = "32 bits", np.iinfo(np.int32)
        lost = (array < limits.min) | (array > limits.max)
    elif field in ("reward", "discount"):
        if not _is_real(array.dtype):
            raise TypeError(f"{field}s must be real numbers, got {array.dtype}")
        kept = "float32"
        with np.errstate(over="ignore"):
            lost = np.isinf(array.astype(np.float32)) & ~np.isinf(array)
    elif array.dtype != bool:
        raise TypeError(f"{field} must be an array of bool, got {array.dtype}")
    else:
        return array
    if np.any(lost):
        steps = np.atleast_1d(np.asarray(lost))
        fault = f"{_NOUNS[field]} that does not fit into {kept}"
        _refuse({fault: np.asarray(steps.reshape(len(steps), -1).any(axis=1))})
    return array.astype(DTYPES[field], copy=False)


def _hint_of_floats(actions: np.ndarray) -> str:
    if actions.dtype.kind != "f":
        return ""
    whole = actions.ndim == 1 and np.array_equal(actions, np.round(actions))
    return f": {'they are whole numbers, so make integers of them' if whole else NO_CONTINUOUS}"


def _is_real(dtype: np.dtype, *kinds: type) -> bool:
    """Whether numbers are of one of some kinds, by default of any that is real."""
    kinds = kinds or (np.bool_, np.integer, np.floating)
    return dtype.kind != "m" and any(jnp.issubdtype(dtype, kind) for kind in kinds)  # durations are integers


def _refuse_bad_observation_type(dtype: np.dtype) -> None:
    if not _is_real(dtype) or dtype.itemsize > 8:
        raise TypeError(
            f"observations must be one array of booleans, integers or floats of at most 64 bits, got {dtype}"
        )


def refuse_bad_shapes(columns: Columns, num_actions: int) -> None:
    """Refuses fields that are not of the same steps `[N]`."""
    action = columns["action"]
    if action.ndim != 1:
        raise ValueError(f"steps must have one leading axis [N], got actions of shape {list(action.shape)}")
    lengths = {field: len(column) if column.ndim else None for field, column in columns.items()}
    if set(lengths.values()) != {len(action)}:
        raise ValueError(f"the fields of the data set differ in length: {lengths}")
    for field, column in columns.items():
        expected = [len(action), num_actions] if field == "invalid_actions" else [len(action)]
        if field != "observation" and list(column.shape) != expected:
            raise ValueError(f"{field} must have the shape {expected}, got {list(column.shape)}")


def refuse_bad_ends(is_first: Bool[np.ndarray, "steps"], is_last: Bool[np.ndarray, "steps"]) -> None:
    """Refuses episodes that do not lie one after the other, each from its first step to its last."""
    count = len(is_last)
    if not is_last[-1]:
        raise ValueError(f"the data set stops inside an episode: mark its last step ({count - 1}) as is_last")
    if not is_first[0]:
        raise ValueError("the data set starts inside an episode: mark its first step (0) as is_first")
    wrong = np.flatnonzero(is_first[1:] != is_last[:-1])
    if wrong.size and is_last[wrong[0]]:
        raise ValueError(
            f"step {wrong[0]} ends an episode (is_last), and step {wrong[0] + 1} is not the first of another "
            "(is_first): mark that one, or unmark this one"
        )
    if wrong.size:
        raise ValueError(
            f"step {wrong[0] + 1} begins an episode (is_first), and step {wrong[0]} does not end the one "
            "before (is_last): close that one by a step with its last observation, or unmark this one"
        )


def refuse_bad_values(columns: Mapping[str, np.ndarray], num_actions: int, *, first: int = 0) -> None:
    """Refuses what no step may hold; the closing steps' actions, rewards and discounts are not looked at.

    Args:
        columns: of the steps; the observations and the masks may be missing.
        num_actions: every real action must lie below it.
        first: the number of the first step.
    """
    action, reward, discount = (columns[field] for field in _NOUNS)
    real = ~columns["is_last"]
    _refuse(
        {
            "a reward that is not finite": real & ~np.isfinite(reward),
            "a discount outside [0, 1]": real & ~((discount >= 0) & (discount <= 1)),
            f"an action outside 0…{num_actions - 1}": real & ((action < 0) | (action >= num_actions)),
            "is_terminal without is_last": real & columns["is_terminal"],
        },
        first,
    )
    if "invalid_actions" in columns:
        forbidden = columns["invalid_actions"]
        taken = np.take_along_axis(forbidden, np.where(real, action, 0)[:, None], axis=1)[:, 0]
        _refuse(
            {
                "invalid_actions that forbid every action": real & forbidden.all(axis=1),
                "an action that its invalid_actions forbid": real & taken,
            },
            first,
        )
    if "observation" in columns:
        refuse_bad_observations(columns["observation"])


def refuse_bad_observations(observations: np.ndarray) -> None:
    """Refuses what is not finite, what squares would overflow of, and what the device would wrap around."""
    dtype = observations.dtype
    if jnp.issubdtype(dtype, np.bool_):
        return
    if jnp.issubdtype(dtype, np.floating):
        limit = min(_LARGEST, float(jnp.finfo(dtype).max))
        low, high = -limit, limit
        remedy = f"an observation beyond ±{_LARGEST:g}, which float32 has no squares of", "scale them all"
    else:
        kept = jax.dtypes.canonicalize_dtype(dtype)  # int32 of int64, unless JAX was told to keep 64 bits
        low, high = jnp.iinfo(kept).min, jnp.iinfo(kept).max
        remedy = f"an observation that does not fit into {kept}", "scale them all, or make floats of them"
        if kept == dtype:
            return
    wrong = np.zeros(len(observations), bool)
    finite = np.ones(len(observations), bool)
    with np.errstate(invalid="ignore"):  # bfloat16 warns of the nan that is looked for
        for rows, block in _blocks(observations):
            # Two numbers say of nearly every block that it is right, and need no memory.
            if not (block.min() >= low and block.max() <= high):
                finite[rows] = np.isfinite(block).all(axis=1)
                wrong[rows] = ~((block >= low) & (block <= high)).all(axis=1)
    _refuse({"an observation that is not finite": ~finite})
    _refuse({remedy[0]: wrong}, remedy=remedy[1])


def _blocks(observations: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields a few steps at a time, as `[steps, numbers]`, with their place."""
    width = int(np.prod(observations.shape[1:]))
    rows = max(1, _BLOCK // max(1, width))
    for begin in range(0, len(observations) if width else 0, rows):
        block = observations[begin : begin + rows]
        yield slice(begin, begin + rows), block.reshape(len(block), width)


def _refuse(
    faults: Mapping[str, np.ndarray], first: int = 0, remedy: str = "repair or drop its episode"
) -> None:
    """Raises one sentence that names the first step at fault."""
    for fault, where in faults.items():
        if where.any():
            raise ValueError(
                f"step {first + np.flatnonzero(where)[0]} has {fault} ({where.sum()} such steps): {remedy}"
            )


def warn_of_closing_rewards(
    steps: Int[np.ndarray, "episodes"], rewards: np.ndarray, *, where: str = "the data set"
) -> None:
    """Says that rewards on closing steps are lost, with what to do; what is not finite is no reward."""
    lost = np.isfinite(rewards) & (rewards != 0)
    if lost.any():
        warnings.warn(
            f"{where} has a reward other than 0 on {lost.sum()} of its {len(lost)} closing steps (is_last), "
            f"first on step {steps[lost][0]}, and no reward of a closing step is ever read: if it is that of "
            "an episode's last transition, as in d4rl, append a closing step with the observation that "
            "followed, and otherwise set it to 0",
            stacklevel=2,  # one place: it is said once, however often the data is checked
        )
