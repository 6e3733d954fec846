"""A training run: data, learner, periodic evaluation, and a folder that can be resumed exactly."""

import dataclasses
import functools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rosmo import envs
from rosmo.agents import Agent
from rosmo.data import DataSet, FrameStore, HostSampler, StoreSampler, window_sampler
from rosmo.data.windows import checked_steps
from rosmo.evaluate import Evaluator, summarise
from rosmo.learner import Learner, TrainState
from rosmo.model import latent_model
from rosmo.runs import hosts
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.folder import RunFolder
from rosmo.runs.progress import show
from rosmo.types import Keys, Metrics, Params, refuse_counts

_EVALUATION_SEED = 2**30  # seeds of evaluations count from here, apart from those of training


@dataclasses.dataclass(frozen=True)
class Training:
    """What to train, on what, and for how long.

    Args:
        environment: registered name; the agent is evaluated there, without noise.
        agent: builds the agent from what builds its model.
        model: builds a model from a key, an observation shape and a number of actions.
        learner: builds the learner from an agent.
        noise: probability that an action was replaced while the data was collected.
        data: RLDS directory, store of frames, or `minari:ID`; where not given, data of `environment` is
            collected once and kept.
        data_seed: seed of the collection, and of the choice of episodes.
        data_fraction: share of the episodes to train on.
        num_updates: updates of the whole run.
        log_every: updates between two rows of metrics; a run that is told to stop goes on to the next.
        eval_every: updates between two evaluations; a multiple of `log_every`.
        eval_episodes: episodes of an evaluation.
        checkpoint_every: updates between two checkpoints; a multiple of `log_every`.
        device_bytes: a data set up to this size is put on the device; a larger one stays in host memory.
        final_episodes: episodes that the trained agent is scored by.
    """

    environment: str
    agent: Callable[..., Agent]
    model: Callable[..., Any] = latent_model
    learner: Callable[..., Learner] = Learner
    noise: float = 0.0
    data: str | None = None
    data_seed: int = 0
    data_fraction: float = 1.0
    num_updates: int = 15_000
    log_every: int = 1_000
    eval_every: int = 1_000
    eval_episodes: int = 32
    checkpoint_every: int = 1_000
    device_bytes: int = 2**31
    final_episodes: int = 100

    def __post_init__(self):
        counts = ("num_updates", "log_every", "eval_every", "eval_episodes", "checkpoint_every")
        refuse_counts(**{name: getattr(self, name) for name in (*counts, "final_episodes")})
        refuse_counts(0, data_seed=self.data_seed)
        for name in ("noise", "data_fraction"):
            if not isinstance(getattr(self, name), int | float):
                raise ValueError(f"{name} must be a number, got {getattr(self, name)!r}")
        if not isinstance(self.data, str | None):
            raise ValueError(f"data must be the path of a data set in quotes, got {self.data!r}")
        for name in ("eval_every", "checkpoint_every"):
            if getattr(self, name) % self.log_every:
                raise ValueError(
                    f"{name} must be a multiple of log_every, got {getattr(self, name)} and {self.log_every}"
                )
        envs.get(self.environment)

    def build_agent(self) -> Agent:
        """Returns the agent for the environment's observations and actions."""
        shape, actions = self.spaces()
        return self.agent(functools.partial(self.model, observation_shape=shape, num_actions=actions))

    def spaces(self) -> tuple[tuple[int, ...], int]:
        """Returns the environment's observation shape and number of actions."""
        environment = envs.make(self.environment, seed=0)
        return envs.observation_shape(environment), envs.number_of_actions(environment)

    def check(self, agent: Agent, steps: DataSet) -> None:
        """Refuses a data set that this cannot be trained on."""
        shape, actions = self.spaces()
        stored = isinstance(steps, FrameStore)
        found = steps.observation_shape if stored else steps.observation.shape[1:]
        if found != shape:
            raise ValueError(
                f"the data set's observations have the shape {list(found)}, those of {self.environment!r} "
                f"{list(shape)}: train on data of the same environment"
            )
        settings = {"window": agent.window, "num_actions": actions}
        StoreSampler(steps, **settings) if stored else checked_steps(steps, **settings)

    def rehearse(self, learner: Learner, steps: DataSet) -> None:
        """Traces an update, so that a setting that cannot work fails before anything is made."""
        self.check(learner.agent, steps)
        batch, window = learner.batch_size, learner.agent.window
        if isinstance(steps, FrameStore):
            one = steps.read(np.zeros(1, np.int64), window)
        else:
            one = jax.tree.map(lambda x: np.broadcast_to(x[:1], (1, window, *x.shape[1:])), steps)
        learner.trace(jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype), one))

    def build_evaluator(self, agent: Agent, episodes: int | None = None) -> Evaluator:
        """Returns what plays the agent in the environment."""

        def make(seed: int) -> Any:
            return envs.make(self.environment, seed=seed)

        return Evaluator(agent, make, episodes=self.eval_episodes if episodes is None else episodes)


