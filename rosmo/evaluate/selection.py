"""Judges trained policies by recorded episodes alone, to choose one without an environment."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from rosmo.agents import BC, FQE, Agent, JudgedSteps, Remembers
from rosmo.agents.base import Values
from rosmo.data.check import checked_steps
from rosmo.data.episodes import take_episodes
from rosmo.data.windows import WindowSampler, window_sampler
from rosmo.evaluate import off_policy
from rosmo.evaluate.off_policy import Episodes, Interval
from rosmo.evaluate.policies import action_probabilities, ask_all
from rosmo.learner import Learner, adamw
from rosmo.model import LatentModel
from rosmo.types import Key, Params, Trajectory, refuse_counts

ESTIMATORS = ("fqe", "dr", "wis", "model", "td_error")  # by which policies are ranked; the last is a foil
_FEW = 10  # episodes that importance sampling rests on
_RARE = 0.01  # a probability, of an action in the data
_OFTEN = 0.05  # a share of decisions


class Judgement(NamedTuple):
    """What the data says of a policy. All but the TD error are of discounted returns of whole episodes.

    `fqe` is fitted Q evaluation, `dr` doubly robust on it, `wis` weighted importance sampling, `model` the
    agent's own values, and `td_error` their root mean squared error over one step, which says how well they
    fit and not how good the policy is. `effective` is how many episodes the importance sampling rests on, and
    `rare` the share of decisions for actions that the data hardly has.
    """

    fqe: Interval
    dr: Interval
    wis: Interval
    model: float
    td_error: float
    effective: float
    rare: float
    doubts: tuple[str, ...]

    def estimate(self, name: str) -> float:
        """Returns what one estimator says, without its interval."""
        found = getattr(self, name)
        return found.mean if isinstance(found, Interval) else found


def ranked_by(name: str, estimate: float) -> float:
    """Returns what is the larger the better by an estimator: of the TD error, the smallest comes first."""
    return -estimate if name == "td_error" else estimate


class Judge:
    """Judges policies by the same episodes, each by a Q that is learned for it."""

    def __init__(
        self,
        steps: Trajectory,
        *,
        model: Callable[[Key], LatentModel],
        num_actions: int,
        learner: Callable[[Agent], Learner] | None = None,
        updates: int = 5_000,
        clone_updates: int = 2_000,
        seed: int = 0,
    ):
        """Clones the policy of the data.

        Args:
            steps: the data set, `[N]`, episodes one after the other.
            model: builds the networks of the clone and of Q.
            num_actions: that there are.
            learner: builds the learner of the clone and of Q. Where not given, one whose target network is
                renewed every 50 updates: rewards reach back by a step each time, and Q begins anew for
                each policy.
            updates: of each Q.
            clone_updates: of the clone.
            seed: of everything that is random.
        """
        refuse_counts(updates=updates, clone_updates=clone_updates)
        self._steps, self._starts = checked_steps(steps, window=1, num_actions=num_actions)
        self._num_actions, self._updates, self._seed = num_actions, updates, seed
        learner = learner or _learner
        self._fqe = FQE(model)
        self.discount = self._fqe.init(jax.random.key(seed)).discount
        self._learner = learner(self._fqe)
        clone = BC(model)
        source = window_sampler(self._steps, window=clone.window, num_actions=num_actions)
        trained = learner(clone)
        state, _ = trained.update_many(trained.init(jax.random.key(seed)), source, clone_updates)
        self.behavior = self._probabilities(clone, state.params)

    def __call__(self, agent: Agent | Remembers, params: Params, *, greedy: bool = False) -> Judgement:
        """Judges the policy of an agent, by its sampled or its greedy actions."""
        policy = self._probabilities(agent, params, greedy=greedy)
        fitted = self.evaluate(policy)
        discount = fitted.discount
        q = ask_all(self._fqe.qvalues, fitted, self._steps.observation).astype(np.float64)
        episodes = off_policy.episodes_of(self._steps, policy, self.behavior, discount=discount)
        values = off_policy.beside(self._steps, np.sum(policy * q, axis=1), closing=True)
        taken = np.where(self._steps.is_last, 0, self._steps.action)
        qvalues = off_policy.beside(self._steps, q[np.arange(len(q)), taken])
        count = len(values)
        found = {
            "fqe": off_policy.interval(lambda rows: float(np.mean(values[rows, 0])), count, self._seed),
            "dr": off_policy.interval(
                lambda rows: off_policy.doubly_robust(episodes.taking(rows), qvalues[rows], values[rows]),
                count,
                self._seed,
            ),
            "wis": off_policy.interval(
                lambda rows: off_policy.weighted_importance_sampling(episodes.taking(rows)), count, self._seed
            ),
        }
        own, td_error = self._own_values(agent, params, discount)
        effective, rare = off_policy.effective_episodes(episodes), self._rare(policy)
        doubts = tuple(_doubts(found["fqe"], episodes, effective, rare))
        return Judgement(**found, model=own, td_error=td_error, effective=effective, rare=rare, doubts=doubts)

    def evaluate(self, policy: Float[np.ndarray, "steps actions"]) -> LatentModel:
        """Learns Q of a policy that is given by its probabilities in every step of the data."""
        if policy.shape != (len(self._steps.action), self._num_actions):
            raise ValueError(
                "a policy has a probability for each action of each step, "
                f"{[len(self._steps.action), self._num_actions]}, got {list(policy.shape)}"
            )
        judged = JudgedSteps(**vars(self._steps), policy=policy.astype(np.float32))
        source = WindowSampler(jax.tree.map(jnp.asarray, judged), jnp.asarray(self._starts), self._fqe.window)
        state = self._learner.init(jax.random.key(self._seed))
        state, _ = self._learner.update_many(state, source, self._updates)
        self._learner.refuse_not_finite(state)
        return state.params

    def _probabilities(
        self, agent: Agent | Remembers, params: Params, **settings: Any
    ) -> Float[np.ndarray, "steps actions"]:
        return action_probabilities(
            agent, params, self._steps, num_actions=self._num_actions, seed=self._seed, **settings
        )

    def _own_values(self, agent: Agent | Remembers, params: Params, discount: float) -> tuple[float, float]:
        """The agent's own mean value of the first observations, and the error of its values over one step."""
        if not isinstance(agent, Values):
            return np.nan, np.nan
        steps = self._steps
        values = ask_all(agent.values, params, steps.observation).astype(np.float64)
        known = np.where(steps.is_last & steps.is_terminal, 0, values)
        real = np.flatnonzero(~steps.is_last)
        ahead = steps.reward[real] + discount * steps.discount[real] * known[real + 1]
        error = np.sqrt(np.mean(np.square(ahead - values[real])))
        return float(np.mean(values[np.flatnonzero(steps.is_first)])), float(error)

    def _rare(self, policy: Float[np.ndarray, "steps actions"]) -> float:
        """The share of decisions, on the data's observations, for actions that the clone hardly takes."""
        decided = ~self._steps.is_last
        return float(np.sum(np.where(self.behavior < _RARE, policy, 0)[decided]) / np.sum(decided))


