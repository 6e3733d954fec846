"""Registers `atari_shapes`: the observations and actions of an Atari game, to compile for and not to play."""

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from rosmo import envs


class AtariShapes(dm_env.Environment):
    """Four stacked frames of 84×84 bytes, and all 18 actions of the console."""

    def observation_spec(self) -> Any:
        return specs.Array((84, 84, 4), np.uint8)

    def action_spec(self) -> Any:
        return specs.DiscreteArray(18)

    def reset(self) -> dm_env.TimeStep:
        raise NotImplementedError("this environment has shapes alone")

    def step(self, action) -> dm_env.TimeStep:
        raise NotImplementedError("this environment has shapes alone")


@envs.register("atari_shapes")
def atari_shapes(seed: int) -> dm_env.Environment:
    """The shapes of Atari, which cannot be played."""
    return AtariShapes()
