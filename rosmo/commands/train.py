"""Trains an agent on a data set and evaluates it in the environment; collects the data if there is none."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import gin
import jax
import numpy as np
from jax.sharding import Mesh

from rosmo import configs, envs
from rosmo.commands import pool
from rosmo.commands.listeners import tensorboard, wandb
from rosmo.commands.shared import load_data, open_run, seed_folder, seed_folders
from rosmo.learner import data_mesh
from rosmo.report import learning_curve
from rosmo.runs.datasets import checksum
from rosmo.runs.folder import RunFolder
from rosmo.runs.train import Interrupted, Training, train

_MOST_CPU_DEVICES = 4  # a batch of 128 in more parts than this is all overhead


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
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
    parser.add_argument("--run", dest="folder", type=Path, help="the run's folder (default: one below runs/)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run that was stopped")
    parser.add_argument("--seed", type=int, help="of parameters and batches (default: 0)")
    parser.add_argument("--seeds", type=int, help="train this many seeds, one on each core at a time")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="where collected data is kept")
    parser.add_argument(
        "--devices", type=int, help="devices to split a batch over (default: all, or the cores)"
    )
    parser.add_argument("--wandb", metavar="PROJECT", help="log to Weights & Biases too")


def run(args: argparse.Namespace) -> None:
    """Begins a run, or goes on with one."""
    known = _resumed(args) if args.resume else {}
    with contextlib.suppress(RuntimeError):  # JAX is awake already, and keeps the devices that it has
        devices = args.devices or known.get("devices") or _cpu_devices()
        jax.config.update("jax_num_cpu_devices", max(devices, 1))
    folder = RunFolder(args.resume) if args.resume else _begin(args)
    if folder.read_settings().get("seeds"):
        label = f"{folder.path.name}, {len(seed_folders(folder))} seeds"
        pool.train_all(seed_folders(folder), label, f"rosmo train --resume {folder.path}")
    else:
        train_folder(folder)
    training, _ = open_run(folder)
    draw(folder, training)
    for each in seed_folders(folder):
        result = json.loads(each.result.read_text())
        sampled, greedy = (np.mean(result[policy]) for policy in ("sampled", "greedy"))
        print(f"{each.path}: return {sampled:.2f} (greedy {greedy:.2f}) after {result['step']:,} updates")
    print(f"learning curve: {folder.curve}")


def train_folder(folder: RunFolder) -> None:
    """Trains the run that a folder describes, from wherever it stands."""
    training, settings = open_run(folder)
    mesh = _mesh(settings["devices"])
    steps = load_data(training, Path(settings["data_dir"]))
    if settings["data"] not in (None, checksum(steps)):
        raise ValueError(
            f"the data has changed since {folder.path} was begun: it was {settings['data']}, and is now "
            f"{checksum(steps)}; bring it back, or begin a new run"
        )

    def keep_config(row: dict) -> None:
        folder.operative_config.write_text(gin.operative_config_str())

    listeners: list[Callable[[dict], None]] = [keep_config, tensorboard(folder.path)]
    if settings["wandb"]:
        listeners.append(wandb(settings["wandb"], folder.path))
    try:
        with folder.held():
            train(training, steps, folder, seed=settings["seed"], listeners=tuple(listeners), mesh=mesh)
    except Interrupted as stop:
        draw(folder, training)
        raise KeyboardInterrupt(f"{stop}; go on with: rosmo train --resume {folder.path}") from stop


def draw(folder: RunFolder, training: Training) -> None:
    """Draws the learning curve of a run."""
    reference = envs.references.get(training.environment)
    rows = [each.metrics.rows() for each in seed_folders(folder)]
    top = reference.online if reference else None
    learning_curve(rows, folder.curve, title=folder.path.name, top=top)


def _resumed(args: argparse.Namespace) -> dict:
    """The settings of the run that is to go on; nothing else may be asked for with it."""
    others = ("configs", "bind", "imports", "folder", "seed", "seeds", "devices", "wandb")
    if asked := [name for name in others if getattr(args, name)]:
        raise ValueError(f"--resume goes on with a run as it was begun: leave out {', '.join(asked)}")
    return RunFolder(args.resume).read_settings()


def _begin(args: argparse.Namespace) -> RunFolder:
    """Checks everything that can be checked, then makes the run's folder (and one for each seed)."""
    names, first_seed = args.configs or ["bsuite/rosmo"], args.seed or 0
    if not 0 <= first_seed < 2**30:
        raise ValueError(f"--seed must lie between 0 and 2³⁰, got {args.seed}")
    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    training = configs.load(names, args.bind, args.imports)
    if training.data and not training.data.startswith("minari:"):  # to be found from anywhere
        path = str(Path(training.data).expanduser().resolve())
        training = configs.load(names, [*args.bind, f"train.data = {path!r}"], args.imports)
    text, agent = gin.config_str(), training.build_agent()
    devices = args.devices or (_most_devices(training.learner(agent).batch_size) if args.seeds is None else 1)
    learner = training.learner(agent, mesh=_mesh(devices))
    folder = RunFolder(args.folder or Path("runs") / _default_name(names, training))
    if folder.exists():
        raise FileExistsError(
            f"{folder.path} holds a run already: go on with it by --resume {folder.path}, or choose another "
            "folder with --run"
        )
    common = {
        "imports": [str(Path(name).resolve()) if name.endswith(".py") else name for name in args.imports],
        "data_dir": str(args.data_dir.resolve()),
        "wandb": args.wandb,
    }
    steps = load_data(training, args.data_dir)
    training.rehearse(learner, steps)
    common |= {"data": checksum(steps), "devices": devices}
    print(f"training on {common['data']}", file=sys.stderr)
    if args.seeds is None:
        folder.begin(text, common | {"seed": first_seed})
        return folder
    for seed in range(args.seeds):
        settings = common | {"seed": first_seed + seed}
        seed_folder(folder.path, seed).begin(text, settings)
    folder.begin(text, common | {"seeds": args.seeds})
    return folder


def _default_name(names: list[str], training: Training) -> str:
    agent = Path(names[0]).stem
    noise = f"-noise{training.noise:g}" if training.noise else ""
    fraction = f"-data{training.data_fraction:g}" if training.data_fraction != 1 else ""
    return f"{agent}-{training.environment.replace('/', '-')}{noise}{fraction}"


def _cpu_devices() -> int:
    return min(_MOST_CPU_DEVICES, len(os.sched_getaffinity(0)))


def _most_devices(batch_size: int) -> int:
    """Returns the most devices that a batch divides over."""
    return max(count for count in range(1, len(jax.devices()) + 1) if batch_size % count == 0)


def _mesh(devices: int) -> Mesh:
    if not 1 <= devices <= len(jax.devices()):
        raise ValueError(f"a run on {devices} devices is not possible here: there are {len(jax.devices())}")
    return data_mesh(devices)
