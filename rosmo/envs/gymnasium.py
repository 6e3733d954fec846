"""Gymnasium's environments: any of them by `gym/ID`, and one that was made in code by `from_gymnasium`.

Actions must be discrete. An observation is one array: that of a box as it is, a dictionary's one entry, and
anything else as gymnasium's FlattenObservation flattens it (discrete parts become one-hot). Entries of a
dictionary that are texts of no fixed length, such as MiniGrid's mission, are left out, which is warned of.
Floats are float32; whole numbers are bytes where their bounds allow it.

A time limit is a truncation, after which the discount is still 1; what the environment itself ends is a
termination, with discount 0, also where both come at once.
"""

import contextlib
import functools
import importlib
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from jaxtyping import Shaped, UInt8

from rosmo.registry import UnknownPartError, nearest

PREFIX = "gym/"
# Packages that tell gymnasium of their environments when they are imported, by how their ids begin.
_PACKAGES = {"ALE/": "ale_py", "BabyAI-": "minigrid", "MinAtar/": "minatar.gym", "MiniGrid-": "minigrid"}

_Read = Callable[[Any], Any]  # what the library has of an observation


def from_gymnasium(environment: Any, *, seed: int | None = None) -> dm_env.Environment:
    """Returns a gymnasium environment as one of dm_env, which everything here plays.

    Args:
        environment: with discrete actions; make it with `render_mode="rgb_array"` to film it.
        seed: of its first reset, and so of all episodes.
    """
    gymnasium = _import()
    if isinstance(environment, gymnasium.vector.VectorEnv):
        raise TypeError(
            f"{type(environment).__name__} is several environments in one: give one of them, or a "
            "function that makes one from a seed"
        )
    if not isinstance(environment, gymnasium.Env):
        raise TypeError(
            f"from_gymnasium takes a gymnasium.Env, and not {type(environment).__name__}: environments of "
            "the former gym go through gymnasium.make('GymV26Environment-v0', env=…) first"
        )
    return Gymnasium(environment, seed)


