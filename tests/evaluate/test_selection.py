"""Choosing among policies from data alone, where the right choice is known."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Learner, adamw, agents, latent_model
from rosmo.evaluate import Judge, action_probabilities
from rosmo.evaluate.off_policy import Episodes, Interval
from rosmo.evaluate.ranking import rank
from rosmo.evaluate.selection import _doubts, choose_steps
from tests.agents.test_fqe import ACTIONS, GAMMA, STATES, exact, problem, record  # noqa: F401
from tests.tabular import softmax
from tests.windows import ON_WORLD


@dataclasses.dataclass(frozen=True)
class Tabular:
    """A policy by table, that says its probabilities or does not."""

    logits: tuple
    window: int = 2

    def init(self, key):
        return jnp.asarray(self.logits, jnp.float32)

    def loss(self, params, target_params, batch, key):
        return jnp.zeros(()), {}

    def act(self, params, key, observation, *, greedy=False, invalid_actions=None):
        logits = params[jnp.argmax(observation, axis=1)]
        logits = logits if invalid_actions is None else jnp.where(invalid_actions, -1e9, logits)
        return jnp.argmax(logits, axis=1) if greedy else jax.random.categorical(key, logits)


class Sayer(Tabular):
    def probabilities(self, params, key, observation, *, invalid_actions=None):
        return jax.nn.softmax(params[jnp.argmax(observation, axis=1)])

    def values(self, params, observation):
        return jnp.argmax(observation, axis=1).astype(jnp.float32)


def as_rows(logits: np.ndarray) -> tuple:
    return tuple(map(tuple, logits.tolist()))


@pytest.fixture(scope="module")
def judged(problem):  # noqa: F811
    """Four policies, from far worse than the data's own to far better, and what is said of each."""
    mdp, ends, _ = problem
    steps = record(mdp, ends, count=1_500)
    q = exact(mdp, ends, np.full((STATES, ACTIONS), 1 / ACTIONS))
    sizes = {"representation": (32,), "dynamics": (64,), "prediction": (32,), "discount": GAMMA}
    build = functools.partial(latent_model, observation_shape=(STATES,), num_actions=ACTIONS, **sizes)
    optimizer = adamw(learning_rate=3e-3, warmup_steps=10, decay_steps=700, weight_decay=0.0)
    judge = Judge(
        steps,
        model=build,
        num_actions=ACTIONS,
        learner=functools.partial(Learner, optimizer=optimizer, target_update_interval=50),
        updates=1_000,
        clone_updates=300,
    )
    first = np.flatnonzero(steps.is_first)
    start = np.bincount(np.argmax(steps.observation[first], axis=1), minlength=STATES) / len(first)
    found, truth = [], []
    for sharpness in (-2.0, -0.5, 0.5, 2.0):
        agent = Sayer(as_rows(sharpness * q))
        found.append(judge(agent, agent.init(None)))
        policy = softmax(sharpness * q)
        truth.append(float(start @ np.sum(policy * exact(mdp, ends, policy), axis=1)))
    return judge, steps, found, truth


def test_the_estimates_are_near_the_truth_and_rank_as_it_does(judged):
    _, _, found, truth = judged
    assert np.ptp(truth) > 2
    for name, tolerance in (("fqe", 0.25), ("dr", 0.25)):
        scores = [getattr(one, name).mean for one in found]
        np.testing.assert_allclose(scores, truth, atol=tolerance)
        assert rank(scores, truth).correlation == 1
    for one in found:
        assert one.fqe.low <= one.fqe.mean <= one.fqe.high
        assert one.rare < 0.01  # the data has every action
    assert found[1].effective > found[0].effective  # nearer to the data's own policy
    np.testing.assert_allclose([found[1].wis.mean, found[2].wis.mean], truth[1:3], atol=0.25)


def test_the_clone_is_the_policy_of_the_data(judged):
    judge, steps, _, _ = judged
    assert judge.behavior.shape == (len(steps.action), ACTIONS)
    np.testing.assert_allclose(judge.behavior.mean(axis=0), 1 / ACTIONS, atol=0.05)


def test_the_agents_own_values_and_their_error_by_hand(judged):
    _, steps, found, _ = judged
    value = np.argmax(steps.observation, axis=1).astype(float)
    first, real = np.flatnonzero(steps.is_first), np.flatnonzero(~steps.is_last)
    np.testing.assert_allclose(found[0].model, value[first].mean(), rtol=1e-5)
    ahead = np.where(steps.is_last & steps.is_terminal, 0, value)[real + 1]
    errors = steps.reward[real] + GAMMA * ahead - value[real]
    np.testing.assert_allclose(found[0].td_error, np.sqrt(np.mean(errors**2)), rtol=1e-5)


