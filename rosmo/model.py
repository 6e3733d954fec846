"""The latent model: representation h, dynamics g and prediction f, with the codecs of reward and value."""

import dataclasses
import functools
import inspect
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer, Shaped

from rosmo.codec import Codec
from rosmo.networks.base import Networks, State, registry
from rosmo.networks.ensembles import Members, stacked
from rosmo.types import Key, RecurrentFnOutput, Root, map_arrays, refuse_counts, refuse_numbers

Pessimism = float | int | Literal["min"]


class Prediction(NamedTuple):
    """What f says of latent states, the values of an ensemble by each of its members."""

    policy_logits: Float[Array, "*batch actions"]
    value_logits: Float[Array, "*batch_and_members value_bins"]


class Unrolled(NamedTuple):
    """Predictions along K imagined steps: policy and value at K+1 states, rewards of the K steps between."""

    policy_logits: Float[Array, "batch positions actions"]
    value_logits: Float[Array, "batch positions *members value_bins"]
    reward_logits: Float[Array, "batch steps *members reward_bins"]


class LatentModel(eqx.Module):
    """h, g and f over batches of any leading axes.

    Parameters stay as they are stored (float32); the networks compute in `dtype`; logits come out as float32.

    Of an `ensemble` of M, the heads of reward and value have M members, and their logits an axis for them.
    What all members together say is their mean. Operators are shown a bound of it, by `pessimism` κ:

        v̂(s) = mean_m v_m(s) − κ·std_m v_m(s),
        r̂(s, a) + γ v̂(s′) = mean_m q_m(s, a) − κ·std_m q_m(s, a),  with q_m(s, a) = r_m(s, a) + γ v_m(s′).

    The deviation is that of a member's q as a whole, in which errors of r_m and of v_m may cancel; it is over
    the members alone (divided by M). A look-ahead of one step is shown exactly that. Along a path of a search
    Σ γᵏ r̂_k + γᵈ v̂_d is the mean less κ(std q₀ + Σ_{k≥1} γᵏ (std q_k − std v_k)): what is doubted of a state
    is taken off once, however far behind it the search looks. With "min" for κ, mean − κ·std is the minimum.
    κ < 0 is optimism.
    """

    networks: Networks
    reward_codec: Codec
    value_codec: Codec
    num_actions: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    dtype: str = eqx.field(static=True, default="float32")
    observation_shape: tuple[int, ...] | None = eqx.field(static=True, default=None)
    ensemble: int = eqx.field(static=True, default=1)
    pessimism: Pessimism = eqx.field(static=True, default=0.0)

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
    ) -> tuple[State, Float[Array, "batch *members reward_bins"]]:
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
            jnp.swapaxes(x.reshape(steps + 1, batch, *x.shape[1:]), 0, 1) for x in self.predict(states)
        )
        return Unrolled(policy_logits, value_logits, jnp.swapaxes(reward_logits, 0, 1))

    def root(self, state: State) -> Root:
        """Describes latent states as roots for an improvement operator."""
        prediction = self.predict(state)
        return Root(  # pyright: ignore[reportCallIssue]
            prior_logits=prediction.policy_logits,
            value=self.bound(self.value_codec.decode(prediction.value_logits)),
            embedding=state,
        )

    def mean_value(
        self, value_logits: Float[Array, "*batch_and_members value_bins"]
    ) -> Float[Array, "*batch"]:
        """Returns the values that logits stand for, of an ensemble the mean over its members."""
        return self.neutral.bound(self.value_codec.decode(value_logits))

    def mean_reward(
        self, reward_logits: Float[Array, "*batch_and_members reward_bins"]
    ) -> Float[Array, "*batch"]:
        """Returns the rewards that logits stand for, of an ensemble the mean over its members."""
        return self.neutral.bound(self.reward_codec.decode(reward_logits))

    def bound(self, members: Float[Array, "*batch_and_members"]) -> Float[Array, "*batch"]:
        """Returns what operators are shown of the numbers of all members; of a single one, its own."""
        if self.ensemble == 1:
            return members
        if self.pessimism == "min":
            return jnp.min(members, axis=-1)
        mean = jnp.mean(members, axis=-1)
        return mean if self.pessimism == 0 else mean - self.pessimism * deviation(members)

    def at_pessimism(self, pessimism: Pessimism) -> "LatentModel":
        """Returns the same model, as pessimistic as is said."""
        refuse_pessimism(pessimism)
        if self.ensemble == 1:
            raise ValueError(
                f"a pessimism of {pessimism!r} is of how far the members of an ensemble are apart, and this "
                "model has none: set ensemble too, as in ensemble = 5"
            )
        return dataclasses.replace(self, pessimism=pessimism)

    @property
    def neutral(self) -> "LatentModel":
        """The same model, neither pessimistic nor optimistic: what it says is the mean of its members."""
        return self if self.pessimism == 0 else dataclasses.replace(self, pessimism=0.0)

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
    rewards = model.reward_codec.decode(reward_logits)
    values = model.value_codec.decode(prediction.value_logits)
    value = model.bound(values)
    if model.ensemble == 1:
        reward = rewards
    else:
        reward = model.bound(rewards + model.discount * values) - model.discount * value
    output = RecurrentFnOutput(  # pyright: ignore[reportCallIssue]
        reward=reward,
        discount=jnp.full_like(reward, model.discount),
        prior_logits=prediction.policy_logits,
        value=value,
    )
    return output, state


