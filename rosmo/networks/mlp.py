"""Fully connected networks for vector observations (paper, BSuite)."""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
from jax import Array
from jaxtyping import Float, Integer, Shaped

from rosmo.networks.base import (
    AbstractDynamics,
    AbstractPrediction,
    AbstractRepresentation,
    Head,
    LayerBuilder,
    Linear,
    Networks,
    Output,
    logits_layer,
    registry,
)
from rosmo.types import Key, refuse_counts

_LOOKED_UP = 8  # more actions: a row is found sooner than by a product, on a CPU and with the gradient


class MLP(eqx.Module):
    """Linear layers with rectifiers between them, and none after the last unless `activate_last`."""

    layers: tuple[Linear, ...]
    activate_last: bool = eqx.field(static=True)

    def __init__(self, key: Key, sizes: Sequence[int], *, activate_last: bool = False):
        for size in sizes:
            refuse_counts(**{"the size of a layer": size})
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(Linear(*args) for args in zip(keys, sizes[:-1], sizes[1:], strict=True))
        self.activate_last = activate_last

    def __call__(self, x: Float[Array, "in_size"]) -> Float[Array, "out_size"]:
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if self.activate_last or index + 1 < len(self.layers):
                x = jax.nn.relu(x)
        return x


class MLPRepresentation(AbstractRepresentation):
    """Flattens the observation into an MLP."""

    mlp: MLP

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, "state"]:
        """Encodes one observation."""
        return self.mlp(observation.reshape(-1).astype(self.mlp.layers[0].weight.dtype))


class MLPDynamics(AbstractDynamics):
    """An MLP on the state and the one-hot action, with a reward head on the next state."""

    from_state: Linear
    from_action: Float[Array, "actions hidden"]
    rest: MLP
    reward: Head

    def __init__(
        self,
        key: Key,
        state_size: int,
        num_actions: int,
        hidden: Sequence[int],
        head_size: int,
        reward_bins: int,
        ensemble: LayerBuilder | None = None,
    ):
        key_input, key_rest, key_reward = jax.random.split(key, 3)
        joint = Linear(key_input, state_size + num_actions, hidden[0])
        self.from_state = eqx.tree_at(lambda m: m.weight, joint, joint.weight[:state_size])
        self.from_action = joint.weight[state_size:]
        self.rest = MLP(key_rest, [*hidden, state_size])
        self.reward = Head(key_reward, state_size, head_size, reward_bins, ensemble)

    def __call__(
        self, state: Float[Array, "state"], action: Integer[Array, ""]
    ) -> tuple[Float[Array, "state"], Float[Array, "*members reward_bins"]]:
        """Takes one step; the first layer's product with the state does not depend on the action."""
        if len(self.from_action) > _LOOKED_UP:
            of_action = self.from_action[action]
        else:
            of_action = jax.nn.one_hot(action, len(self.from_action), dtype=state.dtype) @ self.from_action
        next_state = self.rest(jax.nn.relu(self.from_state(state) + of_action))
        return next_state, self.reward(next_state)


class MLPPrediction(AbstractPrediction):
    """A shared MLP with one zero-initialised layer each for policy and value."""

    torso: MLP
    policy: Output
    value: Callable[[Array], Array]

    def __init__(
        self,
        key: Key,
        state_size: int,
        hidden: Sequence[int],
        num_actions: int,
        value_bins: int,
        ensemble: LayerBuilder | None = None,
    ):
        self.torso = MLP(key, [state_size, *hidden], activate_last=True)
        self.policy = Output(hidden[-1], num_actions)
        self.value = logits_layer(key, hidden[-1], value_bins, ensemble)

    def __call__(
        self, state: Float[Array, "state"]
    ) -> tuple[Float[Array, "actions"], Float[Array, "*members value_bins"]]:
        """Predicts policy and value logits."""
        features = self.torso(state)
        return self.policy(features), self.value(features)


@registry.register("mlp")
def mlp(
    key: Key,
    *,
    observation_shape: Sequence[int],
    num_actions: int,
    num_value_bins: int = 20,
    num_reward_bins: int = 20,
    representation: Sequence[int] = (64, 64, 32),
    dynamics: Sequence[int] = (256,),
    prediction: Sequence[int] = (32,),
    ensemble: LayerBuilder | None = None,
) -> Networks:
    """Fully connected networks for vector observations.

    Args:
        key: initialises the parameters.
        observation_shape: shape of one observation; it is flattened.
        num_actions: number of discrete actions.
        num_value_bins: bins of the value codec.
        num_reward_bins: bins of the reward codec.
        representation: layer sizes of h; the last is the size of the latent state.
        dynamics: hidden sizes of g, between two latent states.
        prediction: hidden sizes of f; the reward head takes the last.
        ensemble: builds the layers of logits of reward and value for several members; None for one.
    """
    for name, sizes in (
        ("representation", representation),
        ("dynamics", dynamics),
        ("prediction", prediction),
    ):
        if not sizes:
            raise ValueError(f"{name} needs a layer at least, as in (64,), got {sizes}")
    keys = jax.random.split(key, 3)
    state_size = representation[-1]
    return Networks(
        MLPRepresentation(MLP(keys[0], [math.prod(observation_shape), *representation])),
        MLPDynamics(keys[1], state_size, num_actions, dynamics, prediction[-1], num_reward_bins, ensemble),
        MLPPrediction(keys[2], state_size, prediction, num_actions, num_value_bins, ensemble),
    )
