"""Worlds that pay for doubt: the pessimistic MDPs of MOReL and of MOPO, over any world."""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.types import Keys, Trajectory, refuse_numbers
from rosmo.worlds.base import Imagined, State, World, align, filter_window

Doubts = Float[np.ndarray, "steps"]  # the uncertainty of each step of the data


class Halt(eqx.Module):
    """MOReL: where the uncertainty is above a threshold, the episode ends with a penalty for its reward."""

    threshold: Float[Array, ""]
    penalty: Float[Array, ""]

    def __call__(self, imagined: Imagined) -> Imagined:
        unknown = imagined.uncertainty > self.threshold
        return imagined._replace(
            reward=jnp.where(unknown, -self.penalty, imagined.reward),
            discount=jnp.where(unknown, 0, imagined.discount),
        )


class Subtract(eqx.Module):
    """MOPO: r − λu."""

    weight: Float[Array, ""]

    def __call__(self, imagined: Imagined) -> Imagined:
        return imagined._replace(reward=imagined.reward - self.weight * imagined.uncertainty)


def refuse_certainty(view: Callable[[Imagined], Imagined], world: World, doubts: Doubts) -> None:
    """Refuses to pay for disagreement where there is nobody to disagree with."""
    pays = isinstance(view, Halt) or (isinstance(view, Subtract) and float(view.weight) > 0)
    if pays and world.members < 2 and not doubts.any():
        raise ValueError(
            "MOReL and MOPO go by how far the members of a world are apart, and this one has a single member "
            "and no doubts: give it members = 2 or more, or do without, by MOPO with penalty = 0"
        )


class Pessimistic(eqx.Module):
    """A world of which what is imagined passes through a view of it, such as `Halt` or `Subtract`."""

    world: Any  # a World
    view: Callable[[Imagined], Imagined]

    @property
    def num_actions(self) -> int:
        """Those of the world."""
        return self.world.num_actions

    @property
    def members(self) -> int:
        """Those of the world."""
        return self.world.members

    def begin(self, batch: int) -> State:
        """As the world begins."""
        return self.world.begin(batch)

    def embed(self, observation: Shaped[Array, "batch ..."]) -> Float[Array, "batch embedding"]:
        """As the world embeds."""
        return self.world.embed(observation)

    def observe(
        self,
        state: State,
        action: Integer[Array, "batch"],
        embedding: Float[Array, "batch embedding"],
        first: Bool[Array, "batch"],
        keys: Keys,
    ) -> State:
        """As the world observes: what was seen is beyond doubt."""
        return self.world.observe(state, action, embedding, first, keys)

    def imagine(
        self,
        state: State,
        action: Integer[Array, "batch"],
        keys: Keys,
        member: Integer[Array, "batch"] | None = None,
    ) -> Imagined:
        """Imagines as the world does, and looks at it pessimistically."""
        return self.view(self.world.imagine(state, action, keys, member))

    def features(self, state: State) -> Float[Array, "batch features"]:
        """Those of the world."""
        return self.world.features(state)

    def reconstruct(self, state: State) -> Float[Array, "batch ..."]:
        """As the world reconstructs."""
        return self.world.reconstruct(state)


def uncertainties(world: World, windows: Iterable[Trajectory], key: Array) -> Doubts:
    """Returns what the world doubts of the steps of the data: of every action where it was taken."""

    @jax.jit
    def of_batch(batch: Trajectory, keys: Keys) -> tuple[Array, Array]:
        states = filter_window(world, batch, keys)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states)
        action = jnp.where(batch.is_last, 0, batch.action).reshape(-1)
        draws = jax.vmap(lambda k: jax.random.split(k, batch.action.shape[1]))(keys).reshape(-1)
        doubt = world.imagine(flat, action, draws).uncertainty
        acted = align(batch).observed & ~batch.is_last
        return doubt, acted.reshape(-1)

    found = []
    for number, batch in enumerate(windows):
        keys = jax.random.split(jax.random.fold_in(key, number), len(batch.action))
        doubt, acted = jax.device_get(of_batch(batch, keys))
        found.append(doubt[acted])
    if not found:
        raise ValueError("a world is asked for its doubts of windows of its data, and there are none")
    return np.concatenate(found)


def halt(
    doubts: Doubts, *, quantile: float | None = 0.99, coefficient: float | None = None, penalty: float = 1.0
) -> Halt:
    """Returns MOReL's view of a world; the threshold is of the data's disagreement.

    Args:
        doubts: of the steps of the data.
        quantile: the share of them that is known; or else
        coefficient: that their maximum is divided by, as in mjrl (0.5 or 3 there).
        penalty: what an end in the unknown costs.
    """
    refuse_numbers(penalty=penalty)
    if (quantile is None) == (coefficient is None):
        raise ValueError(
            "the threshold is a quantile of the data's disagreement, or its maximum over a coefficient: give "
            f"one of the two, and None for the other, got {quantile} and {coefficient}"
        )
    if quantile is not None:
        refuse_numbers(0, 1, quantile=quantile)
        threshold = np.quantile(doubts, quantile)
    else:
        refuse_numbers(above=True, coefficient=coefficient)
        threshold = np.max(doubts) / coefficient
    return Halt(jnp.asarray(threshold, jnp.float32), jnp.asarray(penalty, jnp.float32))


def subtract(doubts: Doubts, *, penalty: float = 1.0) -> Subtract:
    """Returns MOPO's view of a world.

    Args:
        doubts: of the steps of the data, which it does not ask.
        penalty: λ, what is taken off a reward for each unit of disagreement.
    """
    del doubts
    refuse_numbers(penalty=penalty)
    return Subtract(jnp.asarray(penalty, jnp.float32))
