"""Trains an agent on a data set and evaluates it in the environment; collects the data if there is none."""

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import gin
import jax
import numpy as np

from rosmo import envs
from rosmo.commands import pool
from rosmo.commands.listeners import tensorboard, wandb
from rosmo.commands.shared import (
    DEFAULT_CONFIGS,
    add_configuration,
    as_seed,
    load_configuration,
    load_data,
    open_run,
    resolved_imports,
    seed_folder,
    seed_folders,
    simulate_devices,
)
from rosmo.disk import refuse_unwritable
from rosmo.report import learning_curve
from rosmo.runs import hosts
from rosmo.runs.datasets import checksum
from rosmo.runs.folder import RunFolder
from rosmo.runs.train import Interrupted, Training, train
from rosmo.sharding import make_mesh, mesh_shape

_MOST_CPU_DEVICES = 4  # a batch of 128 in more parts than this is all overhead


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    add_configuration(parser)
    parser.add_argument("--run", dest="folder", type=Path, help="the run's folder (default: one below runs/)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run that was stopped")
    parser.add_argument("--seed", type=as_seed, help="of parameters and batches (default: 0)")
    parser.add_argument("--seeds", type=int, help="train this many seeds, one on each core at a time")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="where collected data is kept")
    parser.add_argument(
        "--mesh", help="data=8 splits batches over devices, data=4,model=2 the state too (default: data=all)"
    )
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0 of several, or: auto")
    parser.add_argument("--num-processes", type=int, metavar="N", help="that train this run together")
    parser.add_argument("--process-id", type=int, metavar="I", help="which of them this is, from 0")
    parser.add_argument("--wandb", metavar="PROJECT", help="log to Weights & Biases too")


def run(args: argparse.Namespace) -> None:
    """Begins a run, or goes on with one."""
    with hosts.ending_together():
        _run(args)


def _run(args: argparse.Namespace) -> None:
    known = _resumed(args) if args.resume else {}
    _prepare_devices(args, args.mesh or known.get("mesh"))
    folder = RunFolder(args.resume) if args.resume else _begin(args)
    if folder.read_settings().get("seeds"):
        label = f"{folder.path.name}, {len(seed_folders(folder))} seeds"
        pool.train_all(seed_folders(folder), label, f"rosmo train --resume {folder.path}")
    else:
        train_folder(folder, args.mesh)
    if not hosts.is_first():
        return
    training, _ = open_run(folder)
    draw(folder, training)
    for each in seed_folders(folder):
        result = each.read_result()
        sampled, greedy = np.mean(result.sampled), np.mean(result.greedy)
        print(f"{each.path}: return {sampled:.2f} (greedy {greedy:.2f}) after {result.step:,} updates")
    print(f"learning curve: {folder.curve}")


def _prepare_devices(args: argparse.Namespace, mesh: str | None) -> None:
    """Joins the other processes, if there are any, and has a CPU stand for as many devices as are needed."""
    if not args.coordinator and (args.num_processes, args.process_id) != (None, None):
        raise ValueError("--num-processes and --process-id go with --coordinator HOST:PORT")
    if args.coordinator and args.seeds:
        raise ValueError("--seeds trains each seed in a process of its own: leave out --coordinator")
    needed = math.prod(mesh_shape(mesh).values()) // (args.num_processes or 1) if mesh else _cpu_devices()
    simulate_devices(needed)
    if args.coordinator:
        hosts.join(args.coordinator, args.num_processes, args.process_id)


def train_folder(folder: RunFolder, mesh: str | None = None) -> None:
    """Trains the run that a folder describes, from wherever it stands, on its own mesh or another one."""
    training, settings = open_run(folder)
    devices = make_mesh(mesh_shape(mesh or settings.get("mesh", "data=1")))
    steps = load_data(training, Path(settings["data_dir"]))
    if settings["data"] not in (None, checksum(steps)):
        raise ValueError(
            f"the data has changed since {folder.path} was begun: it was {settings['data']}, and is now "
            f"{checksum(steps)}; bring it back, or begin a new run"
        )

    def keep_config(row: dict) -> None:
        folder.operative_config.write_text(gin.operative_config_str())

    listeners: list[Callable[[dict], None]] = []
    if hosts.is_first():
        listeners += [keep_config, tensorboard(folder.path)]
        listeners += [wandb(settings["wandb"], folder.path)] if settings["wandb"] else []
    try:
        with folder.held() if hosts.is_first() else contextlib.nullcontext():
            train(training, steps, folder, seed=settings["seed"], listeners=tuple(listeners), mesh=devices)
    except Interrupted as stop:
        if hosts.is_first():
            draw(folder, training)
        raise KeyboardInterrupt(f"{stop}; go on with: rosmo train --resume {folder.path}") from stop
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        raise ConnectionError(
            f"process {jax.process_index()} of {jax.process_count()} lost another one "
            f"({str(error).splitlines()[0][:200]}): start all of them again with --resume {folder.path}"
        ) from error


def draw(folder: RunFolder, training: Training) -> None:
    """Draws the learning curve of a run."""
    reference = envs.references.get(training.environment)
    rows = [each.metrics.rows() for each in seed_folders(folder)]
    top = reference.online if reference else None
    learning_curve(rows, folder.curve, title=folder.path.name, top=top)


def _resumed(args: argparse.Namespace) -> dict:
    """The settings of the run that is to go on; nothing else may be asked for with it."""
    others = ("configs", "bind", "imports", "folder", "seed", "seeds", "wandb")
    if asked := [name for name in others if getattr(args, name)]:
        raise ValueError(f"--resume goes on with a run as it was begun: leave out {', '.join(asked)}")
    return RunFolder(args.resume).read_settings()


def _begin(args: argparse.Namespace) -> RunFolder:
    """Checks everything that can be checked, then makes the run's folder (and one for each seed)."""
    names = args.configs or DEFAULT_CONFIGS
    if not 0 <= (args.seed or 0) < 2**30:
        raise ValueError(f"--seed must lie between 0 and 2³⁰, got {args.seed}")
    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    training = load_configuration(names, args.bind, args.imports)
    folder = RunFolder(args.folder or Path("runs") / _default_name(names, training))
    hosts.first_alone(lambda: _make(args, training, folder), "begin")
    return folder


def _make(args: argparse.Namespace, training: Training, folder: RunFolder) -> None:
    """Makes the folder of a run, if an update can be traced on its data."""
    text, agent = gin.config_str(), training.build_agent()
    most = _most_devices(training.learner(agent).batch_size) if args.seeds is None else 1
    mesh = args.mesh or f"data={most}"
    learner = training.learner(agent, mesh=make_mesh(mesh_shape(mesh)))
    if folder.exists():
        raise FileExistsError(
            f"{folder.path} holds a run already: go on with it by --resume {folder.path}, or choose another "
            "folder with --run"
        )
    refuse_unwritable(folder.settings)
    common = {
        "imports": resolved_imports(args.imports),
        "data_dir": str(args.data_dir.resolve()),
        "wandb": args.wandb,
    }
    steps = load_data(training, args.data_dir)
    training.rehearse(learner, steps)
    common |= {"data": checksum(steps), "mesh": mesh}
    print(f"training on {common['data']}", file=sys.stderr)
    first = args.seed or 0
    if args.seeds is None:
        folder.begin(text, common | {"seed": first})
        return
    for seed in range(args.seeds):
        seed_folder(folder.path, seed).begin(text, common | {"seed": first + seed})
    folder.begin(text, common | {"seeds": args.seeds})


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
