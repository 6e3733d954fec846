"""The loop of a training run: updates, periodic evaluation, and a folder that can be resumed exactly."""

import dataclasses
import functools
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import jax
import numpy as np

from rosmo.agents import Agent
from rosmo.data import DataSet
from rosmo.learner import Learner, TrainState
from rosmo.runs import clock, hosts
from rosmo.runs.advancing import Advance, advancer
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.evaluation import Evaluation, build_evaluation, is_world
from rosmo.runs.folder import RunFolder
from rosmo.runs.progress import show
from rosmo.runs.selecting import Selector, best_of, results_of_best
from rosmo.runs.training import Training
from rosmo.runs.worlds import furnished, keep_world

_EVALUATION_SEED = 2**30  # seeds of evaluations count from here, apart from those of training


class Interrupted(Exception):
    """A run that was stopped, with its state saved."""


def train(
    training: Training,
    steps: DataSet,
    folder: RunFolder,
    *,
    seed: int,
    listeners: tuple[Callable[[dict], None], ...] = (),
    world: str | None = None,
    **learner_settings: Any,
) -> TrainState:
    """Trains from the newest checkpoint of `folder`, or from the beginning, to the last update.

    The same seed gives the same parameters, through any number of stops: everything random hangs on the seed
    and the step, and calls to the learner begin at the same steps. Of several processes all call this, each
    with all of the data, of which it uses the windows of its own devices; the first writes metrics and
    evaluates.

    Args:
        training: what to do.
        steps: the data set, `[N]`, episodes one after the other, or a store of it on disk; of what does not
            play, in an environment, a share of its episodes is held out.
        folder: where metrics and checkpoints go.
        seed: of parameters, batches and evaluations.
        listeners: called with each row of metrics.
        world: what the world that the training names is recognised by, if it was pinned.
        **learner_settings: passed on to the learner, such as its `mesh`.
    """
    with _stop_signals() as stopped:
        return _train(training, steps, folder, seed, listeners, world, learner_settings, stopped)


def _train(
    training: Training,
    steps: DataSet,
    folder: RunFolder,
    seed: int,
    listeners: tuple[Callable[[dict], None], ...],
    world: str | None,
    learner_settings: dict[str, Any],
    stopped: list[int],
) -> TrainState:
    agent = training.build_agent()
    training.check(agent, steps)
    steps, held_out = training.divided(agent, steps)
    checkpoints = Checkpoints(folder.checkpoints, keep=training.keep)
    resumed = checkpoints.latest is not None
    if not resumed:  # a checkpoint has the world in it
        agent = furnished(agent, training, steps, world)
    learner = training.learner(agent, **learner_settings)
    advance = advancer(training, agent, learner, steps)
    state = learner.init(jax.random.key(seed))
    if resumed:
        state = checkpoints.restore(state)
    if hosts.is_first():
        # Before its first checkpoint a run begins anew, with its very first row.
        if not resumed and folder.metrics.rows():
            print(f"rosmo: {folder.path} has no checkpoint: the run begins anew", file=sys.stderr)
        folder.metrics.truncate(int(state.step) if resumed else -1)
        _mention_lost_rows(training, folder, int(state.step) if resumed else -1)
    evaluation = build_evaluation(training, agent, held_out)
    try:
        selector = Selector(training, cast(Agent, agent), steps, seed) if training.criteria else None
        loop = _Loop(training, learner, advance, evaluation, selector, checkpoints, folder, seed, listeners)
        state = loop.run(state, stopped)
    finally:
        checkpoints.close()
    params = learner.gather(state.params)
    if hosts.is_first():
        score = functools.partial(evaluation.result, seed=_EVALUATION_SEED - 1 - seed)
        result = score(params) | results_of_best(folder, learner, state, score)
        if is_world(agent):
            keep_world(folder.path, params)
        folder.finish({"step": int(state.step), **result})
    hosts.wait_for_all("end")
    return state