class Interrupted(Exception):
    """A run that was stopped, with its state saved."""


def train(
    training: Training,
    steps: DataSet,
    folder: RunFolder,
    *,
    seed: int,
    listeners: tuple[Callable[[dict], None], ...] = (),
    **learner_settings: Any,
) -> TrainState:
    """Trains from the newest checkpoint of `folder`, or from the beginning, to the last update.

    The same seed gives the same parameters, through any number of stops: everything random hangs on the seed
    and the step, and calls to the learner begin at the same steps. Of several processes all call this, each
    with all of the data, of which it uses the windows of its own devices; the first writes metrics and
    evaluates.

    Args:
        training: what to do.
        steps: the data set, `[N]`, episodes one after the other, or a store of it on disk.
        folder: where metrics and checkpoints go.
        seed: of parameters, batches and evaluations.
        listeners: called with each row of metrics.
        **learner_settings: passed on to the learner, such as its `mesh`.
    """
    with _stop_signals() as stopped:
        return _train(training, steps, folder, seed, listeners, learner_settings, stopped)


def _train(
    training: Training,
    steps: DataSet,
    folder: RunFolder,
    seed: int,
    listeners: tuple[Callable[[dict], None], ...],
    learner_settings: dict[str, Any],
    stopped: list[int],
) -> TrainState:
    agent = training.build_agent()
    learner = training.learner(agent, **learner_settings)
    training.check(agent, steps)
    advance = _advancer(training, agent, learner, steps)
    checkpoints = Checkpoints(folder.checkpoints)
    state = learner.init(jax.random.key(seed))
    if checkpoints.latest is not None:
        state = checkpoints.restore(state)
    if hosts.is_first():
        folder.metrics.truncate(int(state.step))
    evaluator = training.build_evaluator(agent)
    loop = _Loop(training, learner, advance, evaluator, checkpoints, folder, seed, listeners)
    try:
        state = loop.run(state, stopped)
    finally:
        checkpoints.close()
    params = learner.gather(state.params)
    if hosts.is_first():
        evaluator = training.build_evaluator(agent, training.final_episodes)
        folder.finish({"step": int(state.step), **play(evaluator, params, _EVALUATION_SEED - 1 - seed)})
    hosts.wait_for_all("end")
    return state


def play(evaluator: Evaluator, params: Params, seed: int) -> dict[str, list[float]]:
    """Returns the returns of an agent by drawn and by greedy actions."""
    return {name: evaluator(params, seed, greedy=name == "greedy").tolist() for name in ("sampled", "greedy")}


