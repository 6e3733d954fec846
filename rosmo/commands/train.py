"""Trains an agent on a data set and evaluates it, in an environment or by held-out episodes of the data."""

import argparse
import contextlib
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import gin
import jax
import numpy as np

from rosmo import configs, envs
from rosmo.commands.shared import (
    DEFAULT_CONFIGS,
    add_configuration,
    add_consent,
    as_seed,
    consent,
    load_configuration,
    load_data,
    load_kept_data,
    simulate_devices,
    with_spaces,
)
from rosmo.commands.worlds import in_its_world
from rosmo.configs import Consent, open_run
from rosmo.data.files import refuse_unwritable
from rosmo.experiments import pool
from rosmo.learner.sharding import make_mesh, mesh_shape
from rosmo.report import held_out_curve, learning_curve
from rosmo.report.held_out import in_a_line
from rosmo.runs import compiled, hosts
from rosmo.runs.damage import first_line, is_full_disk
from rosmo.runs.datasets import checksum
from rosmo.runs.evaluation import HELD_OUT
from rosmo.runs.folder import MOST_SEEDS, RunFolder, seed_folder, seed_folders
from rosmo.runs.listeners import tensorboard, wandb
from rosmo.runs.naming import default_name
from rosmo.runs.train import Interrupted, train
from rosmo.runs.training import Training

_MOST_CPU_DEVICES = 4  # a batch of 128 in more parts than this is all overhead


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    add_configuration(parser)
    parser.add_argument("--run", dest="folder", type=Path, help="the run's folder (default: one below runs/)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run that was stopped")
    add_consent(parser)
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
    several = (args.coordinator, args.num_processes, args.process_id)
    with compiled.kept(), hosts.ending_together(), hosts.watched(*several) as resumed_by:
        _run(args, resumed_by)


def _run(args: argparse.Namespace, resumed_by: hosts.Resumes) -> None:
    known = _resumed(args) if args.resume else {}
    _prepare_devices(args, args.mesh or known.get("mesh"))
    folder = RunFolder(args.resume) if args.resume else _begin(args)
    folder.refuse_links()
    # The modules of a run that begins here are those that this very command has named and imported.
    allowed = consent(args) if args.resume else Consent(trust=True)
    if folder.read_settings().get("seeds"):
        label = f"{folder.path.name}, {len(seed_folders(folder))} seeds"
        updates = {each: open_run(each, allowed)[0].num_updates for each in seed_folders(folder)}
        pool.train_all(updates, label, _resume_command(folder), _as_arguments(allowed))
    else:
        resumed_by(_resume_command(folder))
        train_folder(folder, allowed, args.mesh)
    if not hosts.is_first():
        return
    training, _ = open_run(folder, allowed)
    with _explained(folder, training):
        draw(folder, training)
    for each in seed_folders(folder):
        result = each.read_result()
        if result.held_out is None:
            sampled, greedy = np.mean(result.sampled), np.mean(result.greedy)
            score = f"return {sampled:.2f} (greedy {greedy:.2f})"
        else:
            score = in_a_line(result.held_out)
        print(f"{each.path}: {score} after {result.step:,} updates")
    print(f"learning curve: {folder.curve}")


def _resume_command(folder: RunFolder) -> str:
    """The command line that goes on with a run."""
    return f"rosmo train --resume {folder.path}" + " --trust" * bool(folder.read_settings()["imports"])


def _as_arguments(allowed: Consent) -> list[str]:
    """What a process of its own is to be told of what is allowed."""
    imports = [word for module in allowed.imports for word in ("--import", module)]
    return ["--trust"] * allowed.trust + imports


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


def train_folder(folder: RunFolder, allowed: Consent, mesh: str | None = None) -> None:
    """Trains the run that a folder describes, from wherever it stands, on its own mesh or another one."""
    training, settings = open_run(folder, allowed)
    devices = make_mesh(mesh_shape(mesh or settings.get("mesh", "data=1")))
    steps = load_kept_data(training, folder)

    def keep_config(row: dict) -> None:
        folder.operative_config.write_text(gin.operative_config_str())

    listeners: list[Callable[[dict], None]] = []
    if hosts.is_first():
        listeners += [keep_config, tensorboard(folder.path)]
        listeners += [wandb(settings["wandb"], folder.path)] if settings["wandb"] else []
    held = folder.held() if hosts.is_first() else contextlib.nullcontext()
    known = {"seed": settings["seed"], "world": settings.get("world")}
    with _explained(folder, training), held:
        train(training, steps, folder, listeners=tuple(listeners), mesh=devices, **known)