@dataclasses.dataclass(frozen=True)
class _Loop:
    """The steps between two rows of metrics, repeated."""

    training: Training
    learner: Learner
    advance: Advance
    evaluation: Evaluation
    selector: Selector | None
    checkpoints: Checkpoints
    folder: RunFolder
    seed: int
    listeners: tuple[Callable[[dict], None], ...]

    def run(self, state: TrainState, stopped: list[int]) -> TrainState:
        total, step = self.training.num_updates, int(state.step)
        seconds = clock.seconds_trained(self.folder.metrics.rows())
        progress = show(total, self.training.label, unit="updates", done=step, quiet=not hosts.is_first())
        try:
            if step == 0:
                self._log({"step": 0, "seconds": seconds, **self._evaluate(state, 0)})
            done = step == total or self._out_of_time(seconds)
            while not done:
                count = min(self.training.log_every, total - step)
                state, row = self._updates(state, count)
                self._refuse_not_finite(state, row, count)
                step += count
                seconds += row.pop("took")
                row["seconds"] = seconds
                done = step == total or self._out_of_time(seconds)
                due = step % self.training.checkpoint_every == 0 or done
                if step % self.training.eval_every == 0 or done:
                    row |= self._evaluate(state, step)
                if due and self.selector:
                    row |= self.selector.row(self.learner.gather(state.params), row)
                self._log(row)
                note = self.evaluation.note(row)
                left = self._seconds_left(total - step, row)
                progress.advance(count, f"loss {row['loss']:.3f}" + (f", {note}" if note else ""), left)
                stop = hosts.any_process(bool(stopped))
                if due or stop:
                    best = best_of(self.folder.metrics.rows()) if self.selector else {}
                    self.checkpoints.save(state, chosen=[one.step for one in best.values()])
                if stop and not done:
                    raise Interrupted(f"stopped after {step:,} of {total:,} updates, which are saved")
        finally:
            progress.close()
        return state

    def _updates(self, state: TrainState, count: int) -> tuple[TrainState, dict[str, float | int]]:
        start, started = time.perf_counter(), clock.now()
        state, metrics = self.advance(state, count)
        means = {name: float(np.mean(values)) for name, values in jax.device_get(metrics).items()}
        took, rate = clock.now() - started, count / (time.perf_counter() - start)
        return state, {"step": int(state.step), "updates_per_second": rate, "took": took, **means}

    def _out_of_time(self, seconds: float) -> bool:
        """Whether any process has trained for as long as the run may: all of them then end together."""
        most = self.training.max_seconds
        return most is not None and hosts.any_process(seconds >= most)

    def _seconds_left(self, updates: int, row: dict[str, float | int]) -> float | None:
        if self.training.max_seconds is None:
            return None
        return min(self.training.max_seconds - row["seconds"], updates / row["updates_per_second"])

    def _refuse_not_finite(self, state: TrainState, row: dict[str, float | int], count: int) -> None:
        """Ends the run before a state is played or saved that it could never go on from."""
        kept = self.checkpoints.latest
        kept = "no checkpoint was saved yet" if kept is None else f"the checkpoint of update {kept:,} is kept"
        if not np.isfinite(row["loss"]):
            raise FloatingPointError(
                f"the loss is {row['loss']} in the {count} updates before {int(state.step):,}: lower "
                f"learning_rate, or look for extreme values in the data; {kept}"
            )
        try:
            self.learner.refuse_not_finite(state)
        except FloatingPointError as error:
            raise FloatingPointError(f"{error}; {kept}") from None

    def _evaluate(self, state: TrainState, step: int) -> dict[str, float | int]:
        params, row = self.learner.gather(state.params), {}
        if hosts.is_first():
            row = self.evaluation.row(params, _EVALUATION_SEED + self.seed + step)
        hosts.wait_for_all(f"evaluation_{step}")
        return row

    def _log(self, row: dict[str, float | int]) -> None:
        if not hosts.is_first():
            return
        self.folder.refuse_gone()
        self.folder.metrics.append(row)
        for listener in self.listeners:
            listener(row)


def _mention_lost_rows(training: Training, folder: RunFolder, step: int) -> None:
    """Says which rows a table lacks that the run had logged before the state that it goes on from."""
    if lost := folder.metrics.missing(step, training.log_every):
        which = ", ".join(f"{row:,}" for row in lost[:5]) + ", …" * (len(lost) > 5)
        print(
            f"rosmo: {folder.metrics.path} has lost the rows of {len(lost)} updates ({which}): the run goes "
            "on without them",
            file=sys.stderr,
        )


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Notes the first Ctrl-C or SIGTERM, so that a run stops at its next row; a second one stops it hard."""
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        received.append(number)
        for caught in before:
            signal.signal(caught, before[caught])

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
