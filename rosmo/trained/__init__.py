"""Trained agents outside of their runs: loaded into programs, and given away."""

from rosmo.trained.loading import load
from rosmo.trained.weights import save

__all__ = ["load", "save"]
