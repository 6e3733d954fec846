"""Conservative Q-Learning (Kumar et al., 2020), the form CQL(H) for discrete actions."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.agents.base import mean_of_windows, registry
from rosmo.agents.bc import choose, encode_steps, observed_steps
from rosmo.agents.crr import q_logits, with_one_codec
from rosmo.agents.targets import n_step_returns
from rosmo.model import LatentModel
from rosmo.operators.base import mask_logits
from rosmo.types import Key, Keys, Metrics, Trajectory, refuse_counts, refuse_numbers


@registry.register("cql")
@dataclasses.dataclass(frozen=True)
class CQL:
    """Learns Q-values that are held down where the data set took no action.

    Q(o, a) is the reward head of g(h(o), a), trained as a categorical on double Q-learning targets, and the
    penalty α(log Σₐ exp Q(s, a) − Q(s, a_data)) works on the number that the codec makes of it. The
    prediction network stays untrained. α and the single reward of a target are those of the published code,
    which has quantiles in place of the categorical.

    Args:
        model: builds the model from a key, with one codec for rewards and values.
        alpha: α, the weight of the penalty.
        positions: steps of a window that are trained on, each from its own observation.
        td_steps: n, the rewards in a target.
    """

    model: Callable[[Key], LatentModel]
    alpha: float = 1.0
    positions: int = 6
    td_steps: int = 1

    def __post_init__(self):
        refuse_numbers(alpha=self.alpha)
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
        """Takes the action of the largest Q-value, also where not asked to be greedy: it has no policy."""
        del greedy
        q = params.value_codec.decode(q_logits(params, params.encode(observation)))
        return choose(mask_logits(q, invalid_actions), key, greedy=True)

    def probabilities(
        self,
        params: LatentModel,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        *,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> Float[Array, "batch actions"]:
        """Returns a probability of one for the action that it takes."""
        action = self.act(params, key, observation, invalid_actions=invalid_actions)
        return jax.nn.one_hot(action, params.num_actions)

    def values(self, params: LatentModel, observation: Shaped[Array, "batch ..."]) -> Float[Array, "batch"]:
        """Returns the largest Q(s, a), that of the greedy action."""
        return jnp.max(params.value_codec.decode(q_logits(params, params.encode(observation))), axis=-1)

    def loss(
        self, params: LatentModel, target_params: LatentModel, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch of windows `[B, T]` with T at least `window`."""
        del key
        terms = self.terms(params, target_params, batch)
        losses = {"value": terms.mean(terms.value), "conservative": self.alpha * terms.mean(terms.excess)}
        loss = sum(losses.values(), jnp.zeros(()))
        return loss, {f"loss/{name}": value for name, value in losses.items()} | {
            "loss": loss,
            "value": mean_of_windows(terms.q_taken, terms.mask),
            "value_target": mean_of_windows(terms.target, terms.mask),
            "accuracy": mean_of_windows(terms.agrees, terms.mask),
        }

    def terms(self, params: LatentModel, target_params: LatentModel, batch: Trajectory) -> "Terms":
        """Returns what the loss is made of, position by position."""
        batch, boundary = observed_steps(batch, self.window)
        logits = _q_logits(params, batch)
        q = mask_logits(params.value_codec.decode(logits), batch.invalid_actions)
        values = _double_q_values(q, target_params, batch)
        returns = n_step_returns(batch, values, boundary, discount=params.discount, steps=self.td_steps)
        batch, mask, logits, q = jax.tree.map(
            lambda x: x[:, : self.positions], (batch, boundary.real, logits, q)
        )
        q_taken, taken = (_of_action(x, batch.action) for x in (q, logits))
        return Terms(
            value=optax.softmax_cross_entropy(taken, params.value_codec.encode(returns)),
            soft_maximum=jax.nn.logsumexp(q, axis=-1),
            q_taken=q_taken,
            target=returns,
            agrees=(jnp.argmax(q, axis=-1) == batch.action).astype(q.dtype),
            mask=mask,
        )


class Terms(NamedTuple):
    """What CQL's loss is made of; where `mask` is not set there was no action, and nothing is meant."""

    value: Float[Array, "batch positions"]  # the cross entropy of Q(s, a) with its target
    soft_maximum: Float[Array, "batch positions"]  # log Σₐ exp Q(s, a)
    q_taken: Float[Array, "batch positions"]
    target: Float[Array, "batch positions"]
    agrees: Float[Array, "batch positions"]  # 1 where the best action is that of the data
    mask: Bool[Array, "batch positions"]

    @property
    def excess(self) -> Float[Array, "batch positions"]:
        """log Σₐ exp Q(s, a) − Q(s, a_data)."""
        return self.soft_maximum - self.q_taken

    def mean(self, term: Float[Array, "batch positions"]) -> Float[Array, ""]:
        """Averages a term: each position counts the same, masked or not, so that no row changes another's."""
        return jnp.sum(jnp.where(self.mask, term, 0)) / self.mask.size


def _q_logits(model: LatentModel, batch: Trajectory) -> Float[Array, "batch time actions bins"]:
    logits = q_logits(model, encode_steps(model, batch))
    return logits.reshape(*batch.action.shape, *logits.shape[1:])


def _double_q_values(
    q: Float[Array, "batch time actions"], target: LatentModel, batch: Trajectory
) -> Float[Array, "batch time"]:
    """The target network's value of the action that the online network likes best."""
    target_q = target.value_codec.decode(_q_logits(target, batch))
    return jax.lax.stop_gradient(_of_action(target_q, jnp.argmax(q, axis=-1)))


def _of_action(
    x: Float[Array, "batch time actions *rest"], action: Array
) -> Float[Array, "batch time *rest"]:
    # Not indexed: the gradient would be a scatter, with which an update on a CPU takes 1.5 times as long.
    taken = action[..., None] == jnp.arange(x.shape[2])[None, None]
    return jnp.sum(jnp.where(taken.reshape(*taken.shape, *(1,) * (x.ndim - 3)), x, 0), axis=2)
