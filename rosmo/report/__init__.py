"""Tables and pictures of results."""

from rosmo.costs import Compute, count_flops, update_compute  # which were counted here once
from rosmo.report.curve import learning_curve
from rosmo.report.dataset import draw_dataset
from rosmo.report.diagnosis import draw_diagnosis
from rosmo.report.held_out import held_out_curve
from rosmo.report.results import Evaluation, FirstStage, Key, Missing, Results, Run, Selected
from rosmo.report.write import write

__all__ = [
    "Compute",
    "Evaluation",
    "FirstStage",
    "Key",
    "Missing",
    "Results",
    "Run",
    "Selected",
    "count_flops",
    "draw_dataset",
    "draw_diagnosis",
    "held_out_curve",
    "learning_curve",
    "update_compute",
    "write",
]
