"""The recurrent state space model with discrete latents (DreamerV2), and an ensemble of its transitions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.networks.base import Linear
from rosmo.networks.mlp import MLP
from rosmo.types import Key, Keys, refuse_counts, refuse_numbers
from rosmo.worlds.base import Imagined, registry
from rosmo.worlds.coders import make_coders
from rosmo.worlds.distributions import pixels, straight_through
from rosmo.worlds.ensembles import disagreement

_PIXELS = ("bernoulli", "normal")


class RSSMState(NamedTuple):
    """h, and z with the logits that it was drawn from."""

    deterministic: Float[Array, "*batch deterministic"]
    latent: Float[Array, "*batch groups classes"]
    logits: Float[Array, "*batch groups classes"]


class GRU(eqx.Module):
    """A gated recurrent unit with layer normalisation, whose gate begins nearly closed (DreamerV2)."""

    linear: Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, key: Key, in_size: int, size: int):
        self.linear = Linear(key, in_size + size, 3 * size)
        self.norm = eqx.nn.LayerNorm(3 * size)

    def __call__(self, x: Float[Array, "in_size"], h: Float[Array, "size"]) -> Float[Array, "size"]:
        parts = self.norm(self.linear(jnp.concatenate([x, h])))
        reset, candidate, update = jnp.split(parts, 3)
        candidate = jnp.tanh(jax.nn.sigmoid(reset) * candidate)
        update = jax.nn.sigmoid(update - 1)
        return update * candidate + (1 - update) * h


class RSSM(eqx.Module):
    """h_t = f(h_{t−1}, z_{t−1}, a_{t−1}), z_t ~ q(z | h_t, o_t), and what is imagined ~ p_m(z | h_t).

    The ensemble are M heads p_m on the one h; one step is imagined with one of them. Reward and discount are
    read off (h_t, z_t) and follow a_{t−1}.
    """

    encoder: Any
    decoder: Any
    enter: Linear
    gru: GRU
    posterior: MLP
    priors: MLP  # every array has a leading axis of members
    reward: MLP
    discount: MLP
    groups: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    members: int = eqx.field(static=True)
    pixels: str = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    observation_shape: tuple[int, ...] = eqx.field(static=True)

    def begin(self, batch: int) -> RSSMState:
        """Returns zeros: before an episode nothing is known."""
        size = self.gru.norm.shape[0] // 3
        latent = jnp.zeros((batch, self.groups, self.classes), jnp.float32)
        return RSSMState(jnp.zeros((batch, size), jnp.float32), latent, latent)

    def scaled(self, observation: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """Returns observations as the decoder sees them."""
        return observation.astype(jnp.float32) / self.scale

    def embed(self, observation: Shaped[Array, "batch ..."]) -> Float[Array, "batch embedding"]:
        """Encodes observations."""
        if observation.shape[1:] != self.observation_shape:
            raise ValueError(
                f"this world takes a batch of observations of the shape {list(self.observation_shape)}, got "
                f"an array of the shape {list(observation.shape)}"
            )
        return jax.vmap(self.encoder)(self.scaled(observation))

    def observe(
        self,
        state: RSSMState,
        action: Integer[Array, "batch"],
        embedding: Float[Array, "batch embedding"],
        first: Bool[Array, "batch"],
        keys: Keys,
    ) -> RSSMState:
        """Returns posterior states."""
        before = jax.tree.map(
            lambda x: jnp.where(first.reshape(-1, *(1,) * (x.ndim - 1)), 0, x), state
        )  # as `begin`
        taken = jnp.where(first[:, None], 0, jax.nn.one_hot(action, self.num_actions))
        h = self._advance(before, taken)
        logits = jax.vmap(self.posterior)(jnp.concatenate([h, embedding], axis=-1))
        return self._drawn(h, logits.reshape(-1, self.groups, self.classes), keys)

    def prior_logits(
        self, deterministic: Float[Array, "batch deterministic"]
    ) -> Float[Array, "batch members groups classes"]:
        """Returns what every member expects of z, given h."""
        by_member = eqx.filter_vmap(lambda head, h: jax.vmap(head)(h), in_axes=(0, None), out_axes=1)
        logits = by_member(self.priors, deterministic)
        return logits.reshape(len(logits), self.members, self.groups, self.classes)

    def imagine(
        self,
        state: RSSMState,
        action: Integer[Array, "batch"],
        keys: Keys,
        member: Integer[Array, "batch"] | None = None,
    ) -> Imagined:
        """Imagines a step; the uncertainty is the disagreement of the members' distributions of z."""
        split = jax.vmap(jax.random.split)(keys)
        if member is None:
            member = jax.vmap(lambda key: jax.random.randint(key, (), 0, self.members))(split[:, 0])
        h = self._advance(state, jax.nn.one_hot(action, self.num_actions))
        logits = self.prior_logits(h)
        expected = jax.nn.softmax(logits).reshape(*logits.shape[:2], -1)
        chosen = jax.vmap(lambda row, m: row[m])(logits, member)
        after = self._drawn(h, chosen, split[:, 1])
        reward, going_on = self.outcome(self.features(after))
        return Imagined(after, reward, jax.nn.sigmoid(going_on), disagreement(expected))

    def features(self, state: RSSMState) -> Float[Array, "batch features"]:
        """Returns h and z side by side."""
        return jnp.concatenate([state.deterministic, state.latent.reshape(len(state.latent), -1)], axis=-1)

    def outcome(
        self, features: Float[Array, "batch features"]
    ) -> tuple[Float[Array, "batch"], Float[Array, "batch"]]:
        """Returns the mean reward on the way to states, and the logit of going on."""
        return jax.vmap(self.reward)(features)[:, 0], jax.vmap(self.discount)(features)[:, 0]

    def decode(self, features: Float[Array, "batch features"]) -> Any:
        """Returns the distribution of scaled observations."""
        return pixels(self.pixels, jax.vmap(self.decoder)(features), len(self.observation_shape))

    def reconstruct(self, state: RSSMState) -> Float[Array, "batch ..."]:
        """Returns the mean of the observations that states stand for."""
        return self.decode(self.features(state)).mean() * self.scale

    def _advance(
        self, state: RSSMState, action: Float[Array, "batch actions"]
    ) -> Float[Array, "batch deterministic"]:
        flat = jnp.concatenate([state.latent.reshape(len(action), -1), action], axis=-1)
        return jax.vmap(lambda x, h: self.gru(jax.nn.relu(self.enter(x)), h))(flat, state.deterministic)

    def _drawn(
        self, h: Float[Array, "batch deterministic"], logits: Float[Array, "batch groups classes"], keys: Keys
    ) -> RSSMState:
        return RSSMState(h, straight_through(logits, keys), logits)


