"""Agents playing, the scores they get, and films of them; and what data says of them.

The room is a function too: `rosmo.evaluate(trained, environment)` is its `evaluate`.
"""

import sys
from types import ModuleType
from typing import Any

from rosmo.evaluate.held_out import HeldOut
from rosmo.evaluate.playing import Evaluator
from rosmo.evaluate.policies import action_probabilities
from rosmo.evaluate.scores import Scores, summarise
from rosmo.evaluate.selection import Judge, Judgement
from rosmo.evaluate.trained import Played, evaluate
from rosmo.evaluate.worlds import HeldOutWorld

__all__ = [
    "Evaluator",
    "HeldOut",
    "HeldOutWorld",
    "Judge",
    "Judgement",
    "Played",
    "Scores",
    "action_probabilities",
    "evaluate",
    "summarise",
]


class _Callable(ModuleType):
    """A module that can be called.

    Python puts the module `rosmo.evaluate` where `rosmo` would have the function of that name, as soon as
    anything imports it: one of the two had to be both. A module may be given a class (PEP 562's neighbour, in
    the reference of Python's data model), and calls look there.
    """

    def __call__(self, *args: Any, **settings: Any) -> Played:
        return evaluate(*args, **settings)


sys.modules[__name__].__class__ = _Callable
