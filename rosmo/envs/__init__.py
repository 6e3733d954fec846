"""Environments by name: register one of your own from anywhere, and add its reference scores."""

try:
    import dm_env  # noqa: F401
except ImportError as error:
    raise ImportError('environments need dm_env: pip install "rosmo[run]"') from error

from rosmo.envs.atari import Atari, is_atari
from rosmo.envs.base import Reference, get, make, normalised_or_none, normalised_score, references, registry
from rosmo.envs.bsuite import cartpole, catch, mountain_car
from rosmo.envs.gymnasium import Gymnasium, from_gymnasium
from rosmo.envs.minatar import MinAtar
from rosmo.envs.noise import ActionNoise
from rosmo.envs.specs import number_of_actions, observation_shape

register = registry.register
names = registry.names

__all__ = [
    "ActionNoise",
    "Atari",
    "Gymnasium",
    "MinAtar",
    "Reference",
    "cartpole",
    "catch",
    "from_gymnasium",
    "get",
    "is_atari",
    "make",
    "mountain_car",
    "names",
    "normalised_or_none",
    "normalised_score",
    "number_of_actions",
    "observation_shape",
    "references",
    "register",
    "registry",
]
