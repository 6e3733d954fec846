"""What RL Unplugged's Atari data means by its steps, and how its episodes become ours: here and nowhere else.

`rlu_atari` (one split) and `rlu_atari_checkpoints_ordered` (a split for each of 50 checkpoints, in three
games of 49) hold for every step one grey frame of 84×84, which agents see stacked on the three before it;
nothing was before the first.
Rewards are clipped to [−1, 1], and so is `episode_return`, their sum. An episode that ends by a termination
has two discounts of 0 at its end, and the action, reward and discount of its last step mean nothing. One that
was cut off has none: `is_terminal` is then False throughout.
"""

import dataclasses
import re

import numpy as np

from rosmo.types import Trajectory

STACK = 4  # frames in an observation


def environment_of(name: str) -> str | None:
    """Returns the environment of a data set of RL Unplugged by TFDS's name of it, as rlu_atari/Pong_run_1."""
    found = re.match(r"rlu_atari\w*/(\w+)_run_\d", name)
    return f"atari/{found[1]}" if found else None


def as_recorded(episode: Trajectory) -> Trajectory:
    """Returns an episode that was recorded in the emulator in the layout of the data sets: one channel."""
    episode = single_frames(episode)
    return dataclasses.replace(episode, observation=episode.observation[..., None])


def single_frames(episode: Trajectory) -> Trajectory:
    """Returns an episode `[L+1]` as the data sets have it, from theirs or from one recorded in the emulator.

    Its frames are single, `[L+1, H, W]`: of stacks, the newest. Rewards are clipped. The closing step's
    action, reward and discount are 0, and so is the discount that leads to a termination.
    """
    observation = np.asarray(episode.observation)
    if observation.ndim == 4:
        _refuse_planes(observation)
        observation = np.ascontiguousarray(observation[..., -1])  # a view would keep the whole stacks
    if observation.dtype != np.uint8 or observation.ndim != 3:
        raise ValueError(
            f"observations must be frames of bytes [height, width] or stacks of them, got "
            f"{observation.dtype} of the shape {list(observation.shape[1:])}"
        )
    action, reward, discount = (np.array(getattr(episode, f)) for f in ("action", "reward", "discount"))
    for field in (action, reward, discount):
        field[-1] = 0
    if episode.is_terminal[-1]:
        discount[-2:] = 0
    reward = np.where(np.isinf(reward), reward, np.clip(reward, -1, 1))  # those are for a store to refuse
    return dataclasses.replace(
        episode, observation=observation, action=action, reward=reward, discount=discount
    )


def _refuse_planes(observation: np.ndarray) -> None:
    """Refuses channels that are neither one frame nor a stack of frames."""
    channels = observation.shape[-1]
    # In each stack but the first stand the frames of the one before; plane by plane, as episodes are long.
    stacked = channels == STACK and all(
        np.array_equal(observation[1:, ..., i], observation[:-1, ..., i + 1]) for i in range(STACK - 1)
    )
    if channels > 1 and not stacked:
        raise ValueError(
            f"observations of the shape {list(observation.shape[1:])} are neither single frames nor stacks "
            f"of the last {STACK}: only the frames of Atari games can be converted"
        )
