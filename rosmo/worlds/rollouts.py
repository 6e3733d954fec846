"""Episodes as a world imagines them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer

from rosmo.types import Keys, Trajectory
from rosmo.worlds.base import State, World

Policy = Callable[[Float[Array, "batch features"], Keys], Integer[Array, "batch"]]


class Rollout(NamedTuple):
    """H steps from each of some states; step t goes from `features[:, t]` to `features[:, t + 1]`."""

    features: Float[Array, "batch positions features"]  # H + 1
    action: Integer[Array, "batch steps"]
    reward: Float[Array, "batch steps"]
    discount: Float[Array, "batch steps"]  # 1, or 0 where the step ended the episode
    alive: Bool[Array, "batch steps"]  # not after the episode's end
    uncertainty: Float[Array, "batch steps"]


def rollout(
    world: World,
    state: State,
    policy: Policy,
    keys: Keys,
    length: int,
    *,
    member: Integer[Array, "batch"] | None = None,
) -> Rollout:
    """Imagines episodes from given states.

    An episode ends at a step with the probability that the world has for it; what it would imagine after that
    is not `alive`. Nothing of it has a gradient.

    Args:
        world: what imagines.
        state: to begin with.
        policy: chooses actions by features.
        keys: of the rollouts, one each.
        length: H.
        member: of the ensemble that imagines a whole rollout; where not given, each step has one by chance.
    """
    draws = jax.vmap(lambda key: jax.random.split(key, (length, 3)))(keys)

    def step(carry: tuple[State, Array], now: Keys) -> tuple[tuple[State, Array], tuple]:
        state, alive = carry
        features = world.features(state)
        action = policy(features, now[:, 0])
        imagined = world.imagine(state, action, now[:, 1], member)
        going_on = jax.vmap(jax.random.uniform)(now[:, 2]) < imagined.discount
        taken = (features, action, imagined.reward, going_on, alive, imagined.uncertainty)
        return (imagined.state, alive & going_on), taken

    alive = jnp.ones(len(keys), bool)
    (last, _), along = jax.lax.scan(step, (state, alive), jnp.swapaxes(draws, 0, 1))
    features, action, reward, going_on, alive, uncertainty = (jnp.swapaxes(x, 0, 1) for x in along)
    features = jnp.concatenate([features, world.features(last)[:, None]], axis=1)
    found = Rollout(features, action, reward, going_on.astype(reward.dtype), alive, uncertainty)
    return jax.lax.stop_gradient(found)


def as_trajectory(rolled: Rollout) -> Trajectory:
    """Returns rollouts as windows `[B, H + 1]` of one episode each, whose observations are features.

    One that did not end is cut off after H steps.
    """
    pad = ((0, 0), (0, 1))
    ended = jnp.pad(rolled.alive & (rolled.discount == 0), ((0, 0), (1, 0)))
    steps = jnp.arange(ended.shape[1])[None]
    return Trajectory(
        observation=rolled.features,
        action=jnp.pad(rolled.action, pad),
        reward=jnp.pad(rolled.reward, pad),
        discount=jnp.pad(rolled.discount, pad),
        is_first=jnp.broadcast_to(steps == 0, ended.shape),
        is_last=ended | (steps == steps[:, -1:]),
        is_terminal=ended,
    )
