"""Episodes as seeds and actions: an environment plays them again, step by step.

A recording of 200,000 steps has a few hundred kilobytes, so that the data sets of whole games come with the
library (`recordings/`), the same for everybody.
"""

import dataclasses
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Integer

from rosmo import envs
from rosmo.collect.recording import play
from rosmo.types import Trajectory

_HERE = Path(__file__).parent / "recordings"
_FIELDS = ("seeds", "lengths", "actions", "checksums")


class Played(NamedTuple):
    """An episode that was played in an environment of its own."""

    seed: int
    actions: Integer[np.ndarray, "length"]
    total: float


@dataclasses.dataclass(frozen=True)
class Recording:
    """Episodes of one environment, one after the other.

    Args:
        seeds: of the environment that plays each episode.
        lengths: actions of each episode.
        actions: of all episodes.
        checksums: of each episode's steps.
        about: how they came about, as JSON.
    """

    seeds: Integer[np.ndarray, "episodes"]
    lengths: Integer[np.ndarray, "episodes"]
    actions: Integer[np.ndarray, "steps"]
    checksums: Integer[np.ndarray, "episodes"]
    about: str = "{}"

    def save(self, path: Path) -> None:
        """Writes a file of its own."""
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, about=self.about, **{name: getattr(self, name) for name in _FIELDS})

    def play(self, environment: str) -> Iterator[Trajectory]:
        """Plays the episodes again, and refuses to go on where one comes out differently."""
        ends = np.cumsum(self.lengths)
        for i, (seed, actions) in enumerate(zip(self.seeds, np.split(self.actions, ends[:-1]), strict=True)):
            episode = again(environment, int(seed), actions)
            if _checksum(episode) != self.checksums[i]:
                raise RuntimeError(
                    f"episode {i} of the recording of {environment} plays differently here: another version "
                    f"of the environment than it was recorded in; rosmo collect {environment} --anew records "
                    "one of your own"
                )
            yield episode


def shipped(environment: str) -> Recording | None:
    """Returns the recording of an environment that comes with the library, if there is one."""
    path = _HERE / f"{environment}.npz"
    if not path.is_file():
        return None
    with np.load(path) as arrays:
        return Recording(*(arrays[name] for name in _FIELDS), about=str(arrays["about"]))


def recorded(
    environment: str, played: Iterable[Played], noise: float = 0.0
) -> tuple[Recording, list[Trajectory]]:
    """Plays episodes again, and returns their recording beside their steps."""
    played = list(played)
    episodes = [again(environment, one.seed, one.actions, noise) for one in played]
    recording = Recording(
        np.array([one.seed for one in played], np.uint32),
        np.array([len(one.actions) for one in played], np.int32),
        np.concatenate([one.actions for one in played]).astype(np.uint8),
        np.array([_checksum(episode) for episode in episodes], np.uint32),
    )
    return recording, episodes


def again(
    environment: str, seed: int, actions: Integer[np.ndarray, "length"], noise: float = 0.0
) -> Trajectory:
    """Plays an episode's actions in an environment of its own."""
    following = iter(actions)
    episode = play(envs.make(environment, seed=seed, noise=noise), lambda _: int(next(following, 0)))
    if len(episode.action) != len(actions) + 1:
        raise RuntimeError(
            f"{environment} plays differently with the same seed and actions: an episode of {len(actions)} "
            f"actions now has {len(episode.action) - 1}; its environment must draw by its seed alone"
        )
    return episode


def _checksum(episode: Trajectory) -> int:
    fields = (episode.observation, episode.reward, episode.discount, episode.is_terminal)
    total = 0
    for array in fields:
        total = zlib.crc32(np.ascontiguousarray(array).tobytes(), total)
    return total
