"""A trained agent in the hands of a program: one observation or many, greedily or not, with a memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rosmo
from rosmo import operators
from rosmo.model import recurrent_fn
from tests.evaluate.test_playing import Counts

SHAPE, ACTIONS = (4, 2), 3
TRACED = []


class Traced(rosmo.agents.LatentAgent):
    """Notes each time that acting is compiled."""

    def act(self, params, key, observation, **settings):
        TRACED.append(observation.shape)
        return super().act(params, key, observation, **settings)


def build(kind=rosmo.agents.rosmo, seed=1, **settings):
    sizes = {"representation": (8, 6), "dynamics": (8,), "prediction": (6,)}
    model = functools.partial(rosmo.latent_model, observation_shape=SHAPE, num_actions=ACTIONS, **sizes)
    agent = kind(model, **settings)
    params = agent.init(jax.random.key(seed))
    # Heads begin at zero, where every action is as good as any other.
    noise = np.random.default_rng(0)
    return rosmo.TrainedAgent(
        agent,
        jax.tree.map(
            lambda x: x + 0.3 * noise.normal(size=x.shape).astype(x.dtype) if rosmo.types.is_array(x) else x,
            params,
        ),
    )


@pytest.fixture(scope="module")
def trained():
    return build()


def observations(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, *SHAPE)).astype(np.float32)


def test_greedy_actions_are_those_of_most_weight_for_one_and_for_many(trained):
    shown = observations(6)
    model, root = trained.model.imagine_from(jnp.asarray(shown))
    weights = operators.one_step(model, jax.random.key(0), root, recurrent_fn).action_weights
    best = np.argmax(weights, axis=-1)
    assert len(set(best.tolist())) > 1, "the rows should differ"
    np.testing.assert_array_equal(trained.act(shown, greedy=True), best)
    alone = [trained.act(one, greedy=True) for one in shown]
    assert alone == best.tolist()
    assert all(type(action) is int for action in alone)


def test_sampled_actions_come_as_often_as_their_weights_say(trained):
    one = observations(1, seed=3)[0]
    weights = trained.improve(one).action_weights
    actions = trained.act(np.repeat(one[None], 20_000, axis=0))
    np.testing.assert_allclose(np.bincount(actions, minlength=ACTIONS) / 20_000, weights, atol=0.015)


def test_a_seed_draws_the_same_and_no_seed_draws_anew(trained):
    shown = observations(200)
    same = [trained.act(shown, seed=7).tolist() for _ in range(2)]
    assert same[0] == same[1] != trained.act(shown, seed=8).tolist()
    assert trained.act(shown).tolist() != trained.act(shown).tolist()
    first, again = (build().act(shown).tolist() for _ in range(2))
    assert first == again, "the same calls draw the same"


def test_an_action_that_is_not_allowed_is_never_chosen(trained):
    shown = observations(300)
    for greedy in (False, True):
        assert set(trained.act(shown, greedy=greedy, invalid_actions=[True, False, True]).tolist()) == {1}
    rows = np.arange(300)[:, None] % ACTIONS == np.arange(ACTIONS)
    assert not np.any(trained.act(shown, invalid_actions=rows) == np.arange(300) % ACTIONS)
    improved = trained.improve(shown[0], invalid_actions=[True, False, False])
    assert improved.action_weights[0] == 0
    for mask in ([True], True, [[True, False, False]] * 2):
        with pytest.raises(
            ValueError, match=r"has the shape \[3\], or \[300, 3\] for a batch of 300: got one of"
        ):
            trained.act(shown, invalid_actions=mask)


def test_the_improvement_of_one_observation_is_its_row_of_the_batchs():
    for kind, settings in ((rosmo.agents.rosmo, {}), (rosmo.agents.mzu, {"num_simulations": 3})):
        trained, shown = build(kind, **settings), observations(2)
        one, both = trained.improve(shown[0], seed=1), trained.improve(shown, seed=1)
        assert one.action_weights.shape == (ACTIONS,)
        assert (one.search_tree is None) == (settings == {})
        np.testing.assert_allclose(one.qvalues, both.qvalues[0], rtol=1e-5)
        np.testing.assert_allclose(np.sum(one.action_weights), 1, rtol=1e-5)
        assert np.all(np.isfinite(one.value))


@pytest.mark.parametrize("kind", [rosmo.agents.BC, rosmo.agents.CRR, rosmo.agents.CQL])
def test_agents_without_an_operator_act_and_say_that_they_have_none(kind):
    trained = build(kind)
    assert trained.act(observations(1)[0]) in range(ACTIONS)
    with pytest.raises(TypeError, match=f"{kind.__name__} has no improvement operator: ask it to act"):
        trained.improve(observations(1))


@pytest.mark.parametrize("shape", [(), (2, 4), (4,), (0, 4, 2), (1, 1, 4, 2)])
def test_what_is_no_observation_is_refused_in_a_sentence(trained, shape):
    with pytest.raises(ValueError, match=r"has the shape \[4, 2\], and a batch of them \[B, 4, 2\]: got one"):
        trained.act(np.zeros(shape, np.float32))


def test_each_number_of_observations_is_compiled_once():
    TRACED.clear()
    trained = build(lambda model: Traced(model, operators.one_step))
    for _ in range(3):
        trained.act(observations(1)[0])
        trained.act(observations(5))
        trained.act(observations(5).astype(np.float64).tolist(), seed=3)
    assert [shape[0] for shape in TRACED] == [1, 5]


def test_an_agent_with_a_memory_plays_episodes_and_begins_them_anew():
    trained = rosmo.TrainedAgent(Counts(), jnp.int32(1), observation_shape=())
    with pytest.raises(TypeError, match=r"player = trained\.start\(\)"):
        trained.act(0.0)
    player = trained.start()
    assert [player.act(0.0) for _ in range(4)] == [0, 1, 2, 3]
    assert [player.act(0.0, first=True), player.act(0.0), trained.start().act(0.0)] == [0, 1, 0]
    several = trained.start(3)
    shown, found = np.zeros(3), []
    for first in ([True] * 3, [False] * 3, [False, True, False], [False] * 3):
        found.append(several.act(shown, first=np.array(first)).tolist())
    assert found == [[0, 0, 0], [1, 1, 1], [2, 0, 2], [3, 1, 3]]
    with pytest.raises(ValueError, match="plays 3 episodes, and was shown one observation: say how many"):
        several.act(0.0)
    with pytest.raises(ValueError, match="say observation_shape"):
        rosmo.TrainedAgent(Counts(), jnp.int32(1))


def test_an_agent_without_a_memory_plays_episodes_too(trained):
    shown = observations(5)
    player = trained.start(greedy=True)
    assert [player.act(one) for one in shown] == trained.act(shown, greedy=True).tolist()
    sampled = [
        [player.act(one) for one in np.repeat(shown, 9, axis=0)]
        for player in (trained.start(seed=5), trained.start(seed=5))
    ]
    assert sampled[0] == sampled[1]
    assert len(set(sampled[0])) > 1
