"""Improvement operators: add one as a file here, or register one of your own from anywhere."""

from rosmo.operators.base import Improvement, Operator, look_ahead, registry
from rosmo.operators.cmpo import cmpo
from rosmo.operators.gumbel import gumbel
from rosmo.operators.mcts import mcts
from rosmo.operators.mcts_q import mcts_q
from rosmo.operators.mpo import mpo
from rosmo.operators.one_step import one_step
from rosmo.operators.prior import prior
from rosmo.operators.regularized import regularized
from rosmo.operators.sampled_one_step import sampled_one_step
from rosmo.operators.smc import smc

register = registry.register
get = registry.get
names = registry.names

__all__ = [
    "Improvement",
    "Operator",
    "cmpo",
    "get",
    "gumbel",
    "look_ahead",
    "mcts",
    "mcts_q",
    "mpo",
    "names",
    "one_step",
    "prior",
    "register",
    "registry",
    "regularized",
    "sampled_one_step",
    "smc",
]
