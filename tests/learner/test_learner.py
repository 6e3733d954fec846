import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from rosmo import Learner, adamw, agents, latent_model
from rosmo.costs.speed import made_up_steps
from rosmo.data import window_sampler
from rosmo.learner.optimizer import decay_mask
from tests.windows import ACTIONS, ON_WORLD, random_steps, small_model, talkative

KEY = jax.random.key(0)
quick_adamw = functools.partial(adamw, warmup_steps=2)
SIZES = {
    "bc": {"positions": 4},
    "crr": {"positions": 4, "td_steps": 2},
    "cql": {"positions": 4, "td_steps": 2},
}


def make_agent(name: str = "rosmo"):
    return agents.get(name)(small_model, **SIZES.get(name, {"unroll_steps": 3, "td_steps": 2}))


def make_source(agent, seed: int = 0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 12, 40)
    steps = random_steps(rng, lengths, rng.random(40) < 0.5)
    return window_sampler(steps, window=agent.window, num_actions=ACTIONS)


def mesh_of(devices: int):
    return jax.make_mesh((devices,), ("data",), devices=jax.devices()[:devices], axis_types=(AxisType.Auto,))


def draw(source, count: int, seed: int = 0):
    return jax.vmap(source.sample)(jax.random.split(jax.random.key(seed), count))


def assert_close(a, b, atol=0.0):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(x, y, atol=atol, rtol=0)


@pytest.mark.parametrize("name", sorted(set(agents.names()) - set(ON_WORLD)))
def test_one_device_and_eight_train_alike(name):
    agent = make_agent(name)
    source = make_source(agent)
    # From heads that say something: where a true gradient is 0, Adam makes full steps of its rounding errors.
    start = talkative(agent.init(KEY), jax.random.key(1))
    states = []
    for devices in (1, 8):
        learner = Learner(
            agent, quick_adamw(), batch_size=16, target_update_interval=2, mesh=mesh_of(devices)
        )
        state = eqx.tree_at(
            lambda s: (s.params, s.target_params), learner.init(KEY), (start, jax.tree.map(jnp.copy, start))
        )
        states.append(jax.device_get(learner.update_many(jax.tree.map(jnp.copy, state), source, 5)))
    assert_close(states[0], states[1], atol=1e-5)
    moved = [
        np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (start, states[0][0].params)), strict=True)
    ]
    assert max(moved) > 1e-3


def test_the_step_is_traced_once_in_a_hundred_calls():
    agent = make_agent()
    traces = []

    class Counting:
        window = agent.window
        init = staticmethod(agent.init)
        act = staticmethod(agent.act)

        @staticmethod
        def loss(*args):
            traces.append(1)
            return agent.loss(*args)

    learner = Learner(Counting(), batch_size=8, mesh=mesh_of(2))
    source = make_source(agent)
    state = learner.init(KEY)
    batch = draw(source, 8)
    for _ in range(100):
        state, _ = learner.update(state, batch)
    assert len(traces) == 1
    assert int(state.step) == 100
    for _ in range(3):
        state, _ = learner.update_many(state, source, 4)
    assert len(traces) == 2


def test_a_step_keeps_types_shapes_and_layout():
    agent = make_agent()
    learner = Learner(agent, batch_size=8, mesh=mesh_of(8))

    def describe(state):
        return jax.tree.map(lambda x: (jax.typeof(x), x.sharding), eqx.filter(state, eqx.is_array))

    state = learner.init(KEY)
    before = describe(state)
    state, _ = learner.update(state, draw(make_source(agent), 8))
    assert describe(state) == before


def test_many_updates_are_as_many_single_ones():
    agent = make_agent()
    source = make_source(agent)
    learner = Learner(agent, quick_adamw(), batch_size=8, target_update_interval=3)
    many, metrics = learner.update_many(learner.init(KEY), source, 7)
    state, losses = learner.init(KEY), []
    for _ in range(7):
        keys = jax.random.split(jax.random.fold_in(state.key, state.step), (2, 8))[0]
        state, single = learner.update(state, jax.vmap(source.sample)(keys))
        losses.append(single["loss"])
    assert_close(many, state, atol=1e-6)
    np.testing.assert_allclose(metrics["loss"], np.array(losses), rtol=1e-4)


def spied_lengths(learner, monkeypatch) -> list[int]:
    """Notes how many updates each call of the compiled program takes."""
    compiled, lengths = learner._update_many, []

    class Spy:
        trace = compiled.trace

        def __call__(self, arrays, source, spans, length, cached):
            lengths.append(spans * length)
            return compiled(arrays, source, spans, length, cached)

    monkeypatch.setattr(learner, "_update_many", Spy())
    return lengths


