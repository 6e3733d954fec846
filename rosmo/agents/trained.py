"""A trained agent in the hands of a program: what it does, and why, of the observations that it is shown."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Integer

from rosmo.agents.base import Agent, Improves, Memory, Remembers, acting, begun_anew
from rosmo.operators import Improvement
from rosmo.types import Key, Params, refuse_counts

Actions = int | Integer[np.ndarray, "batch"]  # of one observation, or of a batch
Numbers = Any  # an array, or what NumPy makes one of


class TrainedAgent:
    """An agent with its parameters, which acts on observations as they come: one, or a batch of them.

    Each call is compiled when it is first made with so many observations. Where no seed is given, each call
    samples anew, and the same calls sample the same in every process.

    Attributes:
        agent: what was trained.
        params: its parameters, on one device.
        observation_shape: of a single observation.
        settings: what it was trained with, as far as that is known.
    """

    def __init__(
        self,
        agent: Agent | Remembers,
        params: Params,
        *,
        observation_shape: tuple[int, ...] | None = None,
        settings: Mapping[str, Any] | None = None,
    ):
        """Takes a trained agent.

        Args:
            agent: what was trained.
            params: its parameters, as `state.params` of a learner.
            observation_shape: of one observation (None: as the parameters say, which a `LatentModel` does).
            settings: what it was trained with, to look up.
        """
        shape = getattr(params, "observation_shape", None) if observation_shape is None else observation_shape
        if shape is None:
            raise ValueError("say observation_shape, the shape of one observation: the parameters do not")
        self.agent, self.observation_shape, self.settings = agent, tuple(shape), dict(settings or {})
        arrays, static = eqx.partition(params, eqx.is_array)
        arrays = jax.device_put(jax.device_get(arrays), jax.local_devices()[0])
        self.params = eqx.combine(arrays, static)
        leaves, tree = jax.tree.flatten(arrays)
        self._leaves = tuple(leaves)  # a flat tuple: to hand over a module takes longer than to act
        self._draws = 0
        begin, choose = acting(agent)

        def of(leaves: Any) -> Params:
            return eqx.combine(jax.tree.unflatten(tree, leaves), static)

        def act(leaves, seeds, observation, first, memory, legality, *, greedy: bool) -> Any:
            params = of(leaves)
            memory = begun_anew(first, begin(params, len(first)), memory)
            return choose(params, key_of(*seeds), observation, memory, greedy=greedy, **legality)

        def improve(leaves, seeds, observation, legality) -> Improvement:
            return agent.improve(of(leaves), key_of(*seeds), observation, **legality)  # pyright: ignore

        self._act = jax.jit(act, static_argnames="greedy")
        self._begin = jax.jit(lambda leaves, batch: begin(of(leaves), batch), static_argnums=1)
        self._improve = jax.jit(improve)

    def __repr__(self) -> str:
        return f"TrainedAgent({type(self.agent).__name__}, observation_shape={self.observation_shape})"

    @property
    def model(self) -> Params:
        """The parameters by another name: they are the model, as in `trained.model.encode(observations)`."""
        return self.params

    def act(
        self,
        observation: Numbers,
        *,
        greedy: bool = False,
        seed: int | None = None,
        invalid_actions: Numbers | None = None,
    ) -> Actions:
        """Returns an action for one observation, or the actions `[B]` for a batch of them.

        Args:
            observation: one, of the shape `observation_shape`, or a batch `[B, *observation_shape]`.
            greedy: the action of most weight, and not one sampled by the weights.
            seed: the same seed gives the same actions.
            invalid_actions: True where an action is not allowed, `[A]` or `[B, A]`.
        """
        if isinstance(self.agent, Remembers):
            raise TypeError(
                "this agent acts by all that it saw in an episode: play one by player = trained.start(), and "
                "ask player.act(observation)"
            )
        shown, single = self._batched(observation)
        actions, _ = self._chosen(shown, _none(len(shown)), None, seed, 0, greedy, invalid_actions)
        return int(actions[0]) if single else actions

    def start(
        self, episodes: int | None = None, *, greedy: bool = False, seed: int | None = None
    ) -> "Player":
        """Returns what plays an episode, or several side by side, and remembers what it has seen of each.

        Agents without a memory play through it too, so that a program need not know which kind it has.

        Args:
            episodes: how many, whose observations come as batches (None: one, of single observations).
            greedy: whether it takes the greedy actions.
            seed: the same seed and observations give the same actions.
        """
        if episodes is not None:
            refuse_counts(episodes=episodes)
        return Player(self, episodes, greedy, seed)

    def improve(
        self,
        observation: Numbers,
        *,
        seed: int | None = None,
        invalid_actions: Numbers | None = None,
    ) -> Improvement:
        """Returns what the agent's operator says of an observation, or of each of a batch: why it acts so.

        That is its improved policy (`action_weights`) and value, the q of each action where it has one, and
        the tree of a search, as NumPy arrays; of one observation they have no axis of a batch.
        """
        if not isinstance(self.agent, Improves):
            raise TypeError(f"{type(self.agent).__name__} has no improvement operator: ask it to act()")
        shown, single = self._batched(observation)
        legality = self._legality(invalid_actions, len(shown))
        improvement = jax.device_get(self._improve(self._leaves, self._seeds(seed, 0), shown, legality))
        return jax.tree.map(lambda x: x[0], improvement) if single else improvement

    def _batched(self, observation: Any) -> tuple[np.ndarray, bool]:
        """A batch of observations, and whether it was a single one that was given."""
        shown = _numbers(observation)
        if shown.shape == self.observation_shape:
            return shown[None], True
        if shown.ndim and len(shown) and shown.shape[1:] == self.observation_shape:
            return shown, False
        one = ", ".join(map(str, self.observation_shape))
        raise ValueError(
            f"an observation has the shape [{one}], and a batch of them [B, {one}]: got one of "
            f"{list(shown.shape)}"
        )

    def _chosen(
        self,
        shown: np.ndarray,
        first: Bool[np.ndarray, "batch"],
        memory: Memory,
        seed: int | None,
        time: int,
        greedy: bool,
        invalid_actions: Numbers | None,
    ) -> tuple[np.ndarray, Memory]:
        seeds, legality = self._seeds(seed, time), self._legality(invalid_actions, len(shown))
        actions, memory = self._act(self._leaves, seeds, shown, first, memory, legality, greedy=greedy)
        return np.asarray(actions), memory

    def _legality(self, invalid_actions: Numbers | None, count: int) -> dict[str, np.ndarray]:
        """The mask of a batch as a keyword, or nothing: not every agent takes one."""
        if invalid_actions is None:
            return {}
        mask = np.asarray(invalid_actions)
        if mask.dtype != bool and not np.isin(mask, (0, 1)).all():
            raise ValueError("invalid_actions are booleans, or 0 and 1: true where an action is not allowed")
        mask = mask.astype(bool)
        actions = getattr(self.params, "num_actions", mask.shape[-1] if mask.ndim else 1)
        if mask.shape not in ((actions,), (count, actions)):
            raise ValueError(
                f"invalid_actions has the shape [{actions}], or [{count}, {actions}] for a batch of {count}: "
                f"got one of {list(mask.shape)}"
            )
        if mask.all(axis=-1).any():
            raise ValueError("invalid_actions forbid every action")
        return {"invalid_actions": np.broadcast_to(mask, (count, actions))}

    def _seeds(self, seed: int | None, time: int) -> Integer[np.ndarray, "2"]:
        """A seed and a time, or where there is no seed, what no other call has."""
        if seed is None:
            self._draws += 1
            return np.array([2**32 - 1, self._draws % 2**32], np.uint32)
        refuse_counts(0, seed=seed)
        return np.array([seed % (2**32 - 1), time], np.uint32)


class Player:
    """A trained agent in the course of episodes: it remembers, if the agent does, until they begin anew."""

    def __init__(self, trained: TrainedAgent, episodes: int | None, greedy: bool, seed: int | None):
        self._trained, self._episodes, self._greedy, self._seed = trained, episodes, greedy, seed
        self._memory: Memory = trained._begin(trained._leaves, episodes or 1)
        self._time = 0

    def act(
        self,
        observation: Numbers,
        *,
        first: Numbers = False,
        invalid_actions: Numbers | None = None,
    ) -> Actions:
        """Returns the action for the next observation of the episode, or those `[B]` for each one's.

        Args:
            observation: the next one, or the next of each episode, `[B, ...]`.
            first: whether it begins an episode, of each if there are several; the first of all always does.
            invalid_actions: True where an action is not allowed, `[A]` or `[B, A]`.
        """
        shown, single = self._trained._batched(observation)
        count = None if single else len(shown)
        if count != self._episodes:
            plays = "one episode" if self._episodes is None else f"{self._episodes} episodes"
            seen = "one observation" if single else f"{count} of them"
            raise ValueError(
                f"this player plays {plays}, and was shown {seen}: say how many by trained.start(episodes)"
            )
        begins = np.asarray(first, bool) | (self._time == 0)
        if begins.shape not in ((), (len(shown),)):
            raise ValueError(
                f"first is one flag, or one for each of {len(shown)} episodes: got the shape "
                f"{list(begins.shape)}"
            )
        begins = np.broadcast_to(begins, len(shown))
        actions, self._memory = self._trained._chosen(
            shown, begins, self._memory, self._seed, self._time, self._greedy, invalid_actions
        )
        self._time += 1
        return int(actions[0]) if single else actions


def _numbers(observation: Any) -> np.ndarray:
    """An array of finite numbers, which alone is shown; a dictionary with one entry counts as that entry."""
    while isinstance(observation, Mapping) and len(observation) == 1:
        (observation,) = observation.values()
    try:
        shown = np.asarray(observation)
    except ValueError:  # parts of several shapes
        shown = np.asarray(None)
    real = shown.dtype.kind in "biu" or jax.numpy.issubdtype(shown.dtype, jax.numpy.floating)
    if not real:
        raise TypeError(
            f"an observation is an array of real numbers, and this {type(observation).__name__} is none (of "
            "what gymnasium's reset() and step() return, the observation is the first)"
        )
    if shown.dtype.kind not in "biu" and not np.isfinite(shown).all():
        raise ValueError("an observation has numbers that are not finite, by which no agent can act")
    return shown


def _none(count: int) -> Bool[np.ndarray, "batch"]:
    return np.zeros(count, bool)


def key_of(seed: Any, time: Any) -> Key:
    """Returns the key of a seed and a time, which may be traced."""
    return jax.random.fold_in(jax.random.key(seed), time)
