"""Minari data sets with discrete actions, as steps of experience."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rosmo.data.rlds import choose_episodes, discounts
from rosmo.types import Trajectory


def read(dataset_id: str, *, fraction: float = 1.0, seed: int = 0) -> Trajectory:
    """Reads the steps `[N]` of a Minari data set that is on this machine, episodes one after the other.

    A Minari episode has one observation more than it has actions: that one becomes its closing step. An
    episode that neither terminated nor was truncated counts as truncated where it stops.

    Args:
        dataset_id: as in `minari.load_dataset`, for example "D4RL/minigrid/fourrooms-v0".
        fraction: the share of the episodes to keep, drawn at random; for one seed, a smaller share is part of
            a larger one.
        seed: chooses the episodes.
    """
    dataset = _load(dataset_id)
    _refuse_other_actions(dataset.action_space, dataset_id)
    if not dataset.total_episodes:
        raise ValueError(f"the Minari data set {dataset_id!r} has no episodes")
    chosen = dataset.episode_indices[choose_episodes(int(dataset.total_episodes), fraction, seed)]
    episodes = [_trajectory(episode, dataset_id) for episode in dataset.iterate_episodes(chosen)]
    fields = [field for field in vars(episodes[0]) if field != "invalid_actions"]
    return Trajectory(**{f: np.concatenate([getattr(episode, f) for episode in episodes]) for f in fields})


def _load(dataset_id: str) -> Any:
    try:
        import minari
    except ImportError as error:
        raise ImportError(f'Minari data sets need minari: pip install "rosmo[minari]" ({error})') from error
    try:
        return minari.load_dataset(dataset_id)
    except FileNotFoundError:
        found = ", ".join(minari.list_local_datasets()) or "none"
        raise FileNotFoundError(
            f"there is no Minari data set {dataset_id!r} on this machine (there are: {found}); get it with "
            f"`minari download {dataset_id}`"
        ) from None


def _refuse_other_actions(space: Any, dataset_id: str) -> None:
    from gymnasium.spaces import Discrete

    if not isinstance(space, Discrete) or space.start != 0:
        raise ValueError(
            f"the actions of the Minari data set {dataset_id!r} are {space}: only Discrete(n) is supported"
        )


def _trajectory(episode: Any, dataset_id: str) -> Trajectory:
    observation = episode.observations
    while isinstance(observation, Mapping) and len(observation) == 1:
        (observation,) = observation.values()
    if not isinstance(observation, np.ndarray):
        parts = ", ".join(observation) if isinstance(observation, Mapping) else type(observation).__name__
        raise ValueError(
            f"the observations of the Minari data set {dataset_id!r} have several parts ({parts}): combine "
            "them into one array"
        )
    step = np.arange(len(observation))
    is_last = step == step[-1]
    is_terminal = is_last & bool(episode.terminations[-1])
    return Trajectory(
        observation=observation,
        action=np.append(episode.actions, 0).astype(np.int32),
        reward=np.append(episode.rewards, 0).astype(np.float32),
        discount=discounts(is_terminal),
        is_first=step == 0,
        is_last=is_last,
        is_terminal=is_terminal,
    )
