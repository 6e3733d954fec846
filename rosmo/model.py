"""The latent model: representation h, dynamics g and prediction f, with the codecs of reward and value."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer, Shaped

from rosmo.codec import Codec
from rosmo.networks.base import Networks, State, registry
from rosmo.types import Key, RecurrentFnOutput, Root, map_arrays, refuse_counts, refuse_numbers


class Prediction(NamedTuple):
    """What f says of latent states."""

    policy_logits: Float[Array, "*batch actions"]
    value_logits: Float[Array, "*batch value_bins"]


class Unrolled(NamedTuple):
    """Predictions along K imagined steps: policy and value at K+1 states, rewards of the K steps between."""

    policy_logits: Float[Array, "batch positions actions"]
    value_logits: Float[Array, "batch positions value_bins"]
    reward_logits: Float[Array, "batch steps reward_bins"]


class LatentModel(eqx.Module):
    """h, g and f over batches of any leading axes.

    Parameters stay as they are stored (float32); the networks compute in `dtype`; logits come out as float32.
    """

    networks: Networks
    reward_codec: Codec
    value_codec: Codec
    num_actions: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    dtype: str = eqx.field(static=True, default="float32")
    observation_shape: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def encode(self, observation: Shaped[Array, "batch ..."]) -> State:
        """Encodes observations as latent states: s⁰ = h(o)."""
        if self.observation_shape not in (None, observation.shape[1:]):
            expected = ", ".join(map(str, ("B", *self.observation_shape)))
            raise ValueError(
                f"this model takes a batch of observations, [{expected}], got an array of the shape "
                f"{list(observation.shape)}"
            )
        return jax.vmap(self._computing.representation)(self._cast(observation))

    def predict(self, state: State) -> Prediction:
        """Predicts policy and value of latent states: π, v = f(s)."""
        return Prediction(*_as_float32(jax.vmap(self._computing.prediction)(state)))

    def step(
        self, state: State, action: Integer[Array, "batch"]
    ) -> tuple[State, Float[Array, "batch reward_bins"]]:
        """Imagines one step: r, s′ = g(s, a), the reward as logits."""
        state, reward_logits = jax.vmap(self._computing.dynamics)(state, action)
        return state, _as_float32(reward_logits)

    def unroll(self, state: State, actions: Integer[Array, "batch steps"]) -> Unrolled:
        """Imagines along `actions`, with the gradient halved at the start of each dynamics step."""

        def body(state: State, action: Array):
            next_state, reward_logits = self.step(jax.tree.map(_halve_gradient, state), action)
            return next_state, (next_state, reward_logits)

        # Laid out one after the other, a few steps cost a quarter less than in a loop (on a CPU).
        _, (states, reward_logits) = jax.lax.scan(body, state, actions.T, unroll=min(8, actions.shape[1]))
        batch, steps = actions.shape
        # One axis of positions, not two: a weight's gradient is then a plain product.
        states = jax.tree.map(
            lambda root, rest: jnp.concatenate([root, rest.reshape(-1, *root.shape[1:])]), state, states
        )
        policy_logits, value_logits = (
            jnp.swapaxes(x.reshape(steps + 1, batch, -1), 0, 1) for x in self.predict(states)
        )
        return Unrolled(policy_logits, value_logits, jnp.swapaxes(reward_logits, 0, 1))

    def root(self, state: State) -> Root:
        """Describes latent states as roots for an improvement operator."""
        prediction = self.predict(state)
        return Root(  # pyright: ignore[reportCallIssue]
            prior_logits=prediction.policy_logits,
            value=self.value_codec.decode(prediction.value_logits),
            embedding=state,
        )

    def imagine_from(self, observation: Shaped[Array, "batch ..."]) -> tuple["LatentModel", Root]:
        """Returns the model that an operator is to imagine with, and the roots to imagine from.

        Observations are encoded in the model's own type, which is most of the work. What follows is in
        float32: an advantage is the difference of two values that bfloat16 can hardly tell apart.
        """
        precise = dataclasses.replace(self, dtype="float32")
        return precise, precise.root(_as_float32(self.encode(observation)))

    @property
    def _computing(self) -> Networks:
        return self._cast(self.networks)

    def _cast(self, tree):
        return map_arrays(lambda x: x.astype(self.dtype), tree)


def recurrent_fn(
    model: LatentModel, rng_key: Key, action: Integer[Array, "batch"], embedding: State
) -> tuple[RecurrentFnOutput, State]:
    """Lets operators and mctx's searches step a `LatentModel`, which takes the place of their `params`."""
    del rng_key
    state, reward_logits = model.step(embedding, action)
    prediction = model.predict(state)
    reward = model.reward_codec.decode(reward_logits)
    output = RecurrentFnOutput(  # pyright: ignore[reportCallIssue]
        reward=reward,
        discount=jnp.full_like(reward, model.discount),
        prior_logits=prediction.policy_logits,
        value=model.value_codec.decode(prediction.value_logits),
    )
    return output, state


def latent_model(
    key: Key,
    *,
    observation_shape: Sequence[int],
    num_actions: int,
    network: str | Callable[..., Networks] = "mlp",
    value_codec: Codec | None = None,
    reward_codec: Codec | None = None,
    discount: float = 0.997**4,
    dtype: str = "float32",
    **sizes,
) -> LatentModel:
    """Builds a latent model around a network from the registry, or a builder of one's own.

    Args:
        key: initialises the parameters.
        observation_shape: shape of one observation.
        num_actions: number of discrete actions.
        network: registered name, or a function with the same signature.
        value_codec: representation of values; where not given, one with the network's own number of bins
            (20 for `mlp`, 601 for `resnet`).
        reward_codec: representation of rewards; the value codec where not given.
        discount: γ of the imagined steps.
        dtype: what the networks compute in, "float32" or "bfloat16".
        **sizes: passed on to the network.
    """
    refuse_counts(num_actions=num_actions)
    refuse_numbers(0, 1, discount=discount)
    if dtype not in ("float32", "bfloat16", "float16"):
        raise ValueError(f"dtype must be 'float32', 'bfloat16' or 'float16', got {dtype!r}")
    build = registry.get(network) if isinstance(network, str) else network
    value_codec = value_codec or Codec(_default_bins(build))
    reward_codec = reward_codec or value_codec
    parts = build(
        key,
        observation_shape=tuple(observation_shape),
        num_actions=num_actions,
        num_value_bins=value_codec.bins,
        num_reward_bins=reward_codec.bins,
        **sizes,
    )
    return LatentModel(
        parts, reward_codec, value_codec, num_actions, discount, dtype, tuple(observation_shape)
    )


def _default_bins(build: Callable[..., Networks]) -> int:
    default = inspect.signature(build).parameters["num_value_bins"].default
    return Codec().bins if default is inspect.Parameter.empty else default


def _halve_gradient(x: Array) -> Array:
    return 0.5 * x + jax.lax.stop_gradient(0.5 * x)


def _as_float32(tree):
    return map_arrays(lambda x: x.astype(jnp.float32), tree)
