"""Windows of several roots, cut into windows of one root once their steps have been judged."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from rosmo.agents.judging import StepTargets
from rosmo.agents.targets import Boundary, find_boundary
from rosmo.types import Keys, Trajectory


class Rooted(NamedTuple):
    """Windows of one root `[N, T]`, N = B·R, those of a batch's first window before those of its second.

    `share` weighs them so that a mean over all is one over the batch's windows, each of them the mean over
    the roots that it has; it is None where that is the plain mean.
    """

    batch: Trajectory  # with the root's observation alone, [N, 1, ...], or with more
    targets: StepTargets
    boundary: Boundary
    keys: Keys
    share: Float[Array, "windows"] | None


def cut(batch: Trajectory, targets: StepTargets, keys: Keys, *, roots: int) -> Rooted:
    """Cuts windows `[B, roots − 1 + T]` and what was said of their steps into windows `[B·roots, T]`.

    Each is seen from its own first step, so one that begins behind an episode's end is of the next episode.
    One that would begin on a step without an action does not exist: nothing of it is read, and its window's
    mean is over fewer. The first always exists.
    """
    if roots == 1:
        boundary = find_boundary(batch)
        return Rooted(batch, _without_the_unobserved(targets, boundary), boundary, keys, None)

    def overlapping(x: Array) -> Array:
        length = x.shape[1] - roots + 1
        parts = jnp.stack([x[:, root : root + length] for root in range(roots)], axis=1)
        return parts.reshape(-1, *parts.shape[2:])

    exists = (~batch.is_last[:, :roots]).at[:, 0].set(True)
    share = jnp.where(exists, roots / jnp.sum(exists, axis=1, keepdims=True, dtype=jnp.float32), 0)
    exists = exists.reshape(-1)
    observation = _roots_of(batch, roots, exists)
    # A window of images would be large: of observations, the roots' alone.
    batch = jax.tree.map(overlapping, dataclasses.replace(batch, observation=batch.action))
    batch = dataclasses.replace(batch, observation=observation[:, None])
    boundary = Boundary(*(flag & exists[:, None] for flag in find_boundary(batch)))
    targets = _without_the_unobserved(jax.tree.map(overlapping, targets), boundary)
    return Rooted(batch, targets, boundary, keys_of_roots(keys, roots), share.reshape(-1))


def keys_of_roots(keys: Keys, roots: int) -> Keys:
    """Returns a key for each root of each window, `[B·roots]`: a window's own for its first root."""
    later = [jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, root) for root in range(1, roots)]
    return jnp.stack([keys, *later], axis=1).reshape(-1, *keys.shape[1:])


def _roots_of(batch: Trajectory, roots: int, exists: Bool[Array, "windows"]) -> Array:
    """The observations of all roots, 0 where there is none: padding may be `nan`, which no mask stops."""
    observation = batch.observation[:, :roots].reshape(-1, *batch.observation.shape[2:])
    return jnp.where(exists.reshape(-1, *(1,) * (observation.ndim - 1)), observation, 0)


def _without_the_unobserved(targets: StepTargets, boundary: Boundary) -> StepTargets:
    """Clears what was said of steps beyond the end: a masked loss would still pass 0·nan back."""

    def clear(x: Array) -> Array:
        observed = boundary.observed[:, : x.shape[1]]
        return jnp.where(observed.reshape(observed.shape + (1,) * (x.ndim - 2)), x, 0)

    return jax.tree.map(clear, targets)
