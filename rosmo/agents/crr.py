"""Critic Regularized Regression (Wang et al., 2020) for discrete actions, with the networks of the paper."""

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.agents.base import entropy, mean_of_windows, registry
from rosmo.agents.bc import choose, encode_steps, observed_steps, policy_logits, without_ensemble
from rosmo.agents.targets import n_step_returns
from rosmo.model import LatentModel
from rosmo.networks.base import State
from rosmo.operators.base import mask_logits
from rosmo.regularizers import Positions, behavior, behavior_exp
from rosmo.types import Key, Keys, Metrics, Trajectory, refuse_counts, refuse_numbers


@registry.register("crr")
@dataclasses.dataclass(frozen=True)
class CRR:
    """Clones the actions that its critic finds better than the policy's own.

    The policy is f(h(o)), the critic Q(o, a) the reward head of g(h(o), a). Expectations over actions are
    exact, where the published algorithm samples. Defaults are those of the published code (Acme), which
    learns from single transitions; a longer `td_steps` adds rewards of the data set's policy, uncorrected.
    There the two networks share nothing; here they share h.

    Args:
        model: builds the model from a key, with one codec for rewards and values.
        weighting: of a cloned action, "exp" for min(exp(A/β), w) or "binary" for 1[A > 0].
        beta: β, the temperature of the advantage.
        max_weight: w, the largest weight of one action.
        positions: steps of a window that are trained on, each from its own observation.
        td_steps: n, the rewards in a critic's target.
        policy_weight: coefficient of the policy loss.
        value_weight: coefficient of the critic's loss.
    """

    model: Callable[[Key], LatentModel]
    weighting: Literal["exp", "binary"] = "exp"
    beta: float = 1.0
    max_weight: float = 20.0
    positions: int = 6
    td_steps: int = 1
    policy_weight: float = 1.0
    value_weight: float = 1.0

    def __post_init__(self):
        if self.weighting not in ("exp", "binary"):
            raise ValueError(f"weighting must be 'exp' or 'binary', got {self.weighting!r}")
        refuse_numbers(above=True, beta=self.beta, max_weight=self.max_weight)
        refuse_numbers(policy_weight=self.policy_weight, value_weight=self.value_weight)
        refuse_counts(positions=self.positions, td_steps=self.td_steps)

    @property
    def window(self) -> int:
        """The number of steps T that a window must have."""
        return self.positions + self.td_steps

    def init(self, key: Key) -> LatentModel:
        """Returns a fresh model: its arrays are the parameters."""
        return with_one_codec(self.model(key))

    def act(
        self,
        params: LatentModel,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        *,
        greedy: bool = False,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> Integer[Array, "batch"]:
        """Samples actions from the policy, or takes the greedy ones."""
        logits = params.predict(params.encode(observation)).policy_logits
        return choose(mask_logits(logits, invalid_actions), key, greedy=greedy)

    def probabilities(
        self,
        params: LatentModel,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        *,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> Float[Array, "batch actions"]:
        """Returns the policy."""
        del key
        logits = params.predict(params.encode(observation)).policy_logits
        return jax.nn.softmax(mask_logits(logits, invalid_actions))

    def values(self, params: LatentModel, observation: Shaped[Array, "batch ..."]) -> Float[Array, "batch"]:
        """Returns E Q(s, a) over the actions of the policy."""
        states = params.encode(observation)
        q = params.value_codec.decode(q_logits(params, states))
        return jnp.sum(jax.nn.softmax(params.predict(states).policy_logits) * q, axis=-1)

    def loss(
        self, params: LatentModel, target_params: LatentModel, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch of windows `[B, T]` with T at least `window`."""
        del key
        batch, boundary = observed_steps(batch, self.window)
        judged = _judge(target_params, encode_steps(target_params, batch), batch)
        values = jax.lax.stop_gradient(judged.value)
        returns = n_step_returns(batch, values, boundary, discount=params.discount, steps=self.td_steps)
        batch, mask = jax.tree.map(lambda x: x[:, : self.positions], (batch, boundary.real))
        states = encode_steps(params, batch)
        positions = _positions(_judge(params, states, batch), batch, mask)
        taken = _taken_logits(params, states, batch)
        critic = optax.softmax_cross_entropy(taken, params.value_codec.encode(returns))
        terms = {"policy": self.policy_weight * self._cloning(positions), "value": self.value_weight * critic}
        # Every position counts the same, masked or not, so that no row changes the weight of another.
        losses = {name: jnp.sum(jnp.where(mask, term, 0)) / mask.size for name, term in terms.items()}
        loss = sum(losses.values(), jnp.zeros(()))
        return loss, {f"loss/{name}": value for name, value in losses.items()} | {
            "loss": loss,
            "policy_entropy": mean_of_windows(entropy(positions.policy_logits), mask),
            "value": mean_of_windows(positions.value, mask),
            "value_target": mean_of_windows(returns, mask),
            "advantage_positive": mean_of_windows((positions.advantage > 0).astype(returns.dtype), mask),
        }

    def _cloning(self, positions: Positions) -> Float[Array, "batch positions"]:
        if self.weighting == "binary":
            return behavior(positions)
        return behavior_exp(positions, beta=self.beta, max_weight=self.max_weight)


def with_one_codec(model: LatentModel) -> LatentModel:
    """Returns a model whose reward head can hold values, or refuses it."""
    without_ensemble(model)
    if model.reward_codec != model.value_codec:
        raise ValueError(
            "this agent reads Q-values off the reward head, which needs the range of values: give the model "
            f"one codec for both, got {model.reward_codec} for rewards and {model.value_codec} for values"
        )
    return model


def q_logits(model: LatentModel, states: State) -> Float[Array, "batch actions bins"]:
    """Returns the logits of Q(s, ·): the reward head of the dynamics, asked for every action."""
    count = jax.tree.leaves(states)[0].shape[0]

    def of_action(action: Integer[Array, ""]) -> Float[Array, "batch bins"]:
        return model.step(states, jnp.broadcast_to(action, (count,)))[1]

    return jax.vmap(of_action, out_axes=1)(jnp.arange(model.num_actions))


def _taken_logits(model: LatentModel, states: State, batch: Trajectory) -> Float[Array, "batch time bins"]:
    """The logits of Q(s, a) of the data set's actions."""
    return model.step(states, batch.action.reshape(-1))[1].reshape(*batch.action.shape, -1)


class _Judgement(NamedTuple):
    policy_logits: Float[Array, "batch time actions"]
    qvalues: Float[Array, "batch time actions"]
    value: Float[Array, "batch time"]  # E Q(s, a) over the actions of the policy


def _judge(model: LatentModel, states: State, batch: Trajectory) -> _Judgement:
    logits = policy_logits(model, states, batch)
    q = model.value_codec.decode(q_logits(model, states)).reshape(logits.shape)
    return _Judgement(logits, q, jnp.sum(jax.nn.softmax(logits) * q, axis=-1))


def _positions(judged: _Judgement, batch: Trajectory, mask: Bool[Array, "batch time"]) -> Positions:
    """What is cloned, weighed by a critic that learns nothing from it."""
    weighed = jax.lax.stop_gradient(judged)
    taken = jnp.take_along_axis(weighed.qvalues, batch.action[..., None], axis=-1)[..., 0]
    return Positions(
        policy_logits=judged.policy_logits,
        value=weighed.value,
        prior_logits=weighed.policy_logits,
        prior_value=weighed.value,
        action=batch.action,
        advantage=taken - weighed.value,
        mask=mask,
    )
