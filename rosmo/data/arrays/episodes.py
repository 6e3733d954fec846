"""Episodes as gymnasium plays them, one after the other in a list."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rosmo.data.arrays.columns import closed, entry, flags, rows, single_array
from rosmo.data.check import Columns, typed
from rosmo.data.episodes import checked
from rosmo.data.rlds.episodes import named
from rosmo.types import Trajectory

_TERMINATED = ("terminated", "terminations", "terminals")
_TRUNCATED = ("truncated", "truncations", "timeouts")


def from_episodes(episodes: Iterable[Any], *, num_actions: int | None = None) -> Trajectory:
    """Returns the steps `[N]` of episodes of T actions and T rewards, with T + 1 observations or T.

    With T + 1 the last one closes the episode. With T, what followed the last action is not there: a
    terminated episode then closes with its last observation once more, whose value is 0 and which no agent
    is trained on; one that was cut off closes with its last observation itself, whose action and reward go
    unused, and returns end with its value.

    Args:
        episodes: each a dictionary, or an object with such attributes, of `observations`, `actions`,
            `rewards`, `terminated` (of the episode, or of each of its steps; `terminations` too) and, where
            there are any, `truncated` and `invalid_actions` `[T or T + 1, actions]`. An episode that did
            not terminate counts as truncated where it stops.
        num_actions: every action must lie below it; where not given, up to the largest that was taken.
    """
    if isinstance(episodes, Mapping):
        raise TypeError("episodes come as a list of them, and not as a dictionary: [episode] for one")
    parts = []
    for index, given in enumerate(episodes):
        if isinstance(given, str | list | tuple | np.ndarray):
            raise TypeError(
                f"episode {index} is a {type(given).__name__}: an episode is a dictionary of observations, "
                "actions, rewards and terminated, or an object that has them"
            )
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
    actions, rewards = np.atleast_1d(entry(episode, "actions")), entry(episode, "rewards")
    count, shown = len(actions), len(np.atleast_1d(observations))
    terminated = _ended(episode, count, _TERMINATED)
    if any(name in episode for name in _TRUNCATED):
        _ended(episode, count, _TRUNCATED)
    if shown not in (count, count + 1) or not count:
        raise ValueError(
            f"it has {count} actions and {shown} observations: an episode of T actions, at least one, has T "
            "observations, or T + 1 with the one that closes it"
        )
    masks = episode.get("invalid_actions")
    masks = None if masks is None else np.asarray(masks)
    if masks is not None and masks.shape[:1] not in ((count,), (count + 1,)):
        raise ValueError(
            f"it has {count} actions and invalid_actions of the shape {list(masks.shape)}: give one mask for "
            "each action, and one more for what closes it where that is known"
        )
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


def _ended(episode: Mapping[str, Any], count: int, names: tuple[str, ...]) -> bool:
    """Whether an episode ended in one of two ways, which is said of it or of each of its steps."""
    ends = flags(names[0], np.atleast_1d(entry(episode, *names)))
    if ends[:-1].any():
        raise ValueError(
            f"it is {names[0]} at step {np.flatnonzero(ends)[0]} and goes on: cut it in two there"
        )
    if len(ends) not in (1, count):
        raise ValueError(
            f"it has {count} actions and {len(ends)} flags in {names[0]}: give one, or one for each action"
        )
    return bool(ends.any())


def _joined(parts: Iterable[Columns]) -> Columns:
    """Concatenates fields of episodes, which must be alike."""
    parts = list(parts)
    for index, columns in enumerate(parts):
        for field in sorted(parts[0].keys() | columns.keys()):
            here, first = (_kind(part.get(field)) for part in (columns, parts[0]))
            if here != first:
                raise ValueError(
                    f"episode {index} has steps unlike the first: {field} is {here}, and {first} in the first"
                )
    return {field: np.concatenate([columns[field] for columns in parts]) for field in parts[0]}


def _kind(values: np.ndarray | None) -> str:
    return "missing" if values is None else f"{values.dtype} {list(values.shape[1:])}"
