"""The library's own latent model as a world: what it was shown last is all that it knows."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.model import LatentModel, latent_model
from rosmo.types import Key, Keys
from rosmo.worlds.base import Imagined, State, registry


class LatentWorld(eqx.Module):
    """A `LatentModel`, whose states are encoded observations or what its dynamics makes of them.

    It foresees no end of an episode, imagines by the mean of an ensemble, and cannot reconstruct.
    """

    model: LatentModel
    members: int = eqx.field(static=True, default=1)

    @property
    def num_actions(self) -> int:
        """Those of the model."""
        return self.model.num_actions

    def begin(self, batch: int) -> State:
        """Returns zeros of the shape of states."""
        assert self.model.observation_shape is not None
        shown = jax.ShapeDtypeStruct((batch, *self.model.observation_shape), jnp.float32)
        state = eqx.filter_eval_shape(self.model.encode, shown)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), state)

    def embed(self, observation: Shaped[Array, "batch ..."]) -> Float[Array, "batch embedding"]:
        """Encodes observations."""
        return self._flat(self.model.encode(observation))

    def observe(
        self,
        state: State,
        action: Integer[Array, "batch"],
        embedding: Float[Array, "batch embedding"],
        first: Bool[Array, "batch"],
        keys: Keys,
    ) -> State:
        """Returns what the observations are encoded as, whatever came before."""
        del action, first, keys
        return self._like(embedding, state)

    def imagine(
        self,
        state: State,
        action: Integer[Array, "batch"],
        keys: Keys,
        member: Integer[Array, "batch"] | None = None,
    ) -> Imagined:
        """Takes a step of the dynamics."""
        del keys, member
        after, logits = self.model.step(state, action)
        reward = self.model.mean_reward(logits)
        return Imagined(after, reward, jnp.ones_like(reward), jnp.zeros_like(reward))

    def features(self, state: State) -> Float[Array, "batch features"]:
        """Returns states as vectors."""
        return self._flat(state)

    def reconstruct(self, state: State) -> Any:
        """Refuses: MuZero's states need not tell what was seen."""
        raise TypeError("a latent model has no decoder: train a world that has one, such as rssm")

    def _flat(self, state: State) -> Float[Array, "batch features"]:
        return jnp.concatenate([x.reshape(len(x), -1) for x in jax.tree.leaves(state)], axis=-1)

    def _like(self, flat: Float[Array, "batch features"], state: State) -> State:
        leaves, tree = jax.tree.flatten(state)
        sizes = [x[0].size for x in leaves]
        parts = jnp.split(flat, [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)], axis=-1)
        return tree.unflatten([part.reshape(x.shape) for part, x in zip(parts, leaves, strict=True)])


@registry.register("latent")
def latent(
    key: Key,
    *,
    observation_shape: tuple[int, ...],
    num_actions: int,
    **settings,
) -> LatentWorld:
    """The library's own latent model as a world.

    Args:
        key: initialises the parameters.
        observation_shape: shape of one observation.
        num_actions: number of discrete actions.
        **settings: of `rosmo.latent_model`, such as its network and the sizes of that.
    """
    spaces = {"observation_shape": observation_shape, "num_actions": num_actions}
    return LatentWorld(latent_model(key, **spaces, **settings))
