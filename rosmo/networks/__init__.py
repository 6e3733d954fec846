"""Networks of the latent model: add one as a file here, registered under its name."""

from rosmo.networks.base import (
    AbstractDynamics,
    AbstractPrediction,
    AbstractRepresentation,
    Networks,
    registry,
)
from rosmo.networks.conv import conv
from rosmo.networks.mlp import mlp
from rosmo.networks.resnet import resnet

register = registry.register
get = registry.get
names = registry.names

__all__ = [
    "AbstractDynamics",
    "AbstractPrediction",
    "AbstractRepresentation",
    "Networks",
    "conv",
    "get",
    "mlp",
    "names",
    "register",
    "registry",
    "resnet",
]