def test_a_cpu_takes_updates_with_convolutions_one_by_one(monkeypatch):
    model = functools.partial(latent_model, num_actions=ACTIONS)
    sizes = {"channels": 2, "representation_blocks": 0, "dynamics_blocks": 0, "prediction_blocks": 0}
    convolving = agents.BC(
        functools.partial(model, network="resnet", observation_shape=(16, 16, 1), **sizes), positions=2
    )
    images = made_up_steps(40, (16, 16, 1), ACTIONS)
    source = window_sampler(images, window=convolving.window, num_actions=ACTIONS)
    learner = Learner(convolving, batch_size=4)
    lengths = spied_lengths(learner, monkeypatch)
    many, metrics = learner.update_many(learner.init(KEY), source, 3)
    assert lengths == [1, 1, 1]
    state = learner.init(KEY)
    singles = []
    for _ in range(3):
        state, single = learner.update_many(state, source, 1)
        singles.append(single["loss"])
    assert_close(many, state)
    np.testing.assert_array_equal(metrics["loss"], np.concatenate(singles))

    plain = Learner(make_agent("bc"), batch_size=4)
    lengths = spied_lengths(plain, monkeypatch)
    plain.update_many(plain.init(KEY), make_source(plain.agent), 3)
    assert lengths == [3]


def test_the_same_seed_gives_the_same_bits_also_through_a_stop():
    agent = make_agent("sampled_rosmo")
    source = make_source(agent)
    learner = Learner(agent, batch_size=8)
    through, _ = learner.update_many(learner.init(KEY), source, 6)
    first, _ = learner.update_many(learner.init(KEY), source, 3)
    saved = jax.device_get(first)  # what a checkpoint would hold
    again, _ = Learner(agent, batch_size=8).update_many(jax.device_put(saved), source, 3)
    assert_close(through, again)


def test_the_target_network_follows_at_its_interval():
    agent = make_agent()
    learner = Learner(agent, quick_adamw(), batch_size=8, target_update_interval=3)
    source = make_source(agent)
    state = learner.init(KEY)
    start = jax.device_get(state.params)
    for step in range(1, 7):
        state, _ = learner.update_many(state, source, 1)
        params, target = jax.device_get((state.params, state.target_params))
        if step < 3:
            assert_close(target, start)
        if step % 3 == 0:
            assert_close(target, params)
        elif step > 3:
            with pytest.raises(AssertionError):
                assert_close(target, params)


def test_an_update_consumes_its_state():
    agent = make_agent()
    learner = Learner(agent, batch_size=8)
    state = learner.init(KEY)
    learner.update_many(state, make_source(agent), 1)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.params))
    with pytest.raises(ValueError, match="an update has consumed this state"):
        learner.update_many(state, make_source(agent), 1)


def test_training_lowers_the_loss():
    agent = make_agent()
    learner = Learner(agent, quick_adamw(3e-3), batch_size=16)
    _, metrics = learner.update_many(learner.init(KEY), make_source(agent), 300)
    loss = np.asarray(metrics["loss"])
    assert np.isfinite(loss).all()
    assert loss[-30:].mean() < 0.9 * loss[:30].mean()


