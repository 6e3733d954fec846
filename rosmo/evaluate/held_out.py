"""How good an agent is, by episodes that it was not trained on: what data can say without an environment."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from rosmo.agents import Agent, Remembers
from rosmo.agents.base import Foresees, Values, acting
from rosmo.agents.targets import find_boundary
from rosmo.data import DataSet
from rosmo.data.stacking import stack_frames
from rosmo.evaluate.playing import on_one_device
from rosmo.evaluate.windows import ChosenWindows
from rosmo.types import Keys, Params, Trajectory, is_array

_BINS = 10  # of values, for their calibration


class HeldOut:
    """Scores an agent by windows of held-out episodes, the same ones every time.

    - the losses of the agent, its own parameters giving the targets;
    - accuracy: how often its greedy action is that of the data, on the first observation of a window alone;
    - calibration: its values against the discounted returns of the episodes from there on. Past a truncation
      a return goes on with the agent's value of the last observation;
    - of an agent with a model, its error by depth: of the k-th imagined reward against that of the data, and
      of the value after k imagined steps against the agent's value of what was really observed there.
    """

    def __init__(self, agent: Agent | Remembers, data: DataSet, *, num_actions: int, windows: int = 4_096):
        """Takes an agent and the data set of the held-out episodes."""
        self._agent = agent
        self._windows = ChosenWindows(data, max(agent.window, 2), num_actions, windows=windows)
        columns = self._windows.columns
        self._rewards, self._is_last = columns["reward"].astype(np.float64), columns["is_last"]
        self._is_terminal = columns["is_terminal"]
        static = eqx.partition(eqx.filter_eval_shape(agent.init, jax.random.key(0)), is_array)[1]
        self._judge = jax.jit(
            lambda arrays, batch, keys: _judge(agent, eqx.combine(arrays, static), batch, keys)
        )
        self._value = jax.jit(
            lambda arrays, shown: cast(Values, agent).values(eqx.combine(arrays, static), shown)
        )

    def __call__(self, params: Params, seed: int) -> dict[str, float]:
        """Returns the scores by name, the same for the same parameters and seed."""
        return {name: value for name, value in self.report(params, seed).items() if isinstance(value, float)}

    def report(self, params: Params, seed: int) -> dict[str, Any]:
        """Returns the scores, and `calibration`: the mean value and mean return of tenths of the windows."""
        arrays, means, judged = on_one_device(params), [], []
        for number, batch in enumerate(self._windows.batches()):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), number), self._windows.batch)
            mean, each = jax.device_get(self._judge(arrays, batch, keys))
            means.append(mean)
            judged.append(each)
        scores = {name: float(np.mean([mean[name] for mean in means])) for name in means[0]}
        each = {name: np.concatenate([part[name] for part in judged]) for name in judged[0]}
        scores["accuracy"] = float(np.mean(each["agrees"]))
        if isinstance(self._agent, Foresees):
            scores |= _by_depth(each)
        discount = getattr(params, "discount", None)
        if not isinstance(self._agent, Values) or discount is None:
            return scores
        return scores | calibration(each["value"], self._returns(arrays, float(discount)))

    def _returns(self, arrays: Params, discount: float) -> Float[np.ndarray, "windows"]:
        """The discounted returns from the chosen steps on."""
        steps = self._windows.steps[self._windows.chosen]
        last = np.flatnonzero(self._is_last)
        closing = last[np.searchsorted(last, steps)]
        cut = np.unique(closing[~self._is_terminal[closing]])
        ahead = np.zeros(len(self._rewards))
        ahead[cut] = self._values_of(arrays, cut)
        return returns_from(self._rewards, self._is_last, ahead, discount)[steps]

    def _values_of(self, arrays: Params, closing: np.ndarray) -> Float[np.ndarray, "closing"]:
        """The agent's values of what closing steps show: second steps of the windows before."""
        starts = np.searchsorted(self._windows.steps, closing - 1)
        padded = np.append(starts, np.repeat(starts[:1], -len(starts) % self._windows.batch))
        shown = (stack_frames(batch).observation[:, 1] for batch in self._windows.batches(padded))
        values = [self._value(arrays, observation) for observation in shown]
        return np.concatenate([np.zeros(0), *map(np.asarray, values)])[: len(closing)]


