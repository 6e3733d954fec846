"""Which checkpoint of a run to deploy: each is scored as it is saved, and the best by a criterion is kept."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax

from rosmo.agents import Agent, Remembers
from rosmo.data import DataSet
from rosmo.evaluate.selection import Judge, choose_steps, ranked_by
from rosmo.learner import Learner, TrainState
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.criteria import RETURN, refuse_unjudgeable
from rosmo.runs.folder import RunFolder
from rosmo.runs.metrics import Row
from rosmo.runs.training import Training
from rosmo.types import Params, Trajectory

COLUMN = "select/"  # before the name of a criterion, in the table of metrics
_MOST = 100_000  # steps of the data that judge


class Best(NamedTuple):
    """A checkpoint, and what it was chosen by."""

    step: int
    score: float


class Selector:
    """Scores the policy of a run whenever a checkpoint of it is saved.

    Args:
        training: says by which criteria.
        agent: whose policy it is.
        steps: the data that judges.
        seed: of the judge.
    """

    def __init__(self, training: Training, agent: Agent | Remembers, steps: DataSet, seed: int):
        self._criteria, self._agent = training.criteria, agent
        self._judge = None
        if set(self._criteria) - {RETURN}:
            self._judge = build_judge(training, steps, updates=training.select_updates, seed=seed)

    def row(self, params: Params, row: Row) -> dict[str, float]:
        """Returns what is added to a row of metrics; the mean return is the row's own."""
        found = {RETURN: float(row["return"])} if RETURN in self._criteria else {}
        if self._judge is not None:
            judged = self._judge(self._agent, params)
            found |= {name: judged.estimate(name) for name in self._criteria if name != RETURN}
        return {f"{COLUMN}{name}": found[name] for name in self._criteria}


def best_of(rows: Sequence[Row]) -> dict[str, Best]:
    """Returns the best checkpoint by each criterion in a run's table; the earliest of equals."""
    found: dict[str, Best] = {}
    for row in rows:
        for column in [name for name in row if name.startswith(COLUMN)]:
            name = column.removeprefix(COLUMN)
            one = Best(int(row["step"]), float(row[column]))
            if name not in found or ranked_by(name, one.score) > ranked_by(name, found[name].score):
                found[name] = one
    return found


def step_of(folder: RunFolder, step: int | str | None) -> int | None:
    """Returns the step that is asked for: itself, or the best by a criterion that the run was selected by."""
    if not isinstance(step, str):
        return step
    if step.isdecimal():
        return int(step)
    if step not in (best := best_of(folder.metrics.rows())):
        there = f"there are: {', '.join(best)}" if best else "give an update, or train with select_by"
        raise ValueError(f"no checkpoint of {folder.path} was selected by {step!r}; {there}")
    return best[step].step


def results_of_best(
    folder: RunFolder,
    learner: Learner,
    like: TrainState,
    score: Callable[[Params], Mapping[str, Any]],
) -> dict[str, Any]:
    """Returns, by criterion, which checkpoint is the best, and what scores it as the run's end is scored."""
    best, found, scores = best_of(folder.metrics.rows()), {}, {}
    if not best:  # as of several processes, which would all have to open the checkpoints
        return {}
    with contextlib.closing(Checkpoints(folder.checkpoints)) as checkpoints:
        for name, (step, value) in best.items():
            if step not in scores:
                scores[step] = dict(score(learner.gather(checkpoints.restore(like, step).params)))
            found[name] = {"step": step, "score": value, **scores[step]}
    return {"selected": found}


def build_judge(training: Training, steps: DataSet, *, updates: int, seed: int, most: int = _MOST) -> Judge:
    """Returns what judges policies by data, with networks as a training has them.

    Args:
        training: whose networks the clone of the data's policy and each Q have.
        steps: the data.
        updates: of each Q.
        seed: of everything that is random.
        most: steps of the data to use, in whole episodes.
    """
    refuse_unjudgeable(training, steps)
    shape, actions = training.spaces()
    # The networks as this configuration has them: gin may know another by the time that one is needed.
    spaces = {"observation_shape": shape, "num_actions": actions}
    initial = training.model(jax.random.key(seed), **spaces)
    if initial.ensemble > 1:  # a clone and a Q ask for no bound
        initial = training.model(jax.random.key(seed), ensemble=1, **spaces)
    return Judge(
        choose_steps(cast(Trajectory, steps), most, seed),
        model=lambda _: initial,
        num_actions=actions,
        updates=updates,
        seed=seed,
    )
