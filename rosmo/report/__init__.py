"""Tables and pictures of training runs."""

from rosmo.report.compute import Compute, update_compute
from rosmo.report.curve import learning_curve
from rosmo.report.flops import count_flops
from rosmo.report.results import Evaluation, Key, Missing, Results, Run
from rosmo.report.write import write

__all__ = [
    "Compute",
    "Evaluation",
    "Key",
    "Missing",
    "Results",
    "Run",
    "count_flops",
    "learning_curve",
    "update_compute",
    "write",
]
