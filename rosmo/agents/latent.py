"""The agent of the paper: a latent model trained on the targets of an improvement operator, regularized."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Bool, Float, Integer, PyTree, Shaped

from rosmo.agents.base import entropy, mean_of_windows, window_keys
from rosmo.agents.targets import Boundary, find_boundary, n_step_returns
from rosmo.model import LatentModel, Unrolled, recurrent_fn
from rosmo.operators import Improvement, Operator, look_ahead
from rosmo.operators.base import mask_logits
from rosmo.regularizers import Positions, Regularizer
from rosmo.types import Key, Keys, Metrics, Root, Trajectory


class StepTargets(NamedTuple):
    """What the target network says of the steps of a window, each by its own observation and action alone."""

    values: Float[Array, "*batch time"]  # to bootstrap from
    policy: Float[Array, "*batch positions actions"]
    prior_logits: Float[Array, "*batch positions actions"]
    prior_value: Float[Array, "*batch positions"]
    advantage: Float[Array, "*batch positions"]


@dataclasses.dataclass(frozen=True)
class LatentAgent:
    """Trains a latent model by the loss of Eq. 1.

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
    """

    model: Callable[[Key], LatentModel]
    operator: Operator
    regularizers: tuple[tuple[Regularizer, float], ...] = ()
    bootstrap: Literal["network", "operator"] = "network"
    unroll_steps: int = 5
    td_steps: int = 3
    policy_weight: float = 1.0
    value_weight: float = 0.25
    reward_weight: float = 1.0
    acting: Operator | None = None

    def __post_init__(self):
        if self.unroll_steps < 1 or self.td_steps < 1:
            raise ValueError(
                f"unroll_steps and td_steps must be at least 1, got {self.unroll_steps} and {self.td_steps}"
            )
        if not callable(self.operator):
            raise TypeError(
                f"operator must be a function, as operators.get(name) returns, got {self.operator!r}"
            )
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in self.regularizers):
            raise TypeError("regularizers must be pairs, as in ((regularizers.behavior, 0.2),)")
        if self.bootstrap not in ("network", "operator"):
            raise ValueError(f"bootstrap must be 'network' or 'operator', got {self.bootstrap!r}")

    @property
    def window(self) -> int:
        """The number of steps T that a window must have."""
        return self.unroll_steps + self.td_steps + 1

    def init(self, key: Key) -> LatentModel:
        """Returns a fresh model: its arrays are the parameters."""
        return self.model(key)

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
        model, root = params.imagine_from(observation)
        operator = self.acting or self.operator
        improvement = operator(model, key, root, recurrent_fn, invalid_actions=invalid_actions)
        if not greedy:
            return improvement.action
        legal = mask_logits(improvement.action_weights, invalid_actions)
        return jnp.argmax(legal, axis=-1).astype(improvement.action.dtype)

    def loss(
        self, params: LatentModel, target_params: LatentModel, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch of windows `[B, T]` with T at least `window`."""
        batch = _first_steps(batch, self.window)
        keys = window_keys(key, batch)
        targets = jax.vmap(self.step_targets, in_axes=(None, 0, 0))(target_params, batch, keys)
        return self.loss_from_targets(params, batch, targets, keys)

    def step_targets(self, target: LatentModel, window: Trajectory, key: Key) -> StepTargets:
        """Asks the target network for values, improved policies and the advantages of the taken actions.

        The operator's batch is the positions of one window `[T]`, so that its randomness is the window's own.
        """
        return self._targets_of(target, window, key, positions=self.unroll_steps + 1)

    def judge(self, target: LatentModel, steps: Trajectory, key: Key) -> StepTargets:
        """Judges any steps `[N]`, all of them as positions, so that the windows over them can share it."""
        return self._targets_of(target, steps, key, positions=len(steps.action))

    def gather(self, judged: StepTargets, start: Integer[Array, ""]) -> StepTargets:
        """Returns the targets of the window that begins at step `start` of what was judged."""

        def take(x: Array, length: int) -> Array:
            return jnp.take(x, start + jnp.arange(length), axis=0, mode="clip")

        targets = jax.tree.map(lambda x: take(x, self.unroll_steps + 1), judged)
        return targets._replace(values=take(judged.values, self.window))

    def repeatable(self, target: LatentModel, steps: Trajectory) -> bool:
        """Whether a step judged twice gets the same targets: whether the operator is deterministic."""

        def improve(target: LatentModel, observation: Array) -> Improvement:
            model, root = target.imagine_from(observation)
            return self.operator(model, jax.random.key(0), root, recurrent_fn)

        return eqx.filter_eval_shape(improve, target, steps.observation[:1]).deterministic

    def _targets_of(self, target: LatentModel, window: Trajectory, key: Key, positions: int) -> StepTargets:
        # Folded, not split: an operator that draws nothing then costs no random numbers. The key's first bits
        # are the imagined actions'.
        key_operator, key_action = (jax.random.fold_in(key, 2**31 + salt) for salt in (0, 1))
        searched = len(window.action) if self.bootstrap == "operator" else positions
        target, root = target.imagine_from(window.observation)
        values = root.value
        root, action, invalid = _first((root, window.action, window.invalid_actions), searched)
        improved = self.operator(target, key_operator, root, recurrent_fn, invalid_actions=invalid)

        targets = StepTargets(
            values=improved.value if self.bootstrap == "operator" else values,
            policy=improved.action_weights[:positions],
            prior_logits=root.prior_logits[:positions],
            prior_value=values[:positions],
            advantage=self._advantage(target, key_action, root, improved, action)[:positions],
        )
        return jax.lax.stop_gradient(targets)

    def _advantage(
        self,
        target: LatentModel,
        key: Key,
        root: Root,
        improved: Improvement,
        action: Integer[Array, "searched"],
    ) -> Float[Array, "searched"]:
        """The advantage of the data set's actions, for regularizers: the operator's, or by a look-ahead."""
        if not self.regularizers:
            return jnp.zeros_like(root.value)
        qvalue = jnp.take_along_axis(improved.qvalues, action[:, None], axis=1)[:, 0]
        if not improved.complete:
            own = look_ahead(target, key, root.embedding, recurrent_fn, action[:, None])[:, 0]
            qvalue = jnp.where(jnp.isnan(qvalue), own, qvalue)
        return qvalue - root.value

    def loss_from_targets(
        self, params: LatentModel, batch: Trajectory, targets: StepTargets, keys: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch whose steps the target network has judged."""
        batch = _first_steps(batch, self.window)
        boundary = find_boundary(batch)
        targets = _without_the_unobserved(targets, boundary)
        returns = n_step_returns(
            batch, targets.values, boundary, discount=params.discount, steps=self.td_steps
        )
        unrolled = params.unroll(
            params.encode(batch.observation[:, 0]), self._imagined_actions(batch, boundary, params, keys)
        )
        terms = {
            "policy": self.policy_weight * self._policy_loss(unrolled, batch, targets, boundary),
            "value": self.value_weight * self._value_loss(params, unrolled, returns, boundary),
            "reward": self.reward_weight * self._reward_loss(params, unrolled, batch, boundary),
        }
        positions = self._positions(params, unrolled, batch, targets, boundary)
        for regularizer, weight in self.regularizers:
            penalty = jnp.where(positions.mask, regularizer(positions), 0)
            name = _name(regularizer)
            terms[name] = terms.get(name, 0) + weight * penalty
        # Every position counts the same, masked or not, so that no row changes the weight of another.
        losses = {name: jnp.sum(term) / positions.mask.size for name, term in terms.items()}
        loss = sum(losses.values(), jnp.zeros(()))
        metrics = {f"loss/{name}": value for name, value in losses.items()}
        return loss, metrics | {"loss": loss} | _diagnostics(positions, returns)

    def _imagined_actions(
        self, batch: Trajectory, boundary: Boundary, model: LatentModel, keys: Keys
    ) -> Integer[Array, "batch steps"]:
        """The actions of the data set, and random ones from absorbing states, where the data has none."""

        def draw(key: Key) -> Integer[Array, "steps"]:
            bits = jax.random.bits(key, (self.unroll_steps,)) % np.uint32(model.num_actions)
            return bits.astype(batch.action.dtype)

        steps = slice(0, self.unroll_steps)
        return jnp.where(boundary.real[:, steps], batch.action[:, steps], jax.vmap(draw)(keys))

    def _policy_loss(
        self, unrolled: Unrolled, batch: Trajectory, targets: StepTargets, boundary: Boundary
    ) -> Float[Array, "batch positions"]:
        """ℓᵖ = −pᵀ log π wherever a decision was to be made (Eq. 5)."""
        here = slice(0, self.unroll_steps + 1)
        log_policy = jax.nn.log_softmax(self._legal_logits(unrolled, batch))
        loss = -jnp.sum(targets.policy * log_policy, axis=-1)
        return jnp.where((boundary.observed & ~boundary.terminated)[:, here], loss, 0)

    def _value_loss(
        self,
        model: LatentModel,
        unrolled: Unrolled,
        returns: Float[Array, "batch positions"],
        boundary: Boundary,
    ) -> Float[Array, "batch positions"]:
        """ℓᵛ = −φ(h(z))ᵀ log v, also in absorbing states, whose value is 0."""
        here = slice(0, self.unroll_steps + 1)
        loss = optax.softmax_cross_entropy(unrolled.value_logits, model.value_codec.encode(returns))
        return jnp.where((boundary.real | boundary.terminated)[:, here], loss, 0)

    def _reward_loss(
        self, model: LatentModel, unrolled: Unrolled, batch: Trajectory, boundary: Boundary
    ) -> Float[Array, "batch steps"]:
        """ℓʳ = −φ(h(r))ᵀ log r of each imagined step, also out of absorbing states, whose reward is 0."""
        steps = slice(0, self.unroll_steps)
        real = boundary.real[:, steps]
        target = model.reward_codec.encode(jnp.where(real, batch.reward[:, steps], 0))
        loss = optax.softmax_cross_entropy(unrolled.reward_logits, target)
        return jnp.where(real | boundary.terminated[:, steps], loss, 0)

    def _positions(
        self,
        model: LatentModel,
        unrolled: Unrolled,
        batch: Trajectory,
        targets: StepTargets,
        boundary: Boundary,
    ) -> Positions:
        here = slice(0, self.unroll_steps + 1)
        return Positions(
            policy_logits=self._legal_logits(unrolled, batch),
            value=model.value_codec.decode(unrolled.value_logits),
            prior_logits=targets.prior_logits,
            prior_value=targets.prior_value,
            action=batch.action[:, here],
            advantage=targets.advantage,
            mask=boundary.real[:, here],
        )

    def _legal_logits(self, unrolled: Unrolled, batch: Trajectory) -> Float[Array, "batch positions actions"]:
        invalid = batch.invalid_actions
        invalid = None if invalid is None else invalid[:, : self.unroll_steps + 1]
        return mask_logits(unrolled.policy_logits, invalid)


def _first_steps(batch: Trajectory, window: int) -> Trajectory:
    if batch.action.ndim != 2 or batch.action.shape[1] < window:
        raise ValueError(
            f"this agent trains on windows of at least {window} steps, [B, {window}] "
            f"(unroll_steps + td_steps + 1), got actions of shape {list(batch.action.shape)}"
        )
    return jax.tree.map(lambda x: x[:, :window], batch)


def _without_the_unobserved(targets: StepTargets, boundary: Boundary) -> StepTargets:
    """Clears what was said of steps beyond the end: a masked loss would still pass 0·nan back."""

    def clear(x: Array) -> Array:
        observed = boundary.observed[:, : x.shape[1]]
        return jnp.where(observed.reshape(observed.shape + (1,) * (x.ndim - 2)), x, 0)

    return jax.tree.map(clear, targets)


def _first(tree: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda x: x[:count], tree)


def _diagnostics(positions: Positions, returns: Float[Array, "batch positions"]) -> Metrics:
    mean = functools.partial(mean_of_windows, mask=positions.mask)
    return {
        "policy_entropy": mean(entropy(positions.policy_logits)),
        "value": mean(positions.value),
        "value_target": mean(returns),
        "advantage_positive": mean((positions.advantage > 0).astype(returns.dtype)),
    }


def _name(regularizer: Any) -> str:
    while isinstance(regularizer, functools.partial):
        regularizer = regularizer.func
    return getattr(regularizer, "__name__", type(regularizer).__name__)
