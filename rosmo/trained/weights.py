"""Parameters as a file of safetensors, which holds arrays by name and nothing that could be executed."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rosmo.agents import TrainedAgent
from rosmo.data.files import write_whole
from rosmo.runs.damage import first_line
from rosmo.types import Params, is_array

_STEP, _SHAPE = "step", "observation_shape"


class Weights(NamedTuple):
    """What a file holds: parameters, after which update they are, and what their agent sees."""

    params: Params
    step: int
    observation_shape: tuple[int, ...]


def save(trained: TrainedAgent, path: str | os.PathLike[str]) -> None:
    """Writes the parameters of an agent to a file, which `rosmo.load(path, agent=…)` opens.

    Args:
        trained: what was trained in code; of a run, `rosmo export` gives away more than parameters.
        path: of the file, as "mine.safetensors".
    """
    step = int(trained.settings.get(_STEP, 0))
    write_weights(Path(path).expanduser(), trained.params, step, trained.observation_shape)


def write_weights(path: Path, params: Params, step: int, observation_shape: tuple[int, ...]) -> None:
    """Writes the arrays of parameters, each by its place in them."""
    from safetensors.numpy import save as as_bytes

    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it, as {path / 'mine.safetensors'}")

    arrays = {name: np.asarray(jax.device_get(x), order="C") for name, x in _named(params).items()}
    about = {_STEP: str(step), _SHAPE: json.dumps(observation_shape)}
    write_whole(path, as_bytes(arrays, metadata=about))


def read_weights(path: Path, like: Params, step: int | None = None) -> Weights:
    """Returns parameters of the shapes of `like`, and what the file says of them.

    Raises a ValueError where the file is damaged, has other arrays than the agent, or is of another update
    than `step`.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            held, shape = int(about[_STEP]), tuple(map(int, json.loads(about[_SHAPE])))
            names = file.keys()
            found = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"{path} is damaged ({first_line(error)}): fetch it again") from error
    if step not in (None, held):
        raise ValueError(f"{path} holds the agent after update {held} alone: leave out {step}")
    expected = _named(like)
    for name in sorted(expected.keys() | found.keys()):
        here, there = (_kind(arrays.get(name)) for arrays in (expected, found))
        if here != there:
            raise ValueError(
                f"{path} does not fit the agent that it is for: {name} is {there} there, and {here} in that"
            )
        if np.issubdtype(found[name].dtype, np.inexact) and not np.all(np.isfinite(found[name])):
            raise ValueError(f"{path} is damaged ({name} is not finite): fetch it again")
    leaves = jax.tree_util.tree_flatten_with_path(like)
    filled = [found[_name(place)] if is_array(x) else x for place, x in leaves[0]]
    arrays = [jax.numpy.asarray(x) if is_array(x) else x for x in filled]
    return Weights(jax.tree.unflatten(leaves[1], arrays), held, shape)


def _named(params: Params) -> dict[str, Any]:
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {_name(place): x for place, x in leaves if is_array(x)}


def _name(place: tuple) -> str:
    return jax.tree_util.keystr(place, simple=True, separator=".")


def _kind(array: Any) -> str:
    return "missing" if array is None else f"{array.dtype}{list(array.shape)}"
