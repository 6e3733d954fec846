"""Offline reinforcement learning with a learned latent model, as parts that compose."""

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rosmo import (
        agents,
        codec,
        data,
        learner,
        model,
        networks,
        operators,
        registry,
        regularizers,
        types,
        worlds,
    )
    from rosmo.agents import TrainedAgent
    from rosmo.codec import Codec
    from rosmo.evaluate import evaluate as evaluate
    from rosmo.learner import Learner, TrainState, adamw, sharding
    from rosmo.model import LatentModel, latent_model
    from rosmo.trained import load as load
    from rosmo.trained import save as save
    from rosmo.types import Trajectory

__version__ = "0.1.0"

__all__ = [
    "Codec",
    "LatentModel",
    "Learner",
    "TrainState",
    "TrainedAgent",
    "Trajectory",
    "adamw",
    "agents",
    "codec",
    "data",
    "latent_model",
    "learner",
    "model",
    "networks",
    "operators",
    "registry",
    "regularizers",
    "sharding",
    "types",
    "worlds",
]

_NAMES = {
    "Codec": "rosmo.codec",
    "LatentModel": "rosmo.model",
    "Learner": "rosmo.learner",
    "TrainState": "rosmo.learner",
    "TrainedAgent": "rosmo.agents",
    "Trajectory": "rosmo.types",
    "adamw": "rosmo.learner",
    "latent_model": "rosmo.model",
}
# What needs the `run` extra, and therefore does not come with `from rosmo import *`.
_WITH_RUN = {"evaluate": "rosmo.evaluate", "load": "rosmo.trained", "save": "rosmo.trained"}
# Modules by the names that they had before they got a room.
_MOVED = {
    "rosmo.cache": "rosmo.learner.kept_targets",
    "rosmo.commands.listeners": "rosmo.runs.listeners",
    "rosmo.commands.pool": "rosmo.experiments.pool",
    "rosmo.commands.workload": "rosmo.experiments.workload",
    "rosmo.data.rlds.atomic": "rosmo.data.files",
    "rosmo.disk": "rosmo.data.files",
    "rosmo.dqn": "rosmo.collect.dqn",
    "rosmo.frames": "rosmo.data.stacking",
    "rosmo.optimizer": "rosmo.learner.optimizer",
    "rosmo.policies": "rosmo.collect.policies",
    "rosmo.report.compute": "rosmo.costs.compute",
    "rosmo.report.flops": "rosmo.costs.flops",
    "rosmo.report.hlo": "rosmo.costs.hlo",
    "rosmo.report.speed": "rosmo.costs.speed",
    "rosmo.sharding": "rosmo.learner.sharding",
    "rosmo.tpu": "rosmo.costs.tpu",
    "rosmo.video": "rosmo.evaluate.film",
    "rosmo.worlds.frozen": "rosmo.networks.frozen",
}


def __getattr__(name: str) -> Any:
    """Imports a room or a name when it is first asked for, so that the command line starts at once."""
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
    elif name in _WITH_RUN:
        value = _with_run(name)
    elif name in __all__ or f"rosmo.{name}" in _MOVED:
        value = importlib.import_module(f"rosmo.{name}")
    else:
        raise AttributeError(f"module 'rosmo' has no attribute {name!r}")
    globals()[name] = value
    return value


def _with_run(name: str) -> Any:
    try:
        room = importlib.import_module(_WITH_RUN[name])
    except ModuleNotFoundError as error:
        raise ImportError(f'rosmo.{name} needs more packages: pip install "rosmo[run]" ({error})') from error
    return room if room.__name__ == f"rosmo.{name}" else getattr(room, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_WITH_RUN})


class _Moved(MetaPathFinder, Loader):
    """Has the former name of a module stand for the module itself, not for a second copy of it."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in _MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_MOVED[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # Python has just put the former name's there


sys.meta_path.append(_Moved())
