"""Improvement operators: add one as a file here, or register one of your own from anywhere."""

from rosmo.operators.base import Improvement, Operator, look_ahead, registry
from rosmo.operators.mcts import mcts
from rosmo.operators.mcts_q import mcts_q
from rosmo.operators.one_step import one_step
from rosmo.operators.prior import prior
from rosmo.operators.sampled_one_step import sampled_one_step

register = registry.register
get = registry.get
names = registry.names

__all__ = [
    "Improvement",
    "Operator",
    "get",
    "look_ahead",
    "mcts",
    "mcts_q",
    "names",
    "one_step",
    "prior",
    "register",
    "registry",
    "sampled_one_step",
]
