"""PPO in a world that doubts itself: MOReL (Kidambi et al., 2020) and MOPO (Yu et al., 2020)."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.agents.base import registry
from rosmo.agents.bc import choose
from rosmo.agents.ppo import gae, ppo_loss
from rosmo.networks.base import Output
from rosmo.networks.frozen import Frozen
from rosmo.networks.mlp import MLP
from rosmo.operators.base import mask_logits
from rosmo.types import Key, Keys, Metrics, Trajectory, refuse_counts, refuse_numbers, window_keys
from rosmo.worlds.acting import (
    EpisodeMemory,
    OnWorld,
    WorldBuilder,
    initial_memory,
    number_of_features,
    see,
)
from rosmo.worlds.base import Imagined, World, filter_window, last_acted, states_at
from rosmo.worlds.pessimistic import Doubts, Pessimistic, halt, refuse_certainty, subtract, uncertainties
from rosmo.worlds.rollouts import Rollout, rollout

View = Callable[[Imagined], Imagined]


class ActorCritic(eqx.Module):
    """Policy and value of features, which begin uniform and at 0."""

    torso: MLP
    policy: Output
    value: Output

    def __init__(self, key: Key, features: int, hidden: Sequence[int], num_actions: int):
        self.torso = MLP(key, [features, *hidden], activate_last=True)
        self.policy, self.value = Output(hidden[-1], num_actions), Output(hidden[-1], 1)

    def __call__(
        self, features: Float[Array, "batch features"]
    ) -> tuple[Float[Array, "batch actions"], Float[Array, "batch"]]:
        x = jax.vmap(self.torso)(features)
        return jax.vmap(self.policy)(x), jax.vmap(self.value)(x)[:, 0]


@dataclasses.dataclass(frozen=True)
class WorldPPO:
    """Proximal policy optimisation on episodes that a world imagines, from where the data has been.

    The old policy, which plays, is the target network: every update imagines episodes of it anew, each from
    the last step with an action of a window, and takes one step on them, its minibatch. So the target network
    is to be renewed as often as PPO plays anew, every 4 epochs × 4 minibatches = 16 updates; no episode is
    learned from twice. On a mesh every device normalises the advantages of its own episodes.

    Args:
        model: builds the world from a key, or one of its shapes.
        pessimism: makes of the doubts that the world has of the data how it is looked at: `halt` (MOReL) or
            `subtract` (MOPO) of `rosmo.worlds`, or one of your own.
        world: that is acted in, with its own parameters; `in_world` sets it.
        doubts: of the steps of the data; `in_world` sets it.
        context: steps of a window, all of which are seen before imagination begins.
        horizon: steps that are imagined, H.
        hidden: layers of policy and value.
        discount: γ.
        lambda_: λ, how far advantages look.
        clip: how far the ratio of new to old probabilities may move, and a value from its old one.
        clip_value: whether values are held back in this way too.
        normalise: whether the advantages of a minibatch get mean 0 and standard deviation 1.
        entropy: weight of the policy's entropy.
        value_weight: weight of the value loss.
    """

    model: WorldBuilder
    pessimism: Callable[[Doubts], View] = halt
    world: World | None = None
    doubts: Doubts | None = None
    context: int = 8
    horizon: int = 16
    hidden: Sequence[int] = (256,)
    discount: float = 0.99
    lambda_: float = 0.95
    clip: float = 0.1
    clip_value: bool = True
    normalise: bool = True
    entropy: float = 0.01
    value_weight: float = 0.5

    def __post_init__(self):
        refuse_counts(context=self.context, horizon=self.horizon)
        refuse_numbers(0, 1, discount=self.discount, lambda_=self.lambda_)
        refuse_numbers(above=True, clip=self.clip)
        refuse_numbers(entropy=self.entropy, value_weight=self.value_weight)
        if not self.hidden:
            raise ValueError(f"hidden needs a layer at least, as in (256,), got {self.hidden}")
        self.pessimism(np.zeros(1, np.float32))  # refuses settings that cannot be meant, before any work

    initial_memory = staticmethod(initial_memory)

    @property
    def window(self) -> int:
        """The number of steps T that a window must have."""
        return self.context

    def in_world(self, world: World, windows: Iterable[Trajectory]) -> "WorldPPO":
        """Returns the agent in a world, which is asked for its doubts of the data."""
        doubts = uncertainties(world, windows, jax.random.key(0))
        refuse_certainty(self.pessimism(doubts), world, doubts)
        return dataclasses.replace(self, world=world, doubts=doubts)

    def init(self, key: Key) -> OnWorld:
        """Returns fresh parameters: the policy, and the world as it is looked at."""
        key_world, key_policy = jax.random.split(key)
        world = self.model(key_world) if self.world is None else self.world
        doubts = np.zeros(1, np.float32) if self.doubts is None else self.doubts
        policy = ActorCritic(key_policy, number_of_features(world), self.hidden, world.num_actions)
        return OnWorld(policy, Frozen(Pessimistic(world, self.pessimism(doubts))))

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
        """Samples actions from the policy, or takes the greedy ones."""
        key_state, key_action = jax.random.split(key)
        state, features = see(params.world.thaw(), key_state, observation, memory)
        logits = mask_logits(params.head(features)[0], invalid_actions)
        action = choose(logits, key_action, greedy=greedy)
        return action, EpisodeMemory(state, action, jnp.ones_like(memory.begun))

    def loss(
        self, params: OnWorld, target_params: OnWorld, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns PPO's loss on episodes imagined from a batch of windows `[B, T]`."""
        keys = jax.vmap(jax.random.split)(window_keys(key, batch))
        world, old = params.world.thaw(), target_params.head
        states = filter_window(world, batch, keys[:, 0])
        start = states_at(states, last_acted(batch))

        def policy(features: Array, now: Keys) -> Array:
            return jax.vmap(jax.random.categorical)(now, old(features)[0]).astype(jnp.int32)

        played = rollout(world, start, policy, keys[:, 1], self.horizon)
        old_logits, old_value = jax.lax.stop_gradient(_along(old, played.features))
        discount = self.discount * played.discount
        advantage = gae(
            played.reward, discount, old_value[:, :-1], old_value[:, 1:], self.lambda_, time_axis=1
        )
        log_prob = jnp.take_along_axis(
            jax.nn.log_softmax(old_logits[:, :-1]), played.action[..., None], axis=-1
        )[..., 0]
        logits, value = _along(params.head, played.features[:, :-1])
        loss, metrics = ppo_loss(
            logits,
            value,
            played.action,
            log_prob,
            advantage,
            advantage + old_value[:, :-1],
            clip=self.clip,
            entropy=self.entropy,
            value_weight=self.value_weight,
            normalise=self.normalise,
            old_value=old_value[:, :-1] if self.clip_value else None,
            mask=played.alive,
        )
        return loss, metrics | _of_episodes(played)


