"""Offline reinforcement learning with a learned latent model, as parts that compose."""

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
    sharding,
    types,
)
from rosmo.codec import Codec
from rosmo.learner import Learner, TrainState, adamw
from rosmo.model import LatentModel, latent_model
from rosmo.types import Trajectory

__version__ = "0.1.0"

__all__ = [
    "Codec",
    "LatentModel",
    "Learner",
    "TrainState",
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
]