def _learner(agent: Agent) -> Learner:
    return Learner(agent, adamw(warmup_steps=100), target_update_interval=50)


def choose_steps(steps: Trajectory, most: int, seed: int) -> Trajectory:
    """Returns whole episodes by chance, of at most so many steps together, and at least one episode."""
    ends = np.flatnonzero(steps.is_last)
    lengths = np.diff(np.append(-1, ends))
    order = np.random.default_rng(seed).permutation(len(ends))
    kept = order[np.cumsum(lengths[order]) <= most]
    return (
        steps if len(kept) == len(ends) else take_episodes(steps, np.sort(kept if kept.size else order[:1]))
    )


def _doubts(fqe: Interval, episodes: Episodes, effective: float, rare: float) -> Iterator[str]:
    """Yields what the estimates cannot be trusted in."""
    returns = off_policy.discounted_returns(episodes)
    if effective < _FEW:
        yield (
            f"importance sampling rests on {effective:.1f} of {len(returns):,} episodes: "
            "do not trust wis, and dr no more than fqe"
        )
    if rare > _OFTEN:
        yield f"{rare:.0%} of its decisions are for actions that the data hardly has: their worth is a guess"
    if not returns.min() <= fqe.mean <= returns.max():
        yield (
            f"fqe is outside of what any episode of the data earned, {returns.min():.4g} to "
            f"{returns.max():.4g}: the data cannot tell whether that is so"
        )
    if np.any(episodes.closing > 0):
        share = np.mean(episodes.closing > 0)
        yield f"wis counts the {share:.0%} of the episodes that were cut off as ended there"
