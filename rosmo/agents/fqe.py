"""Fitted Q evaluation (Le et al., 2019): what a given policy would earn, learned from data of another."""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.agents.base import mean_of_windows
from rosmo.agents.bc import choose, encode_steps, observed_steps
from rosmo.agents.crr import q_logits, with_one_codec
from rosmo.agents.targets import n_step_returns
from rosmo.model import LatentModel
from rosmo.operators.base import mask_logits
from rosmo.types import Key, Keys, Metrics, Trajectory, refuse_counts


class JudgedSteps(Trajectory):
    """Steps with the action probabilities of a policy, in each step's observation, closing ones too."""

    policy: Float[Any, "*batch actions"] = dataclasses.field(kw_only=True)


@dataclasses.dataclass(frozen=True)
class FQE:
    """Learns Q of the policy whose probabilities its steps bring with them.

    The target of Q(s, a) is r + γ Σ π(a′|s′) Q̄(s′, a′), the expectation exact and Q̄ the target network: no
    action of the data's own policy is in it but the first. Past a termination there is nothing; the last
    observation of a truncated episode is bootstrapped from. Q(o, a) is the reward head of g(h(o), a), a
    categorical like that of `cql`; f stays untrained.

    It is an agent for the learner's sake, and is trained on `JudgedSteps`: it is not among those that are
    found by name.

    Args:
        model: builds the model from a key, with one codec for rewards and values.
        positions: steps of a window that are trained on, each from its own observation.
    """

    model: Callable[[Key], LatentModel]
    positions: int = 6

    def __post_init__(self):
        refuse_counts(positions=self.positions)

    @property
    def window(self) -> int:
        """The number of steps T that a window must have."""
        return self.positions + 1

    def init(self, key: Key) -> LatentModel:
        """Returns a fresh model: its arrays are the parameters."""
        return with_one_codec(self.model(key))

    def qvalues(
        self, params: LatentModel, observation: Shaped[Array, "batch ..."]
    ) -> Float[Array, "batch actions"]:
        """Returns Q(o, ·)."""
        return params.value_codec.decode(q_logits(params, params.encode(observation)))

    def act(
        self,
        params: LatentModel,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        *,
        greedy: bool = False,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> Integer[Array, "batch"]:
        """Takes the action of the largest Q-value, a policy one better than the one that is evaluated."""
        del greedy
        return choose(mask_logits(self.qvalues(params, observation), invalid_actions), key, greedy=True)

    def loss(
        self, params: LatentModel, target_params: LatentModel, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch of windows `[B, T]` with T at least `window`."""
        del key
        if not isinstance(batch, JudgedSteps):
            raise TypeError(
                "FQE is trained on JudgedSteps: the steps of a data set with the probabilities of the policy "
                f"that is to be evaluated, got {type(batch).__name__}"
            )
        steps, boundary = observed_steps(batch, self.window)
        batch = cast(JudgedSteps, steps)
        flat = batch.observation.reshape(-1, *batch.observation.shape[2:])
        target_q = self.qvalues(target_params, flat).reshape(batch.policy.shape)
        values = jax.lax.stop_gradient(jnp.sum(batch.policy * target_q, axis=-1))
        returns = n_step_returns(batch, values, boundary, discount=params.discount, steps=1)
        batch, mask = jax.tree.map(lambda x: x[:, : self.positions], (batch, boundary.real))
        logits = params.step(encode_steps(params, batch), batch.action.reshape(-1))[1]
        logits = logits.reshape(*batch.action.shape, -1)
        entropy = optax.softmax_cross_entropy(logits, params.value_codec.encode(returns))
        # Every position counts the same, masked or not, so that no row changes the weight of another.
        loss = jnp.sum(jnp.where(mask, entropy, 0)) / mask.size
        return loss, {
            "loss": loss,
            "value": mean_of_windows(params.value_codec.decode(logits), mask),
            "value_target": mean_of_windows(returns, mask),
        }
