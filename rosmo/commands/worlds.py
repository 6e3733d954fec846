"""The world that an agent is to act in: found, or trained first where it is missing."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import gin

from rosmo import configs
from rosmo.commands.shared import load_configuration, load_data, with_spaces
from rosmo.experiments import pool
from rosmo.runs.datasets import checksum
from rosmo.runs.folder import RunFolder
from rosmo.runs.training import Training
from rosmo.runs.worlds import world_checksum


def in_its_world(
    names: Sequence[str], bindings: Sequence[str], imports: Sequence[str], data_dir: Path, again: str
) -> tuple[Training, dict[str, str]]:
    """Returns the training of a configuration, with its world, and what the world is recognised by.

    A world that is not named is looked for below `data_dir`, by all that it hangs on, and trained there if it
    is missing; one that was stopped goes on. Gin knows the configuration of the agent afterwards.

    Args:
        names: of configurations.
        bindings: on top of them.
        imports: modules to import first.
        data_dir: where collected data is kept.
        again: the command that goes on after a stop.
    """
    training = load_configuration(names, bindings, imports)
    if not training.world_configs:
        return training, {}
    if training.world is None:
        folder, updates = _begun(training, imports, data_dir)
        if not folder.finished():
            # Not by what the folder may bring with it, which could be anybody's.
            extra = [word for module in imports for word in ("--import", module)]
            pool.train_all({folder: updates}, f"the world of {training.label}", again, extra)
        run = folder.path
    else:
        run = Path(training.world).expanduser()
    found = {"world": world_checksum(run)}
    named = f"train.world = {str(run.resolve())!r}"
    return load_configuration(names, [*bindings, named], imports), found


def _begun(training: Training, imports: Sequence[str], data_dir: Path) -> tuple[RunFolder, int]:
    """Returns the run of the world that a training asks for, begun if it was not, and its updates."""
    steps = load_data(training, data_dir)
    training.with_spaces_of(steps).build_agent()  # refuses settings now, and not when the world is trained
    model = [f"train.model = @{training.model.__name__}", *configs.said_of(training.model)]
    bindings = [*model, *_data_of(training), *training.world_bindings]
    world = with_spaces(load_configuration(training.world_configs, bindings, imports), steps)
    text, found = gin.config_str(), checksum(steps)
    name = f"{world.label.replace('/', '-')}-{zlib.crc32((text + found).encode()):08x}"
    folder = RunFolder(data_dir / "worlds" / name)
    if not folder.exists():
        world.rehearse(world.learner(world.build_agent()), steps)
        settings = {"data_dir": str(data_dir.resolve()), "wandb": None, "mesh": "data=1"}
        folder.begin(text, settings | {"data": found, "seed": 0}, configs.sources(imports))
    return folder, world.num_updates


def _data_of(training: Training) -> list[str]:
    """Has the world learn from the agent's own data."""
    names = ("environment", "data", "noise", "data_fraction", "data_seed")
    return [f"train.{name} = {getattr(training, name)!r}" for name in names]