@dataclasses.dataclass(frozen=True)
class _Loop:
    """The steps between two rows of metrics, repeated."""

    training: Training
    learner: Learner
    advance: Callable[[TrainState, int], tuple[TrainState, Metrics]]
    evaluator: Evaluator
    checkpoints: Checkpoints
    folder: RunFolder
    seed: int
    listeners: tuple[Callable[[dict], None], ...]

    def run(self, state: TrainState, stopped: list[int]) -> TrainState:
        total, step = self.training.num_updates, int(state.step)
        label = self.training.environment
        progress = show(total, label, unit="updates", done=step, quiet=not hosts.is_first())
        try:
            if step == 0:
                self._log({"step": 0, **self._evaluate(state, 0)})
            while step < total:
                count = min(self.training.log_every, total - step)
                state, row = self._updates(state, count)
                step += count
                if step % self.training.eval_every == 0 or step == total:
                    row |= self._evaluate(state, step)
                self._log(row)
                progress.advance(count, _note(row))
                stop = hosts.any_process(bool(stopped))
                if step % self.training.checkpoint_every == 0 or step == total or stop:
                    self.checkpoints.save(state)
                if stop and step < total:
                    raise Interrupted(f"stopped after {step:,} of {total:,} updates, which are saved")
        finally:
            progress.close()
        return state

    def _updates(self, state: TrainState, count: int) -> tuple[TrainState, dict[str, float | int]]:
        start = time.perf_counter()
        state, metrics = self.advance(state, count)
        means = {name: float(np.mean(values)) for name, values in jax.device_get(metrics).items()}
        seconds = time.perf_counter() - start
        if not np.isfinite(means["loss"]):
            raise FloatingPointError(
                f"the loss is {means['loss']} in the {count} updates before {int(state.step)}: lower "
                "learning_rate, or look for extreme values in the data; earlier checkpoints are kept"
            )
        return state, {"step": int(state.step), "updates_per_second": count / seconds, **means}

    def _evaluate(self, state: TrainState, step: int) -> dict[str, float | int]:
        params, row = self.learner.gather(state.params), {}
        if hosts.is_first():
            seed = _EVALUATION_SEED + self.seed + step
            sampled, greedy = (summarise(self.evaluator(params, seed, greedy=x)) for x in (False, True))
            row = {"return": sampled.mean, "greedy_return": greedy.mean}
            row |= {} if np.isnan(sampled.stderr) else {"return_stderr": sampled.stderr}  # of one episode
            normalised = envs.normalised_or_none(self.training.environment, sampled.mean)
            row |= {} if normalised is None else {"normalised": normalised}
        hosts.wait_for_all(f"evaluation_{step}")
        return row

    def _log(self, row: dict[str, float | int]) -> None:
        if not hosts.is_first():
            return
        self.folder.metrics.append(row)
        for listener in self.listeners:
            listener(row)


def _advancer(
    training: Training, agent: Agent, learner: Learner, steps: DataSet
) -> Callable[[TrainState, int], tuple[TrainState, Metrics]]:
    """Returns what takes a number of updates, on data kept on the device, in host memory or on disk."""
    settings = {"window": agent.window, "num_actions": training.spaces()[1]}
    if isinstance(steps, FrameStore):
        sampler = StoreSampler(steps, **settings)
    elif sum(x.nbytes for x in jax.tree.leaves(steps)) <= training.device_bytes:
        source = learner.place(window_sampler(steps, **settings))
        return lambda state, count: learner.update_many(state, source, count)
    else:
        sampler = HostSampler(steps, **settings)

    @jax.jit
    def draw_keys(data: Array, step: int | Array) -> Keys:
        return learner.draw_keys(jax.random.wrap_key_data(data), step)[learner.own_windows]

    def advance(state: TrainState, count: int) -> tuple[TrainState, Metrics]:
        rows = []
        data = jax.device_get(jax.random.key_data(state.key))  # on the host, where batches are drawn
        for batch in sampler.batches(functools.partial(draw_keys, data), int(state.step), count):
            state, metrics = learner.update(state, batch)
            rows.append(metrics)
        return state, jax.tree.map(lambda *x: jnp.stack(x), *rows)

    return advance


def _note(row: dict[str, float | int]) -> str:
    return f"loss {row['loss']:.3f}" + (f", return {row['return']:.2f}" if "return" in row else "")


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
