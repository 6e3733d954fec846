"""What the commands that work on run folders share."""

from pathlib import Path
from typing import Any

from rosmo import configs
from rosmo.data import DataSet
from rosmo.runs.datasets import load_or_collect
from rosmo.runs.folder import RunFolder
from rosmo.runs.train import Training


def open_run(folder: RunFolder) -> tuple[Training, dict[str, Any]]:
    """Returns the training that a folder describes, and how it was started."""
    settings = folder.read_settings()
    return configs.load(imports=settings["imports"], text=folder.config.read_text()), settings


def load_data(training: Training, root: Path) -> DataSet:
    """Returns the data set of a training, which is collected below `root` if it is missing."""
    return load_or_collect(
        training.environment,
        data=training.data,
        root=root,
        noise=training.noise,
        seed=training.data_seed,
        fraction=training.data_fraction,
    )


def seed_folders(folder: RunFolder) -> list[RunFolder]:
    """Returns the folders of a run's seeds: several below it, or the folder itself."""
    count = folder.read_settings().get("seeds")
    return [seed_folder(folder.path, seed) for seed in range(count)] if count else [folder]


def seed_folder(path: Path, seed: int) -> RunFolder:
    """Returns the folder of one seed of several."""
    return RunFolder(path / f"seed{seed}")
