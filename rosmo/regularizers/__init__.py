"""Regularizers: add one as a file here, or register one of your own from anywhere."""

from rosmo.regularizers.base import Positions, Regularizer, log_probability, registry
from rosmo.regularizers.behavior import behavior
from rosmo.regularizers.behavior_exp import behavior_exp

register = registry.register
get = registry.get
names = registry.names

__all__ = [
    "Positions",
    "Regularizer",
    "behavior",
    "behavior_exp",
    "get",
    "log_probability",
    "names",
    "register",
    "registry",
]
