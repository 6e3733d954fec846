"""The world that a run leaves, and the run that stands on one: as a file, known by its checksum."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rosmo.agents import Trained
from rosmo.data import DataSet
from rosmo.data.files import replacing_file
from rosmo.data.stacking import stack_frames
from rosmo.evaluate.windows import ChosenWindows
from rosmo.runs.training import Training
from rosmo.types import Params, Trajectory, is_array
from rosmo.worlds import StandsOnWorld

FILE = "world.npz"
_WINDOWS = 2_048  # of the data, that a world is asked for its doubts of


def keep_world(run: Path, params: Params) -> None:
    """Writes the arrays of a trained world into the folder of its run, by their places in it."""
    arrays = {name: np.asarray(x) for name, x in _named(eqx.filter(params, eqx.is_array)).items()}
    with replacing_file(run / FILE) as incomplete, open(incomplete, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def world_checksum(run: Path) -> str:
    """Returns a short text that another world would not have."""
    total = 0
    for name, array in sorted(_read(run).items()):
        total = zlib.crc32(array.tobytes(), zlib.crc32(name.encode(), total))
    return f"crc32 {total:08x}"


def load_world(run: Path, like: Any) -> Any:
    """Returns the world of a run, built as `like`."""
    arrays, static = eqx.partition(like, is_array)
    kept, wanted = _read(run), _named(arrays)
    for name in sorted(kept.keys() | wanted.keys()):
        sizes = [list(tree[name].shape) if name in tree else "none" for tree in (kept, wanted)]
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"the world in {run} is built otherwise than this configuration says ({name} is {sizes[0]} "
                f"there and {sizes[1]} here): give both the same settings, or leave out world to train one"
            )
    leaves = [jnp.asarray(kept[name]) for name in wanted]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), leaves), static)


def furnished(agent: Trained, training: Training, steps: DataSet, checksum: str | None) -> Trained:
    """Returns an agent that stands on a world in the one of its training, which must be that of the checksum.

    Others are returned as they are.
    """
    if not isinstance(agent, StandsOnWorld):
        return agent
    if training.world is None:
        raise ValueError(
            f"{type(agent).__name__} acts in a world, and none is named: name the folder of a world's run"
        )
    run = Path(training.world)
    if checksum not in (None, found := world_checksum(run)):
        raise ValueError(
            f"the world in {run} has changed since the run was begun: it was {checksum}, and is now {found}; "
            "bring it back, or begin a new run"
        )
    world = load_world(run, eqx.filter_eval_shape(training.build_model(), jax.random.key(0)))
    return agent.in_world(world, _windows(steps, agent.window, training.spaces()[1]))


def _windows(steps: DataSet, window: int, num_actions: int) -> Iterator[Trajectory]:
    chosen = ChosenWindows(steps, window, num_actions, windows=_WINDOWS)
    return (stack_frames(jax.tree.map(jnp.asarray, batch)) for batch in chosen.batches())


def _named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}


def _read(run: Path) -> dict[str, np.ndarray]:
    try:
        # Opened here: NumPy leaves open what it finds to be no archive.
        with open(run / FILE, "rb") as raw, np.load(raw) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{run} has no {FILE}: name the folder of a world's run that is finished, or go on with it by "
            f"rosmo train --resume {run}"
        ) from None
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{run / FILE} cannot be read ({error}): delete {run} to train the world again"
        ) from error
