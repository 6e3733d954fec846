"""MinAtar's five games, with the defaults of its package: Atari's play on 10×10 planes of zeros and ones.

An action gives way to the one before it with probability 0.1 (sticky actions), and games that can get harder
do. Actions are those that have an effect in the game, as in MinAtar's `-v1` environments. An episode is cut
off after 2,500 steps, which is a truncation: nothing in an observation says what time it is. Freeway's own
clock would end it one step later.

Reference scores were measured here (docs/minatar.md): a uniform policy over 1,000 episodes (freeway: 100),
and the training that the recordings of `rosmo.collect` are of, over the last tenth of its episodes.
"""

import colorsys
import functools
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from jaxtyping import UInt8

from rosmo.envs.base import Reference, references, registry

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
references["minatar/asterix"] = Reference(random=0.50, online=9.98)
references["minatar/breakout"] = Reference(random=0.39, online=14.96)
references["minatar/freeway"] = Reference(random=0.45, online=57.90)
references["minatar/seaquest"] = Reference(random=0.09, online=6.28)
references["minatar/space_invaders"] = Reference(random=3.90, online=107.89)
_MAX_STEPS = 2_500
_PIXELS = 16  # height and width of a cell on the screen


class MinAtar(dm_env.Environment):
    """One game, by its name in the package."""

    def __init__(self, game: str, seed: int, *, max_steps: int = _MAX_STEPS):
        self._game = _import(game)(game)
        self._game.seed(seed)
        self._actions = self._game.minimal_action_set()
        self._max_steps = max_steps
        self._time = max_steps

    def reset(self) -> dm_env.TimeStep:
        self._game.reset()
        self._time = 0
        return dm_env.restart(self._observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._time >= self._max_steps:
            return self.reset()
        reward, dead = self._game.act(self._actions[int(action)])
        self._time += 1
        if dead:
            self._time = self._max_steps
            return dm_env.termination(float(reward), self._observe())
        cut = self._time >= self._max_steps
        return (dm_env.truncation if cut else dm_env.transition)(float(reward), self._observe())

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """Returns the screen, each plane in a colour of its own and the later ones on top."""
        planes = self._observe()
        screen = np.zeros((*planes.shape[:2], 3), np.uint8)
        for index in range(planes.shape[-1]):
            colour = colorsys.hsv_to_rgb(index / planes.shape[-1], 0.6, 1.0)
            screen[planes[..., index] > 0] = [round(255 * part) for part in colour]
        return screen.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)

    def observation_spec(self) -> Any:
        return specs.BoundedArray(tuple(self._game.state_shape()), np.uint8, 0, 1)

    def action_spec(self) -> Any:
        return specs.DiscreteArray(len(self._actions))

    def _observe(self) -> UInt8[np.ndarray, "10 10 planes"]:
        return self._game.state().astype(np.uint8)


def make_minatar(seed: int, *, game: str) -> dm_env.Environment:
    """A game of MinAtar: sticky actions 0.1, ramping difficulty, at most 2,500 steps."""
    return MinAtar(game, seed)


def _import(game: str) -> Any:
    try:
        from minatar import Environment
    except ImportError as error:
        raise ImportError(
            f"environment 'minatar/{game}' needs minatar: pip install \"rosmo[minatar]\""
        ) from error
    return Environment


def _register() -> None:
    for game in GAMES:
        build = functools.partial(make_minatar, game=game)
        registry.register(f"minatar/{game}")(functools.update_wrapper(build, make_minatar))


_register()