def test_probabilities_are_asked_for_or_counted(judged):
    _, steps, _, _ = judged
    part = choose_steps(steps, 1_500, seed=0)
    assert 1_024 < len(part.action) <= 1_500  # in two parts
    assert part.is_first[0]
    assert part.is_last[-1]
    logits = np.random.default_rng(0).normal(size=(STATES, ACTIONS))
    states = np.argmax(part.observation, axis=1)
    ask = functools.partial(action_probabilities, steps=part, num_actions=ACTIONS)
    said, counted = (kind(as_rows(logits)) for kind in (Sayer, Tabular))
    np.testing.assert_allclose(ask(said, said.init(None)), softmax(logits)[states], atol=1e-6)
    shares = ask(counted, counted.init(None))
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
    for state in range(STATES):
        np.testing.assert_allclose(shares[states == state].mean(axis=0), softmax(logits)[state], atol=0.02)
    greedy = ask(said, said.init(None), greedy=True)
    np.testing.assert_array_equal(greedy, np.eye(ACTIONS)[logits.argmax(axis=1)][states])
    masked = dataclasses.replace(part, invalid_actions=np.eye(ACTIONS, dtype=bool)[states % ACTIONS])
    assert (ask(counted, counted.init(None), steps=masked)[masked.invalid_actions] == 0).all()


@pytest.mark.parametrize("name", sorted(set(agents.names()) - set(ON_WORLD)))
def test_every_agent_says_the_probabilities_that_it_acts_by(name):
    sizes = {"representation": (8,), "dynamics": (8,), "prediction": (8,)}
    model = functools.partial(latent_model, observation_shape=(STATES,), num_actions=ACTIONS, **sizes)
    agent = agents.get(name)(model)
    params = agent.init(jax.random.key(1))
    observation = jnp.eye(STATES)
    masks = {"invalid_actions": jnp.zeros((STATES, ACTIONS), bool).at[:, 1].set(True)}
    found = agent.probabilities(params, jax.random.key(0), observation, **masks)
    np.testing.assert_allclose(jnp.sum(found, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(found[:, 1], 0)
    assert np.isfinite(found).all()


def test_ranks_by_hand():
    found = rank([3.0, 1.0, 2.0, np.nan], [10.0, 40.0, 20.0, 100.0])
    assert found.correlation == pytest.approx(-1.0)
    assert found.regret == {1: 90.0, 3: 60.0}
    assert np.isnan(rank([1.0, 1.0], [1.0, 2.0]).correlation)
    assert rank([1.0, 2.0, 3.0], [5.0, 6.0, 7.0], tops=(1, 2)) == (1.0, {1: 0.0, 2: 0.0})


def side_by_side(ratio: np.ndarray, *, cut: bool) -> Episodes:
    """Episodes of one step, half of which earn 1 and half −1."""
    count = len(ratio)
    return Episodes(
        reward=np.where(np.arange(count) % 2, 1.0, -1.0)[:, None],
        ratio=ratio[:, None],
        weight=np.ones((count, 1)),
        real=np.ones((count, 1), bool),
        closing=np.full(count, 0.9 if cut else 0.0),
    )


def test_it_says_what_the_data_cannot_tell():
    even, near = side_by_side(np.ones(40), cut=False), Interval(0.5, 0.4, 0.6)
    assert list(_doubts(near, even, effective=40.0, rare=0.0)) == []
    [few] = _doubts(near, even, effective=3.2, rare=0.0)
    assert "3.2 of 40 episodes" in few
    [rare] = _doubts(near, even, effective=40.0, rare=0.25)
    assert rare.startswith("25% of its decisions")
    [beyond] = _doubts(Interval(1.2, 1.1, 1.3), even, effective=40.0, rare=0.0)
    assert "outside of what any episode of the data earned, -1 to 1" in beyond
    [cut] = _doubts(near, side_by_side(np.ones(40), cut=True), effective=40.0, rare=0.0)
    assert "100% of the episodes that were cut off" in cut


def test_an_agent_that_remembers_is_refused(judged):
    class Remembering(Sayer):
        def initial_memory(self, params, batch):
            return jnp.zeros(batch)

    agent = Remembering(as_rows(np.zeros((STATES, ACTIONS))))
    with pytest.raises(TypeError, match="agents without a memory"):
        action_probabilities(agent, agent.init(None), judged[1], num_actions=ACTIONS)
