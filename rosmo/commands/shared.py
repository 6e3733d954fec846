"""What the commands share: how a configuration is asked for, and where runs and their data are."""

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

import gin
import jax

from rosmo import configs, envs
from rosmo.data import DataSet
from rosmo.data.opening import MINARI, recorded_environment
from rosmo.runs.datasets import checksum, load_or_collect
from rosmo.runs.folder import RunFolder
from rosmo.runs.training import Training

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
    add_imports(parser)


def add_imports(parser: argparse.ArgumentParser) -> None:
    """Adds the argument that names modules of a user's own."""
    about = "a module or file of yours that registers parts; may be repeated"
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE", help=about)


def add_consent(parser: argparse.ArgumentParser) -> None:
    """Adds the argument that allows a run's own modules, which may be somebody else's code."""
    parser.add_argument("--trust", action="store_true", help="run the modules that a run brings with it")


def consent(args: argparse.Namespace) -> configs.Consent:
    """Returns what of a run's own code the command line allows."""
    return configs.Consent(args.trust, args.imports)


def load_configuration(names: Sequence[str], bindings: Sequence[str], imports: Sequence[str]) -> Training:
    """Returns the training of a configuration, with its data to be found from anywhere.

    Data that was named, and no environment with it, is evaluated where it says that it was recorded, if that
    is an environment known here, and else by held-out episodes.
    """
    training = configs.load(names, bindings, imports)
    if not training.data:
        return training
    found = []
    if not training.data.startswith(MINARI):
        path = str(Path(training.data).expanduser().resolve())
        found.append(f"train.data = {path!r}")
    if not configs.asked("environment", names, bindings):
        found.append(f"environment = {_known(recorded_environment(training.data))!r}")
    return configs.load(names, [*bindings, *found], imports) if found else training


def _known(environment: str | None) -> str | None:
    """Returns the name of an environment if there is such a one here."""
    if environment is None:
        return None
    try:
        envs.get(environment)
    except (LookupError, ValueError, ImportError):
        return None
    return environment


def with_spaces(training: Training, steps: DataSet) -> Training:
    """Returns the training with the spaces of its data where it has no environment; gin is told of them."""
    training = training.with_spaces_of(steps)
    if training.environment is None:
        with gin.unlock_config():
            gin.bind_parameter("train.observation_shape", training.observation_shape)
            gin.bind_parameter("train.num_actions", training.num_actions)
    return training


def simulate_devices(count: int) -> None:
    """Has a CPU stand for as many devices as are needed."""
    if count > _MOST_SIMULATED:
        raise ValueError(
            f"a mesh of {count:,} devices is more than a CPU can stand for ({_MOST_SIMULATED:,})"
        )
    with contextlib.suppress(RuntimeError):  # JAX is awake already, and keeps the devices that it has
        jax.config.update("jax_num_cpu_devices", max(count, 1))


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


def load_kept_data(training: Training, folder: RunFolder) -> DataSet:
    """Returns the data set of a run, and refuses another than the one that it was begun on."""
    settings = folder.read_settings()
    steps = load_data(training, Path(settings["data_dir"]))
    if settings["data"] not in (None, checksum(steps)):
        raise ValueError(
            f"the data has changed since {folder.path} was begun: it was {settings['data']}, and is now "
            f"{checksum(steps)}; bring it back, or begin a new run"
        )
    return steps
