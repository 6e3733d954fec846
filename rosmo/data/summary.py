"""What a data set holds, in numbers: its episodes, actions, rewards and size, and what is doubtful of it."""

import dataclasses
import zlib
from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import Float, Int

from rosmo.data.check import Columns
from rosmo.data.episodes import each_episode, number_of_actions
from rosmo.data.store import FrameStore
from rosmo.types import Trajectory

_FEW = 5  # that are named


@dataclasses.dataclass(frozen=True)
class Summary:
    """A data set in numbers.

    Args:
        kind: type and shape of an observation.
        returns: of each episode, undiscounted.
        lengths: transitions of each episode.
        actions: how often each was taken.
        rewards: of all transitions.
        terminations: episodes that ended by one; the others were cut off.
        host_bytes: of the data set in host memory.
        device_bytes: of the data set on a device.
        doubts: what may be wrong with it, a sentence each.
    """

    kind: str
    returns: Float[np.ndarray, "episodes"]
    lengths: Int[np.ndarray, "episodes"]
    actions: Int[np.ndarray, "actions"]
    rewards: Float[np.ndarray, "transitions"]
    terminations: int
    host_bytes: int
    device_bytes: int
    doubts: tuple[str, ...]


def summarise(data: Trajectory | FrameStore) -> Summary:
    """Sums a data set up. Of a store of frames the tables are read, and not the frames."""
    stored = isinstance(data, FrameStore)
    columns: Columns = (
        data.columns() if stored else {k: np.asarray(v) for k, v in vars(data).items() if v is not None}
    )
    last = np.flatnonzero(columns["is_last"])
    real = ~columns["is_last"]
    rewards = columns["reward"][real].astype(np.float64)
    # Closing steps hold no reward, so that each sum ends before them.
    sums = np.cumsum(np.append(0, np.where(real, columns["reward"], 0).astype(np.float64)))
    first = np.append(0, last[:-1] + 1)
    count = data.num_actions if stored else number_of_actions(data)
    taken = columns["action"][real]
    actions = np.bincount(taken[taken >= 0], minlength=count)
    doubts = [*_doubts_of_tables(columns, last, actions), *_doubts_of_episodes(data, columns, len(last))]
    arrays = list(columns.values())
    size = sum(array.nbytes for array in arrays)
    return Summary(
        kind=f"uint8 {list(data.observation_shape)}" if stored else _kind(columns["observation"]),
        returns=sums[last] - sums[first],
        lengths=last - first,
        actions=actions,
        rewards=rewards,
        terminations=int(columns["is_terminal"][last].sum()),
        host_bytes=size,
        device_bytes=0 if stored else sum(_on_device(array) for array in arrays),
        doubts=tuple(doubts),
    )


def _kind(observation: np.ndarray) -> str:
    return f"{observation.dtype} {list(observation.shape[1:])}"


def _on_device(array: np.ndarray) -> int:
    return array.size * jax.dtypes.canonicalize_dtype(array.dtype).itemsize


def _doubts_of_tables(columns: Columns, last: np.ndarray, actions: np.ndarray) -> Iterator[str]:
    """What actions, rewards and ends tell."""
    rewards, real = columns["reward"], ~columns["is_last"]
    never = np.flatnonzero(actions == 0)
    if never.size:
        named = ", ".join(map(str, never[:_FEW])) + ", …" * (never.size > _FEW)
        yield f"{never.size} of {actions.size} actions were never taken ({named})"
    lost = np.count_nonzero(np.nan_to_num(rewards[last]))
    if lost:
        yield (
            f"{lost} of {last.size} closing steps have a reward, which is never read: if it is that of the "
            "last transition, a closing step with the observation that followed is missing"
        )
    if real.any() and (rewards[real] == rewards[real][0]).all():
        yield f"every reward is {rewards[real][0]:g}"
    if not columns["is_terminal"].any():
        yield "no episode terminated: all count as cut off, and returns end with the agent's own values"
    if (empty := int((np.diff(last, prepend=-1) == 1).sum())) > 0:
        yield f"{empty} of {last.size} episodes have no action"


def _doubts_of_episodes(data: Trajectory | FrameStore, columns: Columns, count: int) -> Iterator[str]:
    """What whole episodes and observations tell; of a store, their actions and rewards alone."""
    fields = [field for field in ("observation", "action", "reward") if field in columns]
    steps = data if isinstance(data, Trajectory) else Trajectory(columns["action"], **columns)
    seen = {
        (
            len(episode.action),
            *(zlib.crc32(np.ascontiguousarray(getattr(episode, f)).tobytes()) for f in fields),
        )
        for episode in each_episode(steps)
    }
    if copies := count - len(seen):
        alike = (
            "equal to an earlier one"
            if "observation" in fields
            else "equal to an earlier one in all but frames"
        )
        yield f"{copies} of {count} episodes are {alike}"
    if "observation" in columns and columns["observation"][0].size:
        observation = columns["observation"]
        if observation.ndim == 1 and observation.dtype.kind in "iu":
            yield "an observation is one whole number: if it numbers a state, make a one-hot vector of it"
        still = int((observation.min(axis=0) == observation.max(axis=0)).sum())
        numbers = observation[0].size
        if still == numbers:
            yield "every observation is the same"
        elif still:
            yield f"{still} of the {numbers} numbers of an observation never change"
