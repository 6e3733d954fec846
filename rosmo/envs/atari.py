"""The Atari games of RL Unplugged, on the emulator and with the protocol that its data was recorded with.

An action is held for 4 frames, and on each of them gives way to the one before it with probability 0.25
(sticky actions). An observation is the pixelwise maximum of the last two of those frames in grey, scaled to
84×84, and stacked on the three before it; before the first step there was darkness. An episode is a full
game, cut off after 27,000 steps. Rewards are the game's own points: data sets clip them, scores do not. The
reference scores are those of RL Unplugged, by the names of its data sets: `atari/Pong` has `Pong_run_1`.
"""

import functools
import json
from importlib import resources
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from jaxtyping import UInt8

from rosmo.data.atari import STACK
from rosmo.envs.base import Reference, get, references, registry
from rosmo.envs.gymnasium import PREFIX

SIZE = 84  # height and width of an observation
_SKIP = 4
_STICKY = 0.25
_MAX_FRAMES = 27_000 * _SKIP


def title(game: str) -> str:
    """Returns the name that data sets have for a game: `ms_pacman` is `MsPacman`."""
    return game.title().replace("_", "")


class Atari(dm_env.Environment):
    """One game, by the name of its ROM in ale-py, such as "ms_pacman"."""

    def __init__(self, game: str, seed: int, *, sticky: float = _STICKY, max_frames: int = _MAX_FRAMES):
        ale_py, self._cv2 = _import()
        self.ale = ale_py.ALEInterface()
        self.ale.setInt("random_seed", emulator_seed(seed))
        self.ale.setFloat("repeat_action_probability", sticky)
        self.ale.setInt("max_num_frames_per_episode", max_frames)
        self.ale.loadROM(_rom(game))
        self.actions = self.ale.getMinimalActionSet()
        self._screens = np.zeros((2, *self.ale.getScreenDims()), np.uint8)
        self._stack = np.zeros((SIZE, SIZE, STACK), np.uint8)
        self._over = True

    def reset(self) -> dm_env.TimeStep:
        self.ale.reset_game()
        self._over = False
        self._stack = np.zeros_like(self._stack)
        self.ale.getScreenGrayscale(self._screens[0])
        self._screens[1] = 0
        return dm_env.restart(self._observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._over:
            return self.reset()
        reward = 0.0
        for frame in range(_SKIP):
            reward += self.ale.act(self.actions[int(action)])
            if self.ale.game_over():
                self._over = True
                break  # the last screens stand
            if frame >= _SKIP - 2:
                self.ale.getScreenGrayscale(self._screens[_SKIP - 1 - frame])
        observation = self._observe()
        if not self._over:
            return dm_env.transition(reward, observation)
        ended = dm_env.termination if self.ale.game_over(with_truncation=False) else dm_env.truncation
        return ended(reward, observation)

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """Returns the screen in colour."""
        return self.ale.getScreenRGB()

    def observation_spec(self) -> Any:
        return specs.BoundedArray(self._stack.shape, np.uint8, 0, 255)

    def action_spec(self) -> Any:
        return specs.DiscreteArray(len(self.actions))

    def _observe(self) -> UInt8[np.ndarray, "size size stack"]:
        # In place: where a game ends before its screens are taken, the next maximum is over this one.
        screen = np.maximum(*self._screens, out=self._screens[0])
        frame = self._cv2.resize(screen, (SIZE, SIZE), interpolation=self._cv2.INTER_AREA)
        self._stack = np.concatenate([self._stack[..., 1:], frame[..., None]], axis=-1)
        return self._stack


def is_atari(name: str) -> bool:
    """Whether an environment is an Atari game of this protocol, by what it is and not by its name."""
    return not name.startswith(PREFIX) and isinstance(get(name)(seed=0), Atari)


def emulator_seed(seed: int) -> int:
    """Returns a seed that the emulator takes, far apart for seeds that are close."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)


def make_atari(seed: int, *, game: str, max_frames: int = _MAX_FRAMES) -> dm_env.Environment:
    """An Atari game as RL Unplugged has it: sticky actions, 4 grey frames of 84×84, full games."""
    return Atari(game, seed, max_frames=max_frames)


def _import() -> tuple[Any, Any]:
    try:
        import ale_py
        import cv2
    except ImportError as error:
        raise ImportError(
            f'Atari games need ale-py and OpenCV: pip install "rosmo[atari]" ({error})'
        ) from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py, cv2


def _rom(game: str) -> str:
    from ale_py import roms

    if game not in roms.get_all_rom_ids():
        known = ", ".join(roms.get_all_rom_ids())
        raise ValueError(f"ale-py has no game {game!r}; it has: {known}")
    return str(roms.get_rom_path(game))


def _register() -> None:
    baselines = json.loads(resources.files("rosmo.envs").joinpath("atari_baselines.json").read_text())
    for game, scores in baselines.items():
        name = f"atari/{title(game)}"
        build = functools.partial(make_atari, game=game)
        registry.register(name)(functools.update_wrapper(build, make_atari))
        references[name] = Reference(random=scores["random"], online=scores["online_dqn"])


_register()
