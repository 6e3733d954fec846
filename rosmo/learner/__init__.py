"""Training: the state and its layout over a mesh, the update, kept targets, the optimizer."""

from rosmo.learner.kept_targets import Source
from rosmo.learner.learner import Learner
from rosmo.learner.optimizer import adamw
from rosmo.learner.sharding import make_mesh
from rosmo.learner.state import TrainState

__all__ = ["Learner", "Source", "TrainState", "adamw", "make_mesh"]
