"""Behaviour cloning, and what agents share that read every step of a window by itself."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.agents.base import entropy, mean_of_windows, registry
from rosmo.agents.targets import Boundary, find_boundary
from rosmo.model import LatentModel
from rosmo.networks.base import State
from rosmo.operators.base import mask_logits
from rosmo.types import Key, Keys, Metrics, Trajectory, refuse_counts


@registry.register("bc")
@dataclasses.dataclass(frozen=True)
class BC:
    """Clones the data set: its actions are the labels of the policy f(h(o)), whatever they were worth.

    Args:
        model: builds the model from a key; its dynamics and its value head stay untrained.
        positions: steps of a window that are trained on, each from its own observation.
    """

    model: Callable[[Key], LatentModel]
    positions: int = 6

    def __post_init__(self):
        refuse_counts(positions=self.positions)

    @property
    def window(self) -> int:
        """The number of steps T that a window must have."""
        return self.positions

    def init(self, key: Key) -> LatentModel:
        """Returns a fresh model: its arrays are the parameters."""
        return without_ensemble(self.model(key))

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

    def loss(
        self, params: LatentModel, target_params: LatentModel, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the cross entropy of a batch of windows `[B, T]`, with T at least `window`."""
        del target_params, key
        batch, boundary = observed_steps(batch, self.window)
        logits = policy_logits(params, encode_steps(params, batch), batch)
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels(logits, batch.action)
        # Every position counts the same, masked or not, so that no row changes the weight of another.
        loss = jnp.sum(jnp.where(boundary.real, cross_entropy, 0)) / boundary.real.size
        agrees = (jnp.argmax(logits, axis=-1) == batch.action).astype(logits.dtype)
        return loss, {
            "loss": loss,
            "loss/policy": loss,
            "policy_entropy": mean_of_windows(entropy(logits), boundary.real),
            "accuracy": mean_of_windows(agrees, boundary.real),
        }


def without_ensemble(model: LatentModel) -> LatentModel:
    """Returns a model without an ensemble, or refuses one of whose members nothing would be asked."""
    if model.ensemble > 1:
        raise ValueError(
            f"this agent has no operator that an ensemble of {model.ensemble} could make pessimistic: leave "
            "ensemble at 1"
        )
    return model


def observed_steps(batch: Trajectory, window: int) -> tuple[Trajectory, Boundary]:
    """Cuts windows to their first `window` steps and clears what is not of their first episode.

    Observations beyond the end become 0, as do actions that were never taken: a masked loss would still pass
    0·nan back to the parameters.
    """
    if batch.action.ndim != 2 or batch.action.shape[1] < window:
        raise ValueError(
            f"this agent trains on windows of at least {window} steps, [B, {window}], got actions of shape "
            f"{list(batch.action.shape)}"
        )
    batch = jax.tree.map(lambda x: x[:, :window], batch)
    boundary = find_boundary(batch)
    shape = boundary.observed.shape + (1,) * (batch.observation.ndim - 2)
    observation = jnp.where(boundary.observed.reshape(shape), batch.observation, 0)
    action = jnp.where(boundary.real, batch.action, 0)
    return dataclasses.replace(batch, observation=observation, action=action), boundary


def encode_steps(model: LatentModel, batch: Trajectory) -> State:
    """Encodes every step of a batch `[B, T]`, as states of one axis `[B·T]`."""
    return model.encode(batch.observation.reshape(-1, *batch.observation.shape[2:]))


def policy_logits(model: LatentModel, states: State, batch: Trajectory) -> Float[Array, "batch time actions"]:
    """Returns the policy of states `[B·T]`, without the actions that a batch `[B, T]` forbids."""
    logits = model.predict(states).policy_logits
    return mask_logits(logits.reshape(*batch.action.shape, -1), batch.invalid_actions)


def choose(logits: Float[Array, "batch actions"], key: Key, *, greedy: bool) -> Integer[Array, "batch"]:
    """Samples an action from each row of logits, or takes the greedy one."""
    action = jnp.argmax(logits, axis=-1) if greedy else jax.random.categorical(key, logits)
    return action.astype(jnp.int32)