@contextlib.contextmanager
def _explained(folder: RunFolder, training: Training) -> Iterator[None]:
    """Says of a run that was cut short what is kept of it, and how to go on."""
    resume = _resume_command(folder)
    try:
        yield
    except Interrupted as stop:
        if hosts.is_first():
            with contextlib.suppress(OSError):  # of a disk without room, of which the next row would say more
                draw(folder, training)
        raise KeyboardInterrupt(f"{stop}; go on with: {resume}") from stop
    except Exception as error:
        folder.refuse_gone()  # which whatever was being written just then says in words of its own
        if is_full_disk(error):
            raise OSError(
                f"there is no room left to write to {folder.path} ({first_line(error)}): make some, and go "
                f"on from the last whole checkpoint with: {resume}"
            ) from error
        if isinstance(error, jax.errors.JaxRuntimeError) and jax.process_count() > 1:
            raise ConnectionError(
                f"process {jax.process_index()} of {jax.process_count()} lost another one "
                f"({first_line(error)}): start all of them again with --resume {folder.path}"
            ) from error
        raise


def draw(folder: RunFolder, training: Training) -> None:
    """Draws the learning curve of a run."""
    rows = [each.metrics.rows() for each in seed_folders(folder)]
    if training.environment is None or any(f"{HELD_OUT}loss" in row for each in rows for row in each):
        finished = [each.read_result() for each in seed_folders(folder) if each.finished()]
        held_out_curve(rows, [result.held_out for result in finished], folder.curve, title=folder.path.name)
        return
    reference = envs.references.get(training.environment or "")
    top = reference.online if reference else None
    learning_curve(rows, folder.curve, title=folder.path.name, top=top)


def _resumed(args: argparse.Namespace) -> dict:
    """The settings of the run that is to go on; nothing else may be asked for with it."""
    others = ("configs", "bind", "folder", "seed", "seeds", "wandb")
    if asked := [name for name in others if getattr(args, name)]:
        raise ValueError(f"--resume goes on with a run as it was begun: leave out {', '.join(asked)}")
    folder = RunFolder(args.resume)
    if folder.weights.exists():
        raise ValueError(
            f"{folder.path} holds an agent that was exported, without the state that training would go on "
            "from"
        )
    return folder.read_settings()


def _begin(args: argparse.Namespace) -> RunFolder:
    """Checks everything that can be checked, then makes the run's folder (and one for each seed)."""
    names = args.configs or DEFAULT_CONFIGS
    if not 0 <= (args.seed or 0) < 2**30:
        raise ValueError(f"--seed must lie between 0 and 2³⁰, got {args.seed}")
    if args.seeds is not None and not 1 <= args.seeds <= MOST_SEEDS:
        raise ValueError(f"--seeds must lie between 1 and {MOST_SEEDS:,}, got {args.seeds}")
    training = load_configuration(names, args.bind, args.imports)
    name = default_name(names, args.bind, training, args.seed or 0, args.seeds)
    folder = RunFolder(args.folder or Path("runs") / name)
    hosts.first_alone(lambda: _make(args, names, training, folder), "begin")
    return folder


def _make(args: argparse.Namespace, names: Sequence[str], training: Training, folder: RunFolder) -> None:
    """Makes the folder of a run, if an update can be traced on its data."""
    if folder.exists():
        raise FileExistsError(
            f"{folder.path} holds a run already: go on with it by --resume {folder.path}, or choose another "
            "folder with --run"
        )
    refuse_unwritable(folder.settings)
    again = shlex.join(["rosmo", *sys.argv[1:]])
    training, known = in_its_world(names, args.bind, args.imports, args.data_dir, again)
    steps = None
    if training.environment is None:
        steps = load_data(training, args.data_dir)
        training = with_spaces(training, steps)
    text, agent = gin.config_str(), training.build_agent()
    most = _most_devices(training.learner(agent).batch_size) if args.seeds is None else 1
    mesh = args.mesh or f"data={most}"
    learner = training.learner(agent, mesh=make_mesh(mesh_shape(mesh)))
    common = {
        "data_dir": str(args.data_dir.resolve()),
        "wandb": args.wandb,
        **known,
    }
    steps = load_data(training, args.data_dir) if steps is None else steps
    training.rehearse(learner, steps)
    common |= {"data": checksum(steps), "mesh": mesh}
    print(f"training on {common['data']}", file=sys.stderr)
    first, modules = args.seed or 0, configs.sources(args.imports)
    if args.seeds is None:
        folder.begin(text, common | {"seed": first}, modules)
        return
    for seed in range(args.seeds):
        seed_folder(folder.path, seed).begin(text, common | {"seed": first + seed}, modules)
    folder.begin(text, common | {"seeds": args.seeds}, modules)


def _cpu_devices() -> int:
    return min(_MOST_CPU_DEVICES, len(os.sched_getaffinity(0)))


def _most_devices(batch_size: int) -> int:
    """Returns the most devices that a batch divides over."""
    return max(count for count in range(1, len(jax.devices()) + 1) if batch_size % count == 0)
