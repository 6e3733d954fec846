"""Why an agent with a model is as good as it is: its errors by depth, and what operators make of it."""

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from rosmo import operators
from rosmo.agents import LatentAgent
from rosmo.agents.base import entropy
from rosmo.agents.targets import find_boundary
from rosmo.data import HostSampler
from rosmo.evaluate.held_out import calibration, doubted, returns_from
from rosmo.evaluate.playing import on_one_device
from rosmo.evaluate.policies import ask_all
from rosmo.model import LatentModel, deviation, recurrent_fn
from rosmo.operators.base import mask_logits
from rosmo.types import Key, Params, Trajectory, refuse_counts

_BATCH = 256  # windows that are asked about together
_LEAST = 1e-12  # of a probability, in a logarithm


class Diagnosis:
    """Asks an agent with a model about windows of episodes, best such as it was not trained on.

    - `depth`: by imagined steps k = 0 to `depth` along the data's actions, the mean absolute error of the
      reward before, that of the value against the discounted return of the episode from there on, and of the
      policy the log loss and accuracy of the data's action. Past a truncation a return goes on with the
      agent's value of the last observation.
    - `values`: the network's values of what is observed against those returns. Of an ensemble they are the
      mean of its members, and `doubts` sets the deviation of the members against the error of the mean.
    - `policy`: of the agent's own improved policy, entropy, log loss and accuracy of the data's action. The
      log loss is the KL divergence from the data's policy, plus that one's entropy.
    - `operators`: for each, how often its best action is the data's, the gain in value that it expects over
      the network's, the entropy of its policy, and its divergence from the network's.
    """

    def __init__(
        self,
        agent: Any,
        steps: Trajectory,
        *,
        num_actions: int,
        depth: int = 10,
        windows: int = 2_048,
        names: Sequence[str] = (),
    ):
        """Takes an agent and the steps `[N]` of some episodes.

        Args:
            agent: that is asked.
            steps: of the episodes, one after the other.
            num_actions: that there are.
            depth: how far the model is to imagine.
            windows: of the episodes at most, spread evenly.
            names: of the operators, all that are registered where none is given.
        """
        if not isinstance(agent, LatentAgent):
            raise TypeError(
                f"{type(agent).__name__} has no model that imagines: only agents with one can be diagnosed"
            )
        refuse_counts(depth=depth, windows=windows)
        self._agent, self._depth = agent, depth
        self._operators = {name: operators.get(name) for name in names or operators.names()}
        self._sampler = HostSampler(steps, window=depth + 1, num_actions=num_actions)
        self._num_actions = num_actions
        starts = len(self._sampler.starts)
        self._chosen = np.unique(np.linspace(0, starts - 1, min(windows, starts)).astype(np.int64))

    def __call__(self, params: Params, seed: int = 0) -> dict[str, Any]:
        """Returns the numbers, the same for the same parameters and seed."""
        arrays, static = on_one_device(params), eqx.partition(params, eqx.is_array)[1]
        returns = self._returns(params)
        ask = jax.jit(lambda arrays, batch, key: self._ask(eqx.combine(arrays, static), batch, key))
        found = []
        for number, first in enumerate(range(0, len(self._chosen), _BATCH)):
            rows = self._chosen[first : first + _BATCH]
            padded = np.concatenate([rows, np.repeat(rows[:1], _BATCH - len(rows))])
            batch = self._sampler.windows(padded)
            said = jax.device_get(ask(arrays, batch, jax.random.fold_in(jax.random.key(seed), number)))
            places = self._sampler.starts[padded][:, None] + np.arange(self._depth + 1)
            said["value"] = np.abs(said["value"] - returns[np.minimum(places, len(returns) - 1)])
            found.append(jax.tree.map(functools.partial(_first, count=len(rows)), said))
        each = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
        return self._summary(each, returns[self._sampler.starts[self._chosen]])

    def _returns(self, params: Params) -> Float[np.ndarray, "steps"]:
        """The discounted returns from every step on."""
        steps = self._sampler.steps
        cut = np.flatnonzero(steps.is_last & ~steps.is_terminal)
        ahead = np.zeros(len(steps.action))
        if cut.size:
            ahead[cut] = ask_all(self._agent.values, params, steps.observation[cut])
        return returns_from(steps.reward.astype(np.float64), steps.is_last, ahead, params.discount)

    def _ask(self, params: LatentModel, batch: Trajectory, key: Key) -> dict[str, Any]:
        """What is said of each window of a batch."""
        real = find_boundary(batch).real
        actions = jnp.clip(batch.action, 0, self._num_actions - 1)
        model, root = params.imagine_from(batch.observation[:, 0])
        unrolled = model.unroll(root.embedding, actions[:, :-1])
        invalid = batch.invalid_actions
        logits = mask_logits(unrolled.policy_logits, invalid)
        taken = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[..., None], axis=-1)[..., 0]
        rewards = model.mean_reward(unrolled.reward_logits)
        members = model.value_codec.decode(model.predict(root.embedding).value_logits)
        now = None if invalid is None else invalid[:, 0]
        masks = {} if now is None else {"invalid_actions": now}
        own = self._agent.probabilities(params, key, batch.observation[:, 0], **masks)
        prior = jax.nn.softmax(mask_logits(root.prior_logits, now))
        of_policy = functools.partial(_of_policy, action=actions[:, 0], prior=prior)
        found = {name: op(model, key, root, recurrent_fn, **masks) for name, op in self._operators.items()}
        return {
            "real": real,
            "reward": jnp.abs(rewards - batch.reward[:, :-1]),
            "value": model.mean_value(unrolled.value_logits),
            "policy": -taken,
            "accuracy": (jnp.argmax(logits, axis=-1) == actions).astype(jnp.float32),
            "root": model.neutral.bound(members),
            **({"doubt": deviation(members)} if model.ensemble > 1 else {}),
            "own": of_policy(own),
            "operators": {
                name: of_policy(one.action_weights) | {"gain": one.value - root.value}
                for name, one in found.items()
            },
        }

    def _summary(self, each: dict[str, Any], returns: Float[np.ndarray, "windows"]) -> dict[str, Any]:
        real = each["real"]
        by_depth = {
            "reward": [None, *_means(each["reward"], real[:, :-1])],
            **{name: _means(each[name], real) for name in ("value", "policy", "accuracy")},
        }
        doubts = doubted(each["doubt"], np.abs(each["root"] - returns)) if "doubt" in each else {}
        means = jax.tree.map(lambda x: float(np.mean(x)), {k: each[k] for k in ("own", "operators")})
        return {
            "windows": len(real),
            "depth": by_depth,
            "values": calibration(each["root"], returns) | doubts,
            "policy": {name: x for name, x in means["own"].items() if name != "divergence"},
            "operators": {
                name: {key: x for key, x in found.items() if key != "log_loss"}
                for name, found in means["operators"].items()
            },
        }


def _of_policy(weights: Array, action: Array, prior: Array) -> dict[str, Array]:
    """What is said of a policy, given by weights that need not add up to one."""
    weights = weights / jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), _LEAST)
    logs = jnp.log(jnp.maximum(weights, _LEAST))
    return {
        "accuracy": (jnp.argmax(weights, axis=-1) == action).astype(weights.dtype),
        "entropy": entropy(logs),
        "log_loss": -jnp.take_along_axis(logs, action[:, None], axis=-1)[:, 0],
        "divergence": jnp.sum(weights * (logs - jnp.log(jnp.maximum(prior, _LEAST))), axis=-1),
    }


def _first(x: np.ndarray, count: int) -> np.ndarray:
    return x[:count]


def _means(x: np.ndarray, mask: np.ndarray) -> list[float | None]:
    """The mean of each column where it counts, None where it never does."""
    return [float(np.mean(x[mask[:, k], k])) if mask[:, k].any() else None for k in range(x.shape[1])]