def returns_from(
    rewards: Float[np.ndarray, "steps"],
    is_last: Bool[np.ndarray, "steps"],
    ahead: Float[np.ndarray, "steps"],
    discount: float,
) -> Float[np.ndarray, "steps"]:
    """Returns the discounted returns from every step on, with what lies ahead of each closing step."""
    returns = np.array(ahead, np.float64)
    for step in range(len(returns) - 2, -1, -1):
        if not is_last[step]:
            returns[step] = rewards[step] + discount * returns[step + 1]
    return returns


def _judge(agent: Agent | Remembers, params: Params, batch: Trajectory, keys: Keys) -> tuple[dict, dict]:
    """The means of a batch, and what is said of each of its windows."""
    batch = stack_frames(batch)
    _, means = agent.loss(params, params, batch, keys)
    shown = batch.observation[:, 0]
    begin, act = acting(agent)
    masks = {} if batch.invalid_actions is None else {"invalid_actions": batch.invalid_actions[:, 0]}
    masks = {} if isinstance(agent, Remembers) else masks
    action, _ = act(params, keys[0], shown, begin(params, len(shown)), greedy=True, **masks)
    each = {"agrees": action == batch.action[:, 0]}
    if isinstance(agent, Values):
        each["value"] = agent.values(params, shown)
    if isinstance(agent, Foresees):
        each |= _foreseen(agent, params, batch)
    return means, each


def _foreseen(agent: Any, params: Params, batch: Trajectory) -> dict[str, Any]:
    """Errors of what the model imagines of windows, with where there is something to compare with."""
    depth = min(agent.unroll_steps, batch.action.shape[1] - 1)
    foreseen = agent.foresee(params, batch.observation[:, 0], batch.action[:, :depth])
    boundary = find_boundary(batch)
    real, going_on = boundary.real[:, :depth], (boundary.observed & ~boundary.terminated)[:, 1 : depth + 1]
    errors = {"reward": (jnp.abs(foreseen.rewards - batch.reward[:, :depth]), real)}
    if isinstance(agent, Values):
        later = batch.observation[:, 1 : depth + 1]
        flat = agent.values(params, later.reshape(-1, *later.shape[2:])).reshape(later.shape[:2])
        errors["value"] = (jnp.abs(foreseen.values[:, 1:] - flat), going_on)
    return {
        f"{name}_{part}": x
        for name, pair in errors.items()
        for part, x in zip(("error", "mask"), pair, strict=True)
    }


def _by_depth(each: dict[str, np.ndarray]) -> dict[str, float]:
    scores = {}
    for name in ("reward", "value"):
        for depth in range(each[f"{name}_error"].shape[1] if f"{name}_error" in each else 0):
            error = each[f"{name}_error"][:, depth][each[f"{name}_mask"][:, depth]]
            if error.size:
                scores[f"{name}_error_{depth + 1}"] = float(np.mean(error))
    return scores


def calibration(values: np.ndarray, returns: np.ndarray) -> dict[str, Any]:
    """Values against returns: bias, root mean squared error, correlation, and tenths of the windows."""
    values = values.astype(np.float64)
    scores: dict[str, Any] = {
        "return": float(np.mean(returns)),
        "value_bias": float(np.mean(values - returns)),
        "value_rmse": float(np.sqrt(np.mean((values - returns) ** 2))),
    }
    if np.std(values) > 0 and np.std(returns) > 0:
        scores["value_correlation"] = float(np.corrcoef(values, returns)[0, 1])
    return scores | {"calibration": tenths(values, returns)}


def doubted(doubts: np.ndarray, errors: np.ndarray) -> dict[str, Any]:
    """Whether an ensemble doubts where it errs: deviations of its members against errors of their mean."""
    doubts = doubts.astype(np.float64)
    scores: dict[str, Any] = {"doubt": float(np.mean(doubts))}
    if np.std(doubts) > 0 and np.std(errors) > 0:
        scores["doubt_correlation"] = float(np.corrcoef(doubts, errors)[0, 1])
    return scores | {"doubts": tenths(doubts, errors)}


def tenths(values: np.ndarray, truths: np.ndarray) -> list[list[float]]:
    """Returns the mean value and the mean truth of tenths, by ascending values."""
    parts = np.array_split(np.argsort(values, kind="stable"), min(_BINS, len(values)))
    return [[float(np.mean(values[part])), float(np.mean(truths[part]))] for part in parts]
