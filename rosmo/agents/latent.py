"""The agent of the paper: a latent model trained on the targets of an improvement operator, regularized."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.agents.base import Foreseen
from rosmo.agents.judging import StepTargets, judge_steps
from rosmo.agents.roots import Rooted, cut
from rosmo.agents.targets import n_step_returns
from rosmo.agents.terms import (
    diagnostics,
    mean_of_terms,
    policy_loss,
    positions_of,
    reward_loss,
    value_loss,
)
from rosmo.model import LatentModel, Pessimism, recurrent_fn, refuse_pessimism
from rosmo.operators import Improvement, Operator
from rosmo.operators.base import mask_logits
from rosmo.regularizers import Regularizer
from rosmo.types import Key, Keys, Metrics, Trajectory, refuse_counts, refuse_numbers, window_keys


@dataclasses.dataclass(frozen=True)
class LatentAgent:
    """Trains a latent model by the loss of Eq. 1.

    A window has R + K + n steps. Each of its first R is a root that is encoded and unrolled; what the target
    network and the operator say of a step is computed once for all of them. The loss of a window is the mean
    of the losses that windows of one root would have at those of them that have an action. A root behind an
    episode's end is of the next episode: what pads a window must be marked `is_last`.

    Args:
        model: builds the model from a key.
        operator: gives the policy targets, and acts unless `acting` does.
        regularizers: pairs of a regularizer and its weight; they add up.
        bootstrap: where value targets bootstrap from, the target "network" (Eq. 8) or the improved root
            values of the "operator" (Eq. 3).
        unroll_steps: K, the imagined steps that are trained.
        td_steps: n, the rewards in a value target.
        policy_weight: coefficient of the policy loss.
        value_weight: coefficient of the value loss.
        reward_weight: coefficient of the reward loss.
        acting: the operator that acts, such as a search without the noise of its targets.
        roots: R, the steps of a window that are encoded and unrolled; 1 in the paper.
        pessimism: κ of the bound mean − κ·deviation that a model with an ensemble shows operators (see
            `LatentModel`), or "min" for the minimum of its members; 0 is their mean, less is optimism. Value
            targets of the "network" bootstrap from the mean, whatever κ is: what is doubted once would be
            doubted again at each backup. Those of the "operator" are of what it was shown.
    """

    model: Callable[[Key], LatentModel]
    operator: Operator
    regularizers: tuple[tuple[Regularizer, float | int], ...] = ()
    bootstrap: Literal["network", "operator"] = "network"
    unroll_steps: int = 5
    td_steps: int = 3
    policy_weight: float = 1.0
    value_weight: float = 0.25
    reward_weight: float = 1.0
    acting: Operator | None = None
    roots: int = 1
    pessimism: Pessimism = 0.0

    def __post_init__(self):
        refuse_counts(unroll_steps=self.unroll_steps, td_steps=self.td_steps, roots=self.roots)
        refuse_pessimism(self.pessimism)
        if not callable(self.operator):
            raise TypeError(
                f"operator must be a function, as operators.get(name) returns, got {self.operator!r}"
            )
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in self.regularizers):
            raise TypeError("regularizers must be pairs, as in ((regularizers.behavior, 0.2),)")
        weights: dict[str, Any] = {
            f"the weight of the regularizer {_name(x)}": w for x, w in self.regularizers
        }
        weights |= {name: getattr(self, name) for name in ("policy_weight", "value_weight", "reward_weight")}
        refuse_numbers(**weights)
        if self.bootstrap not in ("network", "operator"):
            raise ValueError(f"bootstrap must be 'network' or 'operator', got {self.bootstrap!r}")

    @property
    def window(self) -> int:
        """The number of steps T that a window must have."""
        return self.roots + self.unroll_steps + self.td_steps

    def init(self, key: Key) -> LatentModel:
        """Returns a fresh model, as pessimistic as the agent is: its arrays are the parameters."""
        model = self.model(key)
        return model if self.pessimism == 0 else model.at_pessimism(self.pessimism)

    def act(
        self,
        params: LatentModel,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        *,
        greedy: bool = False,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> Integer[Array, "batch"]:
        """Chooses actions by the improved policy."""
        improvement = self.improve(params, key, observation, invalid_actions=invalid_actions)
        if not greedy:
            return improvement.action
        legal = mask_logits(improvement.action_weights, invalid_actions)
        return jnp.argmax(legal, axis=-1).astype(improvement.action.dtype)

    def improve(
        self,
        params: LatentModel,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        *,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> Improvement:
        """Returns what the operator that acts makes of observations."""
        model, root = params.imagine_from(observation)
        operator = self.acting or self.operator
        return operator(model, key, root, recurrent_fn, invalid_actions=invalid_actions)

    def probabilities(
        self,
        params: LatentModel,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        *,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> Float[Array, "batch actions"]:
        """Returns the improved policy, as weights that add up to one."""
        improvement = self.improve(params, key, observation, invalid_actions=invalid_actions)
        total = jnp.sum(improvement.action_weights, axis=-1, keepdims=True)
        return improvement.action_weights / jnp.where(total > 0, total, 1)

    def values(self, params: LatentModel, observation: Shaped[Array, "batch ..."]) -> Float[Array, "batch"]:
        """Returns the network's values of observations, of an ensemble the mean of its members."""
        return params.neutral.imagine_from(observation)[1].value

    def foresee(
        self,
        params: LatentModel,
        observation: Shaped[Array, "batch ..."],
        actions: Integer[Array, "batch steps"],
    ) -> Foreseen:
        """Returns the rewards and values that the model imagines along actions."""
        model, root = params.imagine_from(observation)
        unrolled = model.unroll(root.embedding, actions)
        return Foreseen(
            rewards=model.mean_reward(unrolled.reward_logits), values=model.mean_value(unrolled.value_logits)
        )

    def loss(
        self, params: LatentModel, target_params: LatentModel, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch of windows `[B, T]` with T at least `window`."""
        batch = self._first_steps(batch)
        keys = window_keys(key, batch)
        targets = jax.vmap(self.step_targets, in_axes=(None, 0, 0))(target_params, batch, keys)
        return self.loss_from_targets(params, batch, targets, keys)

    def step_targets(self, target: LatentModel, window: Trajectory, key: Key) -> StepTargets:
        """Asks the target network for values, improved policies and the advantages of the taken actions.

        The operator's batch is the positions of one window `[T]`, so that its randomness is the window's own.
        """
        return self._targets_of(target, window, key, positions=self.roots + self.unroll_steps)

    def judge(self, target: LatentModel, steps: Trajectory, key: Key) -> StepTargets:
        """Judges any steps `[N]`, all of them as positions, so that the windows over them can share it."""
        return self._targets_of(target, steps, key, positions=len(steps.action))

    def gather(self, judged: StepTargets, start: Integer[Array, ""]) -> StepTargets:
        """Returns the targets of the window that begins at step `start` of what was judged."""

        def take(x: Array, length: int) -> Array:
            return jnp.take(x, start + jnp.arange(length), axis=0, mode="clip")

        targets = jax.tree.map(lambda x: take(x, self.roots + self.unroll_steps), judged)
        return targets._replace(values=take(judged.values, self.window))

    def repeatable(self, target: LatentModel, steps: Trajectory) -> bool:
        """Whether a step judged twice gets the same targets: whether the operator is deterministic."""

        def improve(target: LatentModel, observation: Array) -> Improvement:
            model, root = target.imagine_from(observation)
            return self.operator(model, jax.random.key(0), root, recurrent_fn)

        return eqx.filter_eval_shape(improve, target, steps.observation[:1]).deterministic

    def _targets_of(self, target: LatentModel, window: Trajectory, key: Key, positions: int) -> StepTargets:
        return judge_steps(
            target,
            window,
            key,
            operator=self.operator,
            positions=positions,
            improved_values=self.bootstrap == "operator",
            with_advantage=bool(self.regularizers),
        )

    def loss_from_targets(
        self, params: LatentModel, batch: Trajectory, targets: StepTargets, keys: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch whose steps the target network has judged."""
        rooted = cut(self._first_steps(batch), targets, keys, roots=self.roots)
        batch, targets, boundary = rooted.batch, rooted.targets, rooted.boundary
        returns = n_step_returns(
            batch, targets.values, boundary, discount=params.discount, steps=self.td_steps
        )
        unrolled = params.unroll(
            params.encode(batch.observation[:, 0]), self._imagined_actions(rooted, params.num_actions)
        )
        positions = positions_of(params, unrolled, rooted)
        terms = {
            "policy": self.policy_weight * policy_loss(positions.policy_logits, targets.policy, boundary),
            "value": self.value_weight * value_loss(params, unrolled, returns, boundary),
            "reward": self.reward_weight * reward_loss(params, unrolled, batch.reward, boundary),
        }
        for regularizer, weight in self.regularizers:
            penalty = jnp.where(positions.mask, regularizer(positions), 0)
            name = _name(regularizer)
            terms[name] = terms.get(name, 0) + weight * penalty
        count = self.unroll_steps + 1
        losses = {name: mean_of_terms(term, rooted, count) for name, term in terms.items()}
        loss = sum(losses.values(), jnp.zeros(()))
        metrics = {f"loss/{name}": value for name, value in losses.items()}
        return loss, metrics | {"loss": loss} | diagnostics(positions, returns, rooted.share)

    def _imagined_actions(self, rooted: Rooted, num_actions: int) -> Integer[Array, "windows steps"]:
        """The actions of the data set, and random ones from absorbing states, where the data has none."""
        action = rooted.batch.action[:, : self.unroll_steps]

        def draw(key: Key) -> Integer[Array, "steps"]:
            return (jax.random.bits(key, action.shape[1:]) % np.uint32(num_actions)).astype(action.dtype)

        return jnp.where(rooted.boundary.real[:, : self.unroll_steps], action, jax.vmap(draw)(rooted.keys))

    def _first_steps(self, batch: Trajectory) -> Trajectory:
        if batch.action.ndim != 2 or batch.action.shape[1] < self.window:
            raise ValueError(
                f"this agent trains on windows of at least {self.window} steps, [B, {self.window}] "
                f"(roots + unroll_steps + td_steps), got actions of shape {list(batch.action.shape)}"
            )
        return jax.tree.map(lambda x: x[:, : self.window], batch)


def _name(regularizer: Any) -> str:
    while isinstance(regularizer, functools.partial):
        regularizer = regularizer.func
    return getattr(regularizer, "__name__", type(regularizer).__name__)
