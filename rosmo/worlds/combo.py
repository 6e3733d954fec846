"""COMBO (Yu et al., 2021) for discrete actions: CQL on a world's features, of the data and of imagination."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.agents.base import mean_of_windows, registry
from rosmo.agents.cql import CQL, Terms
from rosmo.model import LatentModel, latent_model
from rosmo.networks.frozen import Frozen
from rosmo.types import Key, Keys, Metrics, Trajectory, refuse_counts, refuse_numbers, window_keys
from rosmo.worlds.acting import (
    EpisodeMemory,
    OnWorld,
    WorldBuilder,
    initial_memory,
    number_of_features,
    see,
)
from rosmo.worlds.base import World, align, filter_window, last_acted, states_at
from rosmo.worlds.rollouts import as_trajectory, rollout

_ALPHA = {"cql": 1.0, "combo": 0.02}


@registry.register("combo")
@dataclasses.dataclass(frozen=True)
class COMBO:
    """Learns Q-values of a world's features from the data and from what the world imagines of its policy.

    Every window of the data gives one rollout too, from its last step with an action, by one random member of
    the ensemble. The policy that is imagined takes the best action of the target network, or with a small
    probability any. Q-learning is the library's CQL on a mix of the two. Its penalty is CQL's on the mix, as
    ROSMO's paper describes it, or COMBO's own, α(E_imagined[log Σₐ exp Q(s, a)] − E_data[Q(s, a)]). Its two
    expectations are of other states, and nothing holds their difference from below: with a large α a
    categorical Q runs away to the ends of its support.

    Args:
        model: builds the world from a key, or one of its shapes.
        head: builds the model whose reward head has the Q-values, as `latent_model` does.
        world: that is imagined with, with its own parameters; `in_world` sets it.
        penalty: "cql", down and up on the mix; or "combo", down where it is imagined and up on the data.
        ratio: f, the share of the data in the mix.
        horizon: steps of a rollout.
        exploration: probability of any action in place of the best in a rollout.
        alpha: α, the weight of the penalty; where not given, 1 of "cql" and 0.02 of "combo".
        context: steps that are seen before those that are trained on.
        positions: steps of a window that are trained on.
        td_steps: n, the rewards in a target.
    """

    model: WorldBuilder
    head: Callable[..., LatentModel] = latent_model
    world: World | None = None
    penalty: Literal["combo", "cql"] = "cql"
    ratio: float = 0.5
    horizon: int = 10
    exploration: float = 0.1
    alpha: float | None = None
    context: int = 4
    positions: int = 6
    td_steps: int = 1

    def __post_init__(self):
        if self.penalty not in _ALPHA:
            raise ValueError(f"penalty must be 'combo' or 'cql', got {self.penalty!r}")
        refuse_counts(0, context=self.context)
        refuse_counts(positions=self.positions, td_steps=self.td_steps)
        refuse_counts(self.td_steps, horizon=self.horizon)
        refuse_numbers(0, 1, ratio=self.ratio, exploration=self.exploration)
        refuse_numbers(alpha=self._alpha)

    initial_memory = staticmethod(initial_memory)

    @property
    def window(self) -> int:
        """The number of steps T that a window must have."""
        return self.context + self.positions + self.td_steps

    def in_world(self, world: World, windows: Iterable[Trajectory]) -> "COMBO":
        """Returns the agent in a world."""
        del windows
        return dataclasses.replace(self, world=world)

    def init(self, key: Key) -> OnWorld:
        """Returns fresh parameters: the Q-values, and the world."""
        key_world, key_head = jax.random.split(key)
        world = self.model(key_world) if self.world is None else self.world
        shape = {"observation_shape": (number_of_features(world),), "num_actions": world.num_actions}
        return OnWorld(self._learner(lambda key: self.head(key, **shape)).init(key_head), Frozen(world))

    def act(
        self,
        params: OnWorld,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        memory: EpisodeMemory,
        *,
        greedy: bool = False,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> tuple[Integer[Array, "batch"], EpisodeMemory]:
        """Takes the action of the largest Q-value, also where not asked to be greedy, as CQL does."""
        state, features = see(params.world.thaw(), key, observation, memory)
        how = {"greedy": greedy, "invalid_actions": invalid_actions}
        action = self._learner().act(params.head, key, features, **how)
        return action, EpisodeMemory(state, action, jnp.ones_like(memory.begun))

    def loss(
        self, params: OnWorld, target_params: OnWorld, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch of windows `[B, T]` with T at least `window`."""
        real, dreamt = self.mix(params, target_params, batch, window_keys(key, batch))
        seen = self._learner().terms(params.head, target_params.head, real)
        imagined = self._learner(positions=self.horizon + 1 - self.td_steps)
        imagined = imagined.terms(params.head, target_params.head, dreamt)

        def mixed(name: str) -> Float[Array, ""]:
            parts = [terms.mean(getattr(terms, name)) for terms in (seen, imagined)]
            return self.ratio * parts[0] + (1 - self.ratio) * parts[1]

        excess = _apart(imagined, seen) if self.penalty == "combo" else mixed("excess")
        losses = {"value": mixed("value"), "conservative": self._alpha * excess}
        loss = sum(losses.values(), jnp.zeros(()))
        return loss, {f"loss/{name}": value for name, value in losses.items()} | {
            "loss": loss,
            "value": mean_of_windows(seen.q_taken, seen.mask),
            "value_target": mean_of_windows(seen.target, seen.mask),
            "accuracy": mean_of_windows(seen.agrees, seen.mask),
            "imagined_value": mean_of_windows(imagined.q_taken, imagined.mask),
            "imagined_steps": jnp.mean(jnp.sum(imagined.mask, axis=1).astype(jnp.float32)),
        }

    def mix(
        self, params: OnWorld, target_params: OnWorld, batch: Trajectory, keys: Keys
    ) -> tuple[Trajectory, Trajectory]:
        """Returns windows of the data, and a rollout of each; their observations are features."""
        keys = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
        world = params.world.thaw()
        batch = jax.tree.map(lambda x: x[:, : self.window], batch)
        states = filter_window(world, batch, keys[:, 0])
        flat = world.features(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states))
        features = flat.reshape(*batch.action.shape, -1)
        real = _cut(dataclasses.replace(batch, observation=features), self.context)
        member = jax.vmap(lambda key: jax.random.randint(key, (), 0, world.members))(keys[:, 1])
        start = states_at(states, last_acted(batch))
        learner = self._learner()

        def policy(features: Array, now: Keys) -> Array:
            best = learner.act(target_params.head, now[0], features)
            draws = jax.vmap(jax.random.split)(now)
            other = jax.vmap(lambda key: jax.random.randint(key, (), 0, world.num_actions))(draws[:, 0])
            return jnp.where(jax.vmap(jax.random.uniform)(draws[:, 1]) < self.exploration, other, best)

        dreamt = as_trajectory(rollout(world, start, policy, keys[:, 2], self.horizon, member=member))
        if batch.invalid_actions is not None:  # the world does not know which it would forbid
            real = dataclasses.replace(real, invalid_actions=None)
        return jax.lax.stop_gradient((real, dreamt))

    @property
    def _alpha(self) -> float:
        return _ALPHA[self.penalty] if self.alpha is None else self.alpha

    def _learner(self, model: Callable | None = None, positions: int | None = None) -> CQL:
        model = self.head if model is None else model
        return CQL(model, positions=positions or self.positions, td_steps=self.td_steps)


def _apart(imagined: Terms, seen: Terms) -> Float[Array, ""]:
    """E_imagined[log Σₐ exp Q(s, a)] − E_data[Q(s, a)], each over the steps that there are."""
    down = mean_of_windows(imagined.soft_maximum, imagined.mask)
    return down - mean_of_windows(seen.q_taken, seen.mask)


def _cut(batch: Trajectory, context: int) -> Trajectory:
    """Leaves out the first `context` steps of windows, or of those whose next step has no action the last."""
    acted = (align(batch).observed & ~batch.is_last)[:, context]
    start, length = jnp.where(acted, context, 0), batch.action.shape[1] - context

    def rows(x: Array) -> Array:
        return jax.vmap(lambda row, first: jax.lax.dynamic_slice_in_dim(row, first, length))(x, start)

    return jax.tree.map(rows, batch)