@registry.register("rssm")
def rssm(
    key: Key,
    *,
    observation_shape: Sequence[int],
    num_actions: int,
    coder: str = "planes",
    pixels: str = "bernoulli",
    scale: float = 1.0,
    deterministic: int = 256,
    groups: int = 16,
    classes: int = 16,
    hidden: int = 256,
    channels: Sequence[int] = (16,),
    layers: Sequence[int] = (256,),
    heads: Sequence[int] = (256,),
    members: int = 5,
) -> RSSM:
    """A recurrent state space model with an ensemble of transition heads.

    Args:
        key: initialises the parameters.
        observation_shape: shape of one observation.
        num_actions: number of discrete actions.
        coder: "planes" for small images [H, W, C], "screen" for large ones, "vector" for anything else.
        pixels: distribution of an observation's numbers, "bernoulli" (from 0 to 1) or "normal".
        scale: that observations are divided by.
        deterministic: size of h.
        groups: categorical variables in z.
        classes: of each of them.
        hidden: size of the layers around the recurrence, and of the embedding.
        channels: of the convolutions of encoder and decoder.
        layers: of encoder and decoder, beside the convolutions.
        heads: hidden layers of the reward and of the discount.
        members: M, of the ensemble; MOReL and MOPO need two at least.
    """
    counts = {"deterministic": deterministic, "groups": groups, "classes": classes, "hidden": hidden}
    refuse_counts(num_actions=num_actions, members=members, **counts)
    refuse_numbers(above=True, scale=scale)
    if pixels not in _PIXELS:
        raise ValueError(f"pixels must be 'bernoulli' or 'normal', got {pixels!r}")
    keys = jax.random.split(key, 7)
    latent = groups * classes
    features = deterministic + latent
    sizes = {"channels": channels, "hidden": layers, "embedding": hidden}
    encoder, decoder = make_coders(keys[0], coder, observation_shape, features, **sizes)
    priors = eqx.filter_vmap(lambda k: MLP(k, [deterministic, hidden, latent]))
    return RSSM(
        encoder=encoder,
        decoder=decoder,
        enter=Linear(keys[1], latent + num_actions, hidden),
        gru=GRU(keys[2], hidden, deterministic),
        posterior=MLP(keys[3], [deterministic + hidden, hidden, latent]),
        priors=priors(jax.random.split(keys[4], members)),
        reward=MLP(keys[5], [features, *heads, 1]),
        discount=MLP(keys[6], [features, *heads, 1]),
        groups=groups,
        classes=classes,
        num_actions=num_actions,
        members=members,
        pixels=pixels,
        scale=scale,
        observation_shape=tuple(observation_shape),
    )