class Gymnasium(dm_env.Environment):
    """A gymnasium environment, which it keeps as `environment`."""

    def __init__(self, environment: Any, seed: int | None = None):
        name = environment.spec.id if environment.spec else type(environment.unwrapped).__name__
        self.environment = environment
        self._first_action, self._actions = _discrete(name, environment.action_space)
        self._read, shape, self._dtype = _reader(name, environment.observation_space)
        self._spec = specs.Array(shape, self._dtype, name="observation")
        self._seed = seed
        self._over = True

    def reset(self) -> dm_env.TimeStep:
        seed, self._seed = self._seed, None  # given once: the same at every reset would be one episode
        observation, _ = _returned(self.environment.reset(seed=seed), 2, "reset")
        self._over = False
        return dm_env.restart(self._observe(observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._over:
            return self.reset()
        returned = self.environment.step(int(action) + self._first_action)
        found, reward, terminated, truncated, _ = _returned(returned, 5, "step")
        observation = self._observe(found)
        self._over = bool(terminated or truncated)
        if not self._over:
            return dm_env.transition(float(reward), observation)
        return (dm_env.termination if terminated else dm_env.truncation)(float(reward), observation)

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """Returns the screen, of an environment that was made to draw it."""
        if self.environment.render_mode != "rgb_array":
            raise TypeError(
                f"{self.environment} does not draw its screen: make it with render_mode='rgb_array', if it "
                "has that mode"
            )
        with _missing_packages(str(self.environment)):
            screen = np.asarray(self.environment.render())
        if screen.dtype != np.uint8:  # shares of 1, say, would all be dark
            raise TypeError(
                f"{self.environment} draws its screen in {screen.dtype}, and not in bytes (uint8)"
            )
        return screen

    def observation_spec(self) -> Any:
        return self._spec

    def action_spec(self) -> Any:
        return specs.DiscreteArray(self._actions)

    def close(self) -> None:
        self.environment.close()

    def _observe(self, observation: Any) -> Shaped[np.ndarray, "..."]:
        shown = np.array(self._read(observation), self._dtype)  # a copy: some environments go on in theirs
        if shown.shape != self._spec.shape:
            raise ValueError(
                f"{self.environment} shows an observation of the shape {list(shown.shape)}, and its "
                f"observation_space says {list(self._spec.shape)}: one of them is wrong"
            )
        return shown


def _returned(values: Any, count: int, by: str) -> Any:
    """What an environment returned, if those are as many values as gymnasium has."""
    if not isinstance(values, tuple) or len(values) != count:
        found = f"{len(values)}" if isinstance(values, tuple) else f"a single {type(values).__name__}"
        raise TypeError(
            f"{by}() of a gymnasium environment returns {count} values, and this one's {found}: "
            "environments of the former gym go through gymnasium.make('GymV26Environment-v0', env=…) first"
        )
    return values


def builder(name: str) -> Callable[..., dm_env.Environment]:
    """Returns what makes `gym/ID` from a seed; the error for an unknown id lists the nearest ones."""
    gymnasium = _import(name)
    identity = name.removeprefix(PREFIX)
    if ":" in identity:
        raise ValueError(
            f"{name!r} names a module, which is not imported unasked: name it by --import, and the "
            f"environment by '{PREFIX}{identity.rpartition(':')[2]}'"
        )
    for beginning, package in _PACKAGES.items():
        if identity.startswith(beginning):
            _register(gymnasium, name, package)
    if identity not in gymnasium.registry:
        near = nearest(identity, gymnasium.registry).replace("'", "").split(" or ")
        near = " or ".join(f"'{PREFIX}{each}'" for each in near if each)
        hint = f" Did you mean {near}?" if near else ""
        raise UnknownPartError(
            f"gymnasium has no environment {identity!r}.{hint} A package of environments has to be imported "
            "first, by --import."
        )
    build = functools.partial(make_gymnasium, identity=identity)
    return functools.update_wrapper(build, make_gymnasium)


def make_gymnasium(seed: int, *, identity: str) -> dm_env.Environment:
    """An environment of gymnasium's registry, as it is registered, with its screen where it has one."""
    gymnasium = _import()
    with _missing_packages(f"{PREFIX}{identity}"):
        load = importlib.import_module("gymnasium.envs.registration").load_env_creator
        entry = gymnasium.spec(identity).entry_point
        modes = getattr(load(entry) if isinstance(entry, str) else entry, "metadata", {}).get(
            "render_modes", ()
        )
        mode = "rgb_array" if "rgb_array" in modes else None
        environment = gymnasium.make(identity, render_mode=mode, disable_env_checker=True)
    return from_gymnasium(environment, seed=seed)


def _discrete(name: str, space: Any) -> tuple[int, int]:
    """Returns the first action and how many there are."""
    spaces = _import().spaces
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.n)
    if isinstance(space, spaces.Box):
        raise TypeError(
            f"{name} has continuous actions ({space}), and the agents here choose among discrete ones: put a "
            "wrapper around it that offers some of them as Discrete actions"
        )
    raise TypeError(
        f"{name} has actions of the kind {type(space).__name__} ({space}), and the agents here choose one "
        "number: put a wrapper around it that counts all combinations as Discrete actions"
    )


def _reader(name: str, space: Any) -> tuple[_Read, tuple[int, ...], np.dtype]:
    """Returns what makes an array of an observation, with its shape and type."""
    spaces = _import().spaces
    if isinstance(space, spaces.Dict):
        kept = {key: entry for key, entry in space.items() if not _is_free_text(entry)}
        if len(kept) < len(space.spaces):
            left_out = ", ".join(repr(key) for key in space if key not in kept)
            warnings.warn(f"{name}: {left_out} of the observations is text and is left out", stacklevel=2)
        if len(kept) == 1:
            [(key, entry)] = kept.items()
            read, shape, dtype = _reader(name, entry)
            return lambda observation: read(observation[key]), shape, dtype
        space = spaces.Dict(kept)
    if isinstance(space, spaces.Box):
        return lambda observation: observation, space.shape, _type_of(space)
    flat = _flattened(space)
    if flat is None:
        raise TypeError(
            f"{name} has observations of the kind {type(space).__name__} ({space}), which have no fixed "
            "size: put a wrapper around it that makes one array of them"
        )
    return functools.partial(spaces.flatten, space), flat.shape, _type_of(flat)


def _is_free_text(space: Any) -> bool:
    """Whether a space is of texts that gymnasium cannot flatten."""
    return space.dtype is not None and np.issubdtype(space.dtype, np.str_) and _flattened(space) is None


def _flattened(space: Any) -> Any | None:
    """The box that a space is flattened to, if gymnasium can."""
    spaces = _import().spaces
    try:
        flat = spaces.flatten_space(space)
    except NotImplementedError:
        return None
    return flat if isinstance(flat, spaces.Box) and len(flat.shape) == 1 and flat.shape[0] else None


def _type_of(box: Any) -> np.dtype:
    """The smallest type of ours that holds a box, so that images stay bytes; floats are float32."""
    if box.dtype.kind not in "iub" or not box.low.size:
        return np.dtype(np.float32)
    low, high = int(box.low.min()), int(box.high.max())
    for kind in (np.uint8, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return np.dtype(kind)
    return np.dtype(np.float32)


def _import(name: str = "this environment") -> ModuleType:
    try:
        return importlib.import_module("gymnasium")
    except ImportError as error:
        raise ImportError(f'{name} needs gymnasium: pip install "rosmo[gym]" ({error})') from error


def _register(gymnasium: ModuleType, name: str, package: str) -> None:
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        top = package.partition(".")[0].replace("_", "-")
        raise ImportError(f"{name} needs {top}: pip install {top} ({error})") from error
    if package == "minatar.gym" and "MinAtar/Breakout-v0" not in gymnasium.registry:
        module.register_envs()
    if package == "ale_py":
        module.ALEInterface.setLoggerMode(module.LoggerMode.Error)


@contextlib.contextmanager
def _missing_packages(name: str) -> Iterator[None]:
    """Names the environment that a package is missing of; packages' own warnings of age are not ours."""
    gymnasium = _import(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise ImportError(f"{name} needs another package: {error}") from error
