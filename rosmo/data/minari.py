"""Minari data sets with discrete actions, as steps of experience, and steps as Minari data sets."""

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from rosmo.data.arrays import from_episodes
from rosmo.data.arrays.columns import single_array
from rosmo.data.check import NO_CONTINUOUS
from rosmo.data.episodes import each_episode
from rosmo.data.rlds import choose_episodes
from rosmo.data.rlds.episodes import named
from rosmo.data.screens import as_stacks
from rosmo.registry import nearest
from rosmo.types import Trajectory

_MASKS = "invalid_actions"  # among the infos of an episode: Minari has no field for them


def read(dataset_id: str, *, fraction: float = 1.0, seed: int = 0) -> Trajectory:
    """Reads the steps `[N]` of a Minari data set that is on this machine, episodes one after the other.

    A Minari episode has one observation more than it has actions: that one becomes its closing step. An
    episode that neither terminated nor was truncated counts as truncated where it stops. Screens of Atari
    games become stacks of four grey frames of 84×84, as agents see them.

    Args:
        dataset_id: as in `minari.load_dataset`, for example "atari/pong/expert-v0".
        fraction: the share of the episodes to keep, drawn at random; for one seed, a smaller share is part of
            a larger one.
        seed: chooses the episodes.
    """
    dataset = _load(dataset_id)
    num_actions = _number_of_actions(dataset.action_space, dataset_id)
    if not dataset.total_episodes:
        raise ValueError(f"the Minari data set {dataset_id!r} has no episodes")
    chosen = dataset.episode_indices[choose_episodes(int(dataset.total_episodes), fraction, seed)]
    with named(f"the Minari data set {dataset_id!r}"):
        return from_episodes(_episodes(dataset, chosen), num_actions=num_actions)


def number_of_actions(dataset_id: str) -> int:
    """Returns how many actions the space of a data set has, taken or not."""
    return _number_of_actions(_load(dataset_id).action_space, dataset_id)


def _episodes(dataset: Any, chosen: np.ndarray) -> Iterator[dict[str, Any]]:
    for episode in dataset.iterate_episodes(chosen):
        found = {
            "id": episode.id,
            "observations": as_stacks(single_array(episode.observations)),
            "actions": episode.actions,
            "rewards": episode.rewards,
            "terminated": episode.terminations,
        }
        masks = (episode.infos or {}).get(_MASKS)
        yield found if masks is None else found | {_MASKS: np.asarray(masks, bool)}


def write(dataset_id: str, steps: Trajectory, *, num_actions: int, description: str) -> None:
    """Writes steps `[N]`, episodes one after the other, as a Minari data set of this machine.

    Flags in observations become bytes, 0 and 1, as gymnasium has no space of them. Everything else that
    Minari's own loader gives back is as it was.

    Args:
        dataset_id: of the new data set, with a version, as in "mine/catch-v0".
        steps: what to write.
        num_actions: that agents choose among.
        description: of the data set.
    """
    refuse_unusable(dataset_id)
    import minari
    from gymnasium.spaces import Discrete
    from minari.data_collector import EpisodeBuffer

    observation = np.asarray(steps.observation)
    observation = observation.astype(np.uint8) if observation.dtype == bool else observation
    steps = dataclasses.replace(steps, observation=observation)
    buffers = []
    for number, episode in enumerate(each_episode(steps)):
        count, terminated = len(episode.action) - 1, bool(episode.is_terminal[-1])
        if not count:
            continue
        ending = np.arange(count) == count - 1
        masks = None if episode.invalid_actions is None else {_MASKS: np.asarray(episode.invalid_actions)}
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=list(episode.observation),
                actions=list(np.asarray(episode.action[:-1], np.int64)),
                rewards=np.asarray(episode.reward[:-1]).tolist(),
                terminations=(ending & terminated).tolist(),
                truncations=(ending & (not terminated)).tolist(),
                infos=masks,
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # of what a data set may lack: an environment, its authors
        minari.create_dataset_from_buffers(
            dataset_id,
            buffers,
            observation_space=_box(observation),
            action_space=Discrete(num_actions),
            description=description,
            jpeg_encoding=False,  # which would change the pixels
        )


def refuse_unusable(dataset_id: str) -> None:
    """Raises what `write` would for the name of a data set: ask before the work that makes the steps."""
    minari = _import()
    from minari.dataset.minari_dataset import parse_dataset_id

    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError) as error:  # the latter where there is no version
        raise ValueError(
            f"{dataset_id!r} is no name of a Minari data set: write one with a version, as in 'mine/catch-v0'"
        ) from error
    if dataset_id in _there(minari):
        raise FileExistsError(
            f"there is a Minari data set {dataset_id!r} already: choose another name or version, or delete "
            f"it by `minari delete {dataset_id}`"
        )


def _box(observation: np.ndarray) -> Any:
    """The space of observations: bytes are pixels, and nothing is known of other numbers' bounds."""
    from gymnasium.spaces import Box

    kind = observation.dtype.type
    if np.issubdtype(kind, np.floating):
        low, high = -np.inf, np.inf
    else:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return Box(low, high, observation.shape[1:], kind)


def _import() -> Any:
    try:
        import minari
    except ImportError as error:
        raise ImportError(f'Minari data sets need minari: pip install "rosmo[minari]" ({error})') from error
    return minari


def _there(minari: Any) -> list[str]:
    """The data sets of this machine; Minari lists none where one folder has a name that it does not take."""
    try:
        return list(minari.list_local_datasets())
    except ValueError:
        return []


def _load(dataset_id: str) -> Any:
    minari = _import()
    try:
        return minari.load_dataset(dataset_id)
    except FileNotFoundError:
        there = _there(minari)
        hint = f": did you mean {near}?" if (near := nearest(dataset_id, there)) else ""
        raise FileNotFoundError(
            f"there is no Minari data set {dataset_id!r} on this machine{hint} (there are: "
            f"{', '.join(there) or 'none'}); get it with "
            f"`minari download {dataset_id}`"
        ) from None


def _number_of_actions(space: Any, dataset_id: str) -> int:
    from gymnasium.spaces import Box, Discrete

    if not isinstance(space, Discrete) or space.start != 0:
        hint = f"; {NO_CONTINUOUS}" if isinstance(space, Box) else ""
        if isinstance(space, Discrete):
            hint = f": number them from 0, by episodes of yours less {space.start} and from_episodes"
        raise ValueError(
            f"the actions of the Minari data set {dataset_id!r} are {space}: only Discrete(n) is "
            f"supported{hint}"
        )
    return int(space.n)
