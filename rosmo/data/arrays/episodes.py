"""Episodes as gymnasium plays them, one after the other in a list."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rosmo.data.arrays.columns import closed, entry, flags, rows, single_array
from rosmo.data.check import Columns, typed
from rosmo.data.episodes import checked
from rosmo.data.rlds.episodes import named
from rosmo.types import Trajectory


def from_episodes(episodes: Iterable[Any], *, num_actions: int | None = None) -> Trajectory:
    """Returns the steps `[N]` of episodes of T actions and T rewards, with T + 1 observations or T.

    With T + 1 the last one closes the episode. With T, what followed the last action is not there: a
    terminated episode then closes with its last observation once more, whose value is 0 and which no agent
    is trained on; one that was cut off closes with its last observation itself, whose action and reward go
    unused, and returns end with its value.

    Args:
        episodes: each a dictionary, or an object with such attributes, of `observations`, `actions`,
            `rewards`, `terminated` (of the episode, or of each of its steps; `terminations` too) and, where
            there are any, `invalid_actions` `[T or T + 1, actions]`. An episode that did not terminate
            counts as truncated where it stops.
        num_actions: every action must lie below it; where not given, up to the largest that was taken.
    """
    parts = []
    for index, given in enumerate(episodes):
        episode = given if isinstance(given, Mapping) else _Attributes(given)
        with named(f"episode {episode.get('id', index)}"):
            parts.append(_parts(episode, num_actions))
    if not parts:
        raise ValueError("there are no episodes")
    transitions, closing, terminated = zip(*parts, strict=True)
    lengths = np.array([len(columns["action"]) for columns in transitions])
    steps = closed(_joined(transitions), lengths, _joined(closing), np.array(terminated))
    return checked(steps, num_actions)


class _Attributes(Mapping):
    """The attributes of an object, as a dictionary would hold them."""

    def __init__(self, episode: Any):
        self._episode = episode

    def __getitem__(self, name: str) -> Any:
        value = getattr(self._episode, name, None)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Any:
        return (name for name in dir(self._episode) if not name.startswith("_"))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _parts(episode: Mapping[str, Any], num_actions: int | None) -> tuple[Columns, Columns, bool]:
    """The transitions of an episode, what closes it `[1]`, and whether it terminated."""
    observations = typed({"observation": single_array(entry(episode, "observations"))})["observation"]
    actions, rewards = entry(episode, "actions"), entry(episode, "rewards")
    ends = flags("terminated", np.atleast_1d(entry(episode, "terminated", "terminations")))
    terminated = bool(ends.any())
    if ends[:-1].any():
        raise ValueError(
            f"it goes on after its termination at step {np.flatnonzero(ends)[0]}: cut it in two there"
        )
    count, shown = len(actions), len(observations)
    if len(ends) not in (1, count):
        raise ValueError(
            f"it has {count} actions and {len(ends)} flags in terminated: give one, or one for each action"
        )
    if shown not in (count, count + 1) or not count:
        raise ValueError(
            f"it has {count} actions and {shown} observations: an episode of T actions, at least one, has T "
            "observations, or T + 1 with the one that closes it"
        )
    masks = episode.get("invalid_actions")
    masks = None if masks is None else np.asarray(masks)
    real = None if masks is None else masks[:count]
    columns = rows(observations[:count], actions, rewards, real, num_actions)
    closing = {"observation": observations[-1:]}
    if masks is not None and len(masks) == shown:
        closing["invalid_actions"] = masks[-1:]
    elif masks is not None:
        closing["invalid_actions"] = np.zeros_like(masks[-1:])
    if shown == count and not terminated:
        columns = {field: values[:-1] for field, values in columns.items()}
    return columns, closing, terminated


def _joined(parts: Iterable[Columns]) -> Columns:
    """Concatenates fields of episodes, which must be alike."""
    parts = list(parts)
    kinds = {field: (values.shape[1:], values.dtype) for field, values in parts[0].items()}
    for index, columns in enumerate(parts):
        if (found := {field: (v.shape[1:], v.dtype) for field, v in columns.items()}) != kinds:
            raise ValueError(f"episode {index} has steps unlike the first: {found} instead of {kinds}")
    return {field: np.concatenate([columns[field] for columns in parts]) for field in kinds}