def test_the_optimizer_is_adamw_with_clipping_warmup_and_staircase():
    """Against the published update rule (Loshchilov & Hutter), in float64."""
    settings = {"warmup_steps": 4, "decay_steps": 3, "decay_rate": 0.5, "max_grad_norm": 1.0}
    optimizer = adamw(0.1, weight_decay=0.01, **settings)
    params = {"weight": jnp.array([[1.0, -2.0]]), "bias": jnp.array([3.0])}
    state = optimizer.init(params)
    theta = {k: np.asarray(v, np.float64) for k, v in params.items()}
    m = {k: 0 * v for k, v in theta.items()}
    v = {k: 0 * x for k, x in theta.items()}
    rng = np.random.default_rng(0)
    for t in range(1, 13):
        gradient = {k: rng.normal(size=x.shape) * 3 for k, x in theta.items()}
        with jax.numpy_dtype_promotion("standard"):
            single = {k: jnp.asarray(g, jnp.float32) for k, g in gradient.items()}
            updates, state = optimizer.update(single, state, params)
        params = optax.apply_updates(params, updates)
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        count = t - 1
        rate = 0.1 * count / 4 if count < 4 else 0.1 * 0.5 ** ((count - 4) // 3)
        for k, g in gradient.items():
            g = g / max(norm, 1.0)
            m[k] = 0.9 * m[k] + 0.1 * g
            v[k] = 0.999 * v[k] + 0.001 * g**2
            step = (m[k] / (1 - 0.9**t)) / (np.sqrt(v[k] / (1 - 0.999**t)) + 1e-8)
            theta[k] = theta[k] - rate * (step + 0.01 * theta[k] * (k == "weight"))
    for k in theta:
        np.testing.assert_allclose(params[k], theta[k], rtol=1e-4)


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay", "max_grad_norm", "decay_rate"])
def test_an_optimizer_that_would_climb_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be a finite number (of at least|above) 0, got -1"):
        adamw(**{name: -1.0})


def test_weight_decay_spares_biases_and_normalisation():
    model = {
        "linear": eqx.nn.Linear(3, 1, key=KEY),
        "conv": eqx.nn.Conv2d(2, 4, 3, key=KEY),
        "norm": eqx.nn.LayerNorm((4, 5, 5)),
        "bias": jnp.zeros((2, 2)),
        "ours": small_model(KEY),
    }
    mask = decay_mask(eqx.filter(model, eqx.is_inexact_array))
    assert (mask["linear"].weight, mask["linear"].bias) == (True, False)
    assert (mask["conv"].weight, mask["conv"].bias) == (True, False)  # a bias of shape [4, 1, 1]
    assert (mask["norm"].weight, mask["norm"].bias) == (False, False)
    assert not mask["bias"]
    decayed = jax.tree.leaves(jax.tree.map(lambda x, m: m == (x.ndim == 2), model["ours"], mask["ours"]))
    assert all(decayed)


def test_networks_with_functions_inside_train_too():
    """`eqx.nn.MLP` keeps its activation among its leaves."""

    class Cloner:
        window = 1

        def init(self, key):
            return eqx.nn.MLP(4, ACTIONS, 8, 1, key=key)

        def loss(self, params, target_params, batch, key):
            logits = jax.vmap(params)(batch.observation[:, 0])
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch.action[:, 0]).mean()
            return loss, {"loss": loss}

        def act(self, params, key, observation, *, greedy=False):
            return jnp.argmax(jax.vmap(params)(observation), axis=-1)

    agent = Cloner()
    learner = Learner(agent, quick_adamw(1e-2), batch_size=8, mesh=mesh_of(2))
    state, metrics = learner.update_many(learner.init(KEY), make_source(make_agent()), 200)
    assert metrics["loss"][-50:].mean() < metrics["loss"][:50].mean()
    state, _ = learner.update(state, draw(make_source(make_agent()), 8))
    assert agent.act(state.params, KEY, jnp.ones((2, 4))).shape == (2,)


def test_batches_from_the_host_are_split_over_the_mesh():
    agent = make_agent()
    learner = Learner(agent, batch_size=8, mesh=mesh_of(4))
    batch = jax.tree.map(np.asarray, draw(make_source(agent), 8))
    state, metrics = learner.update(learner.init(KEY), batch)
    replicated = NamedSharding(learner.mesh, PartitionSpec())
    assert all(leaf.sharding == replicated for leaf in jax.tree.leaves(state.params))
    assert np.isfinite(metrics["grad_norm"])


def test_a_mesh_with_explicit_axes_and_a_state_from_one_device_do_too():
    agent = make_agent()
    learner = Learner(agent, batch_size=8, mesh=jax.make_mesh((2,), ("data",), devices=jax.devices()[:2]))
    restored = jax.device_put(Learner(agent, batch_size=8).init(KEY), jax.devices()[3])
    state, _ = learner.update(restored, draw(make_source(agent), 8))
    assert agent.act(state.params, KEY, jnp.ones((2, 4))).shape == (2,)


def test_the_compiled_step_has_one_all_reduce_and_no_other_collective():
    agent = make_agent()
    learner = Learner(agent, batch_size=16, mesh=mesh_of(8))
    arrays = eqx.filter(learner.init(KEY), eqx.is_array)
    batch = jax.device_put(draw(make_source(agent), 16), NamedSharding(learner.mesh, PartitionSpec("data")))
    text = learner._update.lower(arrays, batch).compile().as_text()
    assert text.count(" all-reduce(") == 1
    for other in ("all-gather", "all-to-all", "collective-permute", "reduce-scatter"):
        assert f" {other}(" not in text


def test_impossible_layouts_are_refused_before_compiling():
    agent = make_agent()
    with pytest.raises(ValueError, match="batch of 12 does not divide over the 8 devices"):
        Learner(agent, batch_size=12, mesh=mesh_of(8))
    with pytest.raises(ValueError, match='axis called "data"'):
        Learner(
            agent,
            mesh=jax.make_mesh((2,), ("batch",), devices=jax.devices()[:2], axis_types=(AxisType.Auto,)),
        )
    with pytest.raises(ValueError, match="target_update_interval"):
        Learner(agent, target_update_interval=0)
    learner = Learner(agent, batch_size=8)
    with pytest.raises(ValueError, match="batches of 8 windows, got 4"):
        learner.update(learner.init(KEY), draw(make_source(agent), 4))
