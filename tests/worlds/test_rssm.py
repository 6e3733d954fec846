"""The recurrent state space model: its contract, what its loss is of, and a small world that it learns."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType

from rosmo import Learner, worlds
from rosmo.data import window_sampler
from rosmo.worlds import WorldModel, align, filter_window
from tests.windows import ACTIONS, OBSERVATION, every_ending, random_steps, talkative
from tests.worlds.tables import corridor, play

KEY = jax.random.key(0)
TINY = {
    "deterministic": 8,
    "groups": 2,
    "classes": 3,
    "hidden": 6,
    "layers": (5,),
    "heads": (4,),
    "members": 3,
}
tiny = functools.partial(worlds.rssm, coder="vector", pixels="normal", **TINY)
small = functools.partial(tiny, observation_shape=OBSERVATION, num_actions=ACTIONS)


@functools.cache
def build(name: str):
    make = tiny if name == "rssm" else worlds.get(name)
    sizes = {"observation_shape": OBSERVATION, "num_actions": ACTIONS}
    return eqx.filter_jit(lambda: talkative(make(KEY, **sizes), jax.random.key(1)))()


# Compiled: many small operations, one by one, take minutes.
imagine = eqx.filter_jit(lambda world, *args: world.imagine(*args))
see = eqx.filter_jit(
    lambda world, state, action, shown, first, keys: world.observe(
        state, action, world.embed(shown), first, keys
    )
)
reconstruct = eqx.filter_jit(lambda world, state: world.reconstruct(state))


def some_state(world, batch=4):
    shown = jax.random.normal(jax.random.key(2), (batch, *OBSERVATION))
    keys, first = jax.random.split(jax.random.key(3), batch), jnp.ones(batch, bool)
    return see(world, world.begin(batch), jnp.zeros(batch, jnp.int32), shown, first, keys)


@pytest.mark.parametrize("name", worlds.names())
def test_a_world_answers_what_agents_ask(name):
    world = build(name)
    assert isinstance(world, worlds.World)
    state, keys = some_state(world), jax.random.split(KEY, 4)
    action = jnp.array([0, 1, 2, 0])
    imagined = imagine(world, state, action, keys)
    assert jax.tree.map(jnp.shape, imagined.state) == jax.tree.map(jnp.shape, state)
    for x in imagined[1:]:
        assert x.shape == (4,)
        assert jnp.isfinite(x).all()
    assert ((imagined.discount >= 0) & (imagined.discount <= 1)).all()
    assert (imagined.uncertainty >= 0).all()
    assert world.features(state).ndim == 2
    # A row hangs on itself alone, and on its own key.
    order = jnp.array([2, 0, 3, 1])
    turned = imagine(world, jax.tree.map(lambda x: x[order], state), action[order], keys[order])
    for a, b in zip(jax.tree.leaves(turned), jax.tree.leaves(imagined), strict=True):
        np.testing.assert_allclose(a, b[order], atol=1e-5)


def test_an_imagined_step_by_hand():
    world = build("rssm")
    state, action, member = some_state(world), jnp.array([0, 1, 2, 0]), jnp.array([2, 0, 1, 0])
    imagined = imagine(world, state, action, jax.random.split(KEY, 4), member)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731

    def linear(layer, *x):
        return np.concatenate(x) @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias)

    for row in range(4):
        before, taken = np.asarray(state.deterministic[row]), np.eye(ACTIONS)[action[row]]
        entered = np.maximum(linear(world.enter, np.ravel(state.latent[row]), taken), 0)
        parts, norm = linear(world.gru.linear, entered, before), world.gru.norm
        parts = (parts - parts.mean()) / np.sqrt(parts.var() + norm.eps) * norm.weight + norm.bias
        reset, candidate, update = np.split(np.asarray(parts), 3)
        update = sigmoid(update - 1)
        after = update * np.tanh(sigmoid(reset) * candidate) + (1 - update) * before
        np.testing.assert_allclose(imagined.state.deterministic[row], after, atol=1e-5)
    expected = world.prior_logits(imagined.state.deterministic)
    np.testing.assert_allclose(imagined.state.logits, expected[jnp.arange(4), member], atol=1e-5)
    shown, none = jax.random.normal(KEY, (4, *OBSERVATION)), jnp.zeros(4, bool)
    seen = see(world, state, action, shown, none, jax.random.split(KEY, 4))
    np.testing.assert_allclose(seen.deterministic, imagined.state.deterministic, atol=1e-5)
    posterior = jax.vmap(world.posterior)(jnp.concatenate([seen.deterministic, world.embed(shown)], axis=1))
    np.testing.assert_allclose(seen.logits.reshape(4, -1), posterior, atol=1e-5)
    said = np.asarray(jax.nn.softmax(expected)).reshape(4, 3, -1)
    apart = [max(np.linalg.norm(x - y) for x in members for y in members) for members in said]
    np.testing.assert_allclose(imagined.uncertainty, apart, rtol=1e-4)
    reward, going_on = world.outcome(world.features(imagined.state))
    np.testing.assert_allclose(imagined.reward, reward, atol=1e-5)
    np.testing.assert_allclose(imagined.discount, sigmoid(np.asarray(going_on)), atol=1e-5)


def test_what_is_drawn_tells_the_encoder_of_what_hangs_on_it():
    world, keys = build("rssm"), jax.random.split(KEY, 4)
    state, action, none = some_state(world), jnp.zeros(4, jnp.int32), jnp.zeros(4, bool)
    shown = jax.random.normal(KEY, (4, *OBSERVATION))

    def first_classes(shown):
        return jnp.sum(see(world, state, action, shown, none, keys).latent[..., 0])

    assert (jax.grad(first_classes)(shown) != 0).any()


@pytest.mark.parametrize("name", worlds.names())
def test_a_first_observation_forgets_what_came_before(name):
    world, keys = build(name), jax.random.split(KEY, 4)
    shown = jax.random.normal(KEY, (4, *OBSERVATION))
    one, two = world.begin(4), some_state(world)
    first = jnp.array([True, True, False, False])
    begun, gone_on = (
        see(world, state, action, shown, first, keys)
        for state, action in ((one, jnp.zeros(4, jnp.int32)), (two, jnp.ones(4, jnp.int32)))
    )
    for a, b in zip(jax.tree.leaves(begun), jax.tree.leaves(gone_on), strict=True):
        np.testing.assert_array_equal(a[:2], b[:2])
    if name == "rssm":
        assert (begun.deterministic[2:] != gone_on.deterministic[2:]).any()


def test_reconstructions_have_the_units_of_observations_and_a_latent_model_has_none():
    world = build("rssm")
    state = some_state(world)
    scaled = dataclasses.replace(world, scale=10.0)
    np.testing.assert_allclose(reconstruct(scaled, state), 10 * reconstruct(world, state), rtol=1e-6)
    shown = jax.random.normal(KEY, (4, *OBSERVATION))
    np.testing.assert_allclose(scaled.embed(10 * shown), world.embed(shown), rtol=1e-4)
    with pytest.raises(TypeError, match="has no decoder"):
        build("latent").reconstruct(some_state(build("latent")))


@pytest.mark.parametrize(
    ("coder", "shape", "channels"), [("planes", (5, 4, 3), (2,)), ("screen", (21, 20, 2), (2, 3))]
)
def test_images_of_any_size_come_back_in_their_shape(coder, shape, channels):
    sizes = {"coder": coder, "channels": channels, "scale": 255.0, **TINY}
    world = eqx.filter_jit(lambda: worlds.rssm(KEY, observation_shape=shape, num_actions=2, **sizes))()
    shown = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, *shape)), jnp.uint8)
    keys, first = jax.random.split(KEY, 3), jnp.ones(3, bool)
    state = see(world, world.begin(3), jnp.zeros(3, jnp.int32), shown, first, keys)
    assert reconstruct(world, state).shape == shown.shape


def test_what_cannot_be_built_is_refused_in_a_sentence():
    sizes = {"observation_shape": OBSERVATION, "num_actions": ACTIONS}
    for wrong, message in (
        ({"coder": "planes"}, "takes images .* use 'vector'"),
        ({"coder": "vectors"}, "coder must be one of 'vector'"),
        ({"pixels": "poisson"}, "pixels must be 'bernoulli' or 'normal'"),
        ({"members": 0}, "members must be a whole number of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            worlds.rssm(KEY, **(sizes | wrong))
    with pytest.raises(ValueError, match="takes a batch of observations of the shape"):
        build("rssm").embed(jnp.zeros((2, 9)))
    agent = WorldModel(functools.partial(small, pixels="bernoulli", scale=2.0))
    agent.check(np.array([[0.0, 2.0]]))
    with pytest.raises(ValueError, match="go from 0 to 3, and pixels = 'bernoulli'"):
        agent.check(np.array([[0.0, 3.0]]))
    latent = functools.partial(worlds.latent, **sizes)
    with pytest.raises(ValueError, match="LatentWorld is another world"):
        WorldModel(latent).check(np.zeros((1, *OBSERVATION)))
    for wrong in ({"kl_balance": 1.1}, {"window": 1}, {"reward_deviation": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            WorldModel(small, **wrong)


@functools.cache
def batch():
    return every_ending(np.random.default_rng(0), 6)


def terms_of(agent, params, windows):
    keys = jax.random.split(KEY, len(windows.action))
    _, metrics = eqx.filter_jit(agent.loss)(params, params, windows, keys)
    return {name: float(x) for name, x in metrics.items()}


def test_the_loss_by_hand():
    agent, params = WorldModel(small, window=6, discount_weight=3.0), build("rssm")
    found = terms_of(agent, params, batch())
    keys = jax.random.split(KEY, len(batch().action))
    states = eqx.filter_jit(filter_window)(params, batch(), keys)
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states)
    mean, logit = (np.asarray(x, np.float64).reshape(-1, 6) for x in params.outcome(params.features(flat)))
    shown = np.asarray(reconstruct(params, flat), np.float64).reshape(-1, 6, 4)
    image = reward = discount = 0.0
    data = jax.tree.map(np.asarray, batch())
    for row in range(len(mean)):
        over = False
        for t in range(6):
            first = t == 0 or bool(data.is_first[row, t])
            over = (over or bool(data.is_last[row, t - 1])) and not first if t else False
            if over:
                continue
            error = np.asarray(data.observation[row, t], np.float64) - shown[row, t]
            image += np.sum(error**2) / 2 + 2 * np.log(2 * np.pi)
            if not first:  # the reward that followed action t − 1 is read off the state at t
                off = float(data.reward[row, t - 1]) - mean[row, t]
                reward += off**2 / (2 * 0.4**2) + np.log(0.4 * np.sqrt(2 * np.pi))
                p, d = 1 / (1 + np.exp(-logit[row, t])), float(data.discount[row, t - 1])
                discount -= d * np.log(p) + (1 - d) * np.log(1 - p)
    for name, expected in (("image", image), ("reward", reward), ("discount", 3 * discount)):
        assert found[f"loss/{name}"] == pytest.approx(expected / mean.size, rel=1e-4)
    q, p = flat.logits[:, None], params.prior_logits(flat.deterministic)
    apart = jax.nn.softmax(q) * (jax.nn.log_softmax(q) - jax.nn.log_softmax(p))
    kl = np.mean(np.sum(np.asarray(apart, np.float64), axis=(-2, -1)), axis=1).reshape(-1, 6)
    observed = np.asarray(align(batch()).observed)
    assert found["loss/kl"] == pytest.approx(0.1 * np.sum(kl[observed]) / kl.size, rel=1e-4)
    assert found["loss"] == pytest.approx(sum(x for n, x in found.items() if n.startswith("loss/")), rel=1e-5)


def test_padding_and_what_was_never_taken_change_nothing():
    agent, params = WorldModel(small, window=6), build("rssm")
    steps = random_steps(np.random.default_rng(1), [4], [True])
    padded = jax.tree.map(lambda x: jnp.asarray(np.concatenate([x, x[[-1, -1]]]))[None], steps)
    keys = jax.random.split(KEY, 1)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda p, b: agent.loss(p, p, b, keys)[0]))
    expected = gradient(params, padded)
    spoiled = dataclasses.replace(
        padded,
        observation=padded.observation.at[:, 4:].set(jnp.nan),
        reward=padded.reward.at[:, 3:].set(jnp.nan),
        discount=padded.discount.at[:, 3:].set(jnp.nan),
        action=padded.action.at[:, 3:].set(99),
    )
    for a, b in zip(*map(jax.tree.leaves, (expected, gradient(params, spoiled))), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(jnp.any(x != 0) for x in jax.tree.leaves(expected))


def test_free_nats_leave_a_small_divergence_alone():
    params = build("rssm")
    keys = jax.random.split(KEY, len(batch().action))

    def prior_gradient(free: float):
        agent = WorldModel(small, window=6, free_nats=free)
        return eqx.filter_jit(eqx.filter_grad(lambda p: agent.loss(p, p, batch(), keys)[0]))(params).priors

    assert any(jnp.any(x != 0) for x in jax.tree.leaves(prior_gradient(0.0)))
    assert not any(jnp.any(x != 0) for x in jax.tree.leaves(prior_gradient(1e3)))


def test_it_trains_alike_on_one_device_and_on_two():
    agent = WorldModel(small, window=6)
    lengths = np.random.default_rng(0).integers(2, 12, 40)
    steps = random_steps(np.random.default_rng(0), lengths, np.arange(40) % 2 == 0)
    source = window_sampler(steps, window=6, num_actions=ACTIONS)
    found = []
    for devices in (1, 2):
        mesh = jax.make_mesh(
            (devices,), ("data",), devices=jax.devices()[:devices], axis_types=(AxisType.Auto,)
        )
        learner = Learner(agent, optax.sgd(0.01), batch_size=4, mesh=mesh)
        found.append(jax.device_get(learner.update_many(learner.init(KEY), source, 2)[0].params))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.fixture(scope="module")
def learned():
    """A corridor learned from steps of two of three actions, with what it really is."""
    table = corridor(5)
    steps = play(table, np.random.default_rng(0), episodes=200, start=lambda rng: rng.integers(1, 4))
    sizes = {"deterministic": 24, "groups": 2, "classes": 8, "hidden": 24, "layers": (24,), "heads": (24,)}
    model = functools.partial(
        worlds.rssm, observation_shape=(5,), num_actions=3, coder="vector", pixels="bernoulli", **sizes
    )
    agent = WorldModel(model, window=8)
    source = window_sampler(steps, window=8, num_actions=3)
    learner = Learner(agent, optax.adam(5e-3), batch_size=16)
    state, _ = learner.update_many(learner.init(KEY), source, 500)
    return table, state.params


def known_and_imagined(learned, action):
    """What the table and the world say of an action in each state that is not an end."""
    table, world = learned
    state, actions = jnp.arange(1, 4), jnp.full(3, action)
    keys, first = jax.random.split(jax.random.key(1), 3), jnp.ones(3, bool)
    begun = see(world, world.begin(3), actions, table.features(state), first, keys)
    return table.imagine(state, jnp.minimum(actions, 1), keys), imagine(world, begun, actions, keys), world


@pytest.mark.parametrize("action", [0, 1])
def test_a_corridor_is_imagined_as_it_is(learned, action):
    """Which reward, discount and next state belong to which action, by an answer that is known."""
    known, imagined, world = known_and_imagined(learned, action)
    np.testing.assert_allclose(imagined.reward, known.reward, atol=0.15)
    np.testing.assert_allclose(imagined.discount, known.discount, atol=0.15)
    np.testing.assert_array_equal(reconstruct(world, imagined.state).argmax(axis=-1), known.state)


def test_an_action_that_the_data_never_took_is_in_doubt(learned):
    taken = np.stack([known_and_imagined(learned, action)[1].uncertainty for action in (0, 1)])
    never = np.asarray(known_and_imagined(learned, 2)[1].uncertainty)
    assert (never > taken.max(axis=0)).all()
    assert never.mean() > 2 * taken.mean()