def deviation(members: Float[Array, "*batch members"]) -> Float[Array, "*batch"]:
    """Returns the standard deviation over members, divided by M; where it is 0 its gradient is 0 too."""
    variance = jnp.var(members, axis=-1)
    positive = variance > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)


def refuse_pessimism(pessimism: Pessimism) -> None:
    """Refuses what is neither a finite number nor the word for the minimum."""
    number = isinstance(pessimism, numbers.Real) and not isinstance(pessimism, bool)
    if pessimism != "min" and not (number and math.isfinite(pessimism)):
        raise ValueError(f"pessimism must be a finite number, or 'min', got {pessimism!r}")


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
    ensemble: int = 1,
    ensemble_of: Literal["heads", "dynamics"] = "heads",
    prior_scale: float | int = 1.0,
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
        ensemble: M, members that say what reward and value are; 1 in the paper.
        ensemble_of: what each member has of its own, the "heads" of reward and value, or the "dynamics" and
            all behind it.
        prior_scale: β of the fixed random function that is added to the logits of each member.
        **sizes: passed on to the network.
    """
    refuse_counts(num_actions=num_actions)
    refuse_numbers(0, 1, discount=discount)
    if dtype not in ("float32", "bfloat16", "float16"):
        raise ValueError(f"dtype must be 'float32', 'bfloat16' or 'float16', got {dtype!r}")
    refuse_counts(ensemble=ensemble)
    refuse_numbers(above=True, prior_scale=prior_scale)
    if ensemble_of not in ("heads", "dynamics"):
        raise ValueError(f"ensemble_of must be 'heads' or 'dynamics', got {ensemble_of!r}")
    build = registry.get(network) if isinstance(network, str) else network
    value_codec = value_codec or Codec(_default_bins(build))
    reward_codec = reward_codec or value_codec
    build = functools.partial(
        build,
        observation_shape=tuple(observation_shape),
        num_actions=num_actions,
        num_value_bins=value_codec.bins,
        num_reward_bins=reward_codec.bins,
        **sizes,
    )
    parts = build(key) if ensemble == 1 else _ensemble(build, key, ensemble, ensemble_of, prior_scale)
    return LatentModel(
        parts, reward_codec, value_codec, num_actions, discount, dtype, tuple(observation_shape), ensemble
    )


def _ensemble(
    build: Callable[..., Networks], key: Key, members: int, of: str, prior_scale: float | int
) -> Networks:
    if "ensemble" not in inspect.signature(build).parameters:
        raise ValueError(
            f"an ensemble of {members} needs a network that takes `ensemble`, which builds its logits of "
            "reward and value, as the library's own do: this one does not, so leave ensemble at 1"
        )
    layer = functools.partial(Members, scale=float(prior_scale))
    if of == "dynamics":
        return stacked(functools.partial(build, ensemble=functools.partial(layer, members=1)), key, members)
    return build(key, ensemble=functools.partial(layer, members=members))


def _default_bins(build: Callable[..., Networks]) -> int:
    default = inspect.signature(build).parameters["num_value_bins"].default
    return Codec().bins if default is inspect.Parameter.empty else default


def _halve_gradient(x: Array) -> Array:
    return 0.5 * x + jax.lax.stop_gradient(0.5 * x)


def _as_float32(tree):
    return map_arrays(lambda x: x.astype(jnp.float32), tree)