def _along(
    network: ActorCritic, features: Float[Array, "batch time features"]
) -> tuple[Float[Array, "batch time actions"], Float[Array, "batch time"]]:
    out = network(features.reshape(-1, features.shape[-1]))
    return tuple(x.reshape(*features.shape[:2], *x.shape[1:]) for x in out)  # pyright: ignore[reportReturnType]


def _of_episodes(played: Rollout) -> Metrics:
    alive = played.alive.astype(jnp.float32)
    steps = jnp.sum(alive, axis=1)
    return {
        "imagined_return": jnp.mean(jnp.sum(alive * played.reward, axis=1)),
        "imagined_steps": jnp.mean(steps),
        "uncertainty": jnp.mean(jnp.sum(alive * played.uncertainty, axis=1) / steps),
    }


@registry.register("morel")
def morel(
    model: WorldBuilder,
    *,
    quantile: float | None = 0.99,
    coefficient: float | None = None,
    penalty: float = 1.0,
    **settings,
) -> WorldPPO:
    """MOReL: PPO in a world whose episodes end, at a price, where its members disagree."""
    how = {"quantile": quantile, "coefficient": coefficient, "penalty": penalty}
    return WorldPPO(model, functools.partial(halt, **how), **settings)


@registry.register("mopo")
def mopo(model: WorldBuilder, *, penalty: float = 1.0, **settings) -> WorldPPO:
    """MOPO: PPO in a world whose rewards are less by as much as its members disagree."""
    return WorldPPO(model, functools.partial(subtract, penalty=penalty), **settings)
