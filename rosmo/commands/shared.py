"""What the commands share: how a configuration is asked for, and where runs and their data are."""

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rosmo import configs
from rosmo.data import DataSet
from rosmo.runs.datasets import MINARI, load_or_collect
from rosmo.runs.folder import RunFolder
from rosmo.runs.train import Training

_MOST_SIMULATED = 16_384  # and more than any pod has
EXPERIMENTS = Path("runs/experiments")
DEFAULT_CONFIGS = ["bsuite/rosmo"]


def as_seed(text: str) -> int:
    """Reads a seed from the command line."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a seed is a whole number of at least 0, and not {text!r}")
    return int(text)


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say what to train."""
    parser.add_argument(
        "configs",
        nargs="*",
        metavar="CONFIG",
        help="packaged names or gin files, later ones on top of earlier ones (default: bsuite/rosmo)",
    )
    parser.add_argument(
        "-p", "--bind", action="append", default=[], metavar="BINDING", help="'operator = @mcts'"
    )
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE")


def load_configuration(names: Sequence[str], bindings: Sequence[str], imports: Sequence[str]) -> Training:
    """Returns the training of a configuration, with its data to be found from anywhere."""
    training = configs.load(names, bindings, imports)
    if training.data and not training.data.startswith(MINARI):
        path = str(Path(training.data).expanduser().resolve())
        training = configs.load(names, [*bindings, f"train.data = {path!r}"], imports)
    return training


def resolved_imports(imports: Sequence[str]) -> list[str]:
    """Returns modules to import by names that hold from any folder."""
    return [str(Path(name).resolve()) if name.endswith(".py") else name for name in imports]


def simulate_devices(count: int) -> None:
    """Has a CPU stand for as many devices as are needed."""
    if count > _MOST_SIMULATED:
        raise ValueError(
            f"a mesh of {count:,} devices is more than a CPU can stand for ({_MOST_SIMULATED:,})"
        )
    with contextlib.suppress(RuntimeError):  # JAX is awake already, and keeps the devices that it has
        jax.config.update("jax_num_cpu_devices", max(count, 1))


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
