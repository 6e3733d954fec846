import functools
import pathlib

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest

from rosmo import operators
from rosmo.operators.sampled_one_step import sample_log_weights
from tests.tabular import Table, one_decision, random_mdp, root_of, softmax, table_step

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
KEY = jax.random.key(0)

# Settings under which every registered operator is held to the contract; a new operator must be added here.
SETTINGS = {
    "one_step": {},
    "prior": {},
    "sampled_one_step": {"num_samples": 16},
    "mcts": {"num_simulations": 24},
    "mcts_q": {"num_simulations": 24},
    "gumbel": {"num_simulations": 24},
    "regularized": {},
    "cmpo": {},
    "mpo": {},
    "smc": {"num_particles": 64, "depth": 2},
}
SEARCHES = ("mcts", "mcts_q", "gumbel")
every_operator = pytest.mark.parametrize(
    "operator", [pytest.param(functools.partial(operators.get(n), **s), id=n) for n, s in SETTINGS.items()]
)


def improve(operator, table: Table, root, invalid=None, key=KEY):
    return operator(table, key, root, table_step, invalid_actions=invalid)


def float64_answer(prior_logits, advantages):
    return softmax(np.asarray(prior_logits, np.float64) + np.asarray(advantages, np.float64))


# one_step against float64


@pytest.mark.parametrize("actions", [1, 2, 7, 18, 300, 10_000])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("offset", [0.0, -1e4, 1e4])
def test_one_step_is_the_softmax_of_log_prior_plus_advantage(actions, scale, offset):
    rng = np.random.default_rng(actions)
    prior = rng.normal(size=(5, actions)).astype(np.float32)
    advantage = (offset + scale * rng.uniform(-1, 1, (5, actions))).astype(np.float32)
    improvement = improve(operators.one_step, *one_decision(prior, np.zeros(5, np.float32), advantage))
    np.testing.assert_allclose(improvement.action_weights, float64_answer(prior, advantage), atol=1e-5)


@pytest.mark.parametrize("actions", [2, 3, 18])
def test_one_step_on_the_golden_figures(actions):
    with np.load(GOLDEN / "improve_exact.npz") as file:
        case = {k: file[f"A{actions}_{k}"] for k in ("prior_logits", "value_prior", "reward", "next_value")}
        expected, gamma = file[f"A{actions}_pi_stable_f64"], float(file["gamma"])
        released, advantage = file[f"A{actions}_pi_improved"], file[f"A{actions}_adv"]
    improvement = improve(operators.one_step, *golden_table(case, gamma))
    # The figures hold float32 inputs: at an advantage of 1,000 they are known to 6e-5 themselves.
    tolerance = np.maximum(1e-5, 2e-7 * np.abs(advantage).max(axis=1, keepdims=True))
    assert (np.abs(improvement.action_weights - expected) <= tolerance).all()
    # Where the released code is stable, we agree with it too.
    sane = np.isfinite(released).all(axis=1) & (np.abs(released.sum(axis=1) - 1) < 1e-3)
    assert sane.sum() >= 20
    np.testing.assert_allclose(improvement.action_weights[sane], released[sane], atol=2e-5)


def golden_table(case, gamma):
    """Each action of each case leads to a state of its own, which has that next value."""
    cases, actions = case["reward"].shape
    extra = cases * actions
    table = Table(
        reward=jnp.concatenate([case["reward"], jnp.zeros((extra, actions))]),
        next_state=jnp.concatenate(
            [cases + jnp.arange(extra).reshape(cases, actions), jnp.zeros((extra, actions), jnp.int32)]
        ),
        value=jnp.concatenate([case["value_prior"], case["next_value"].reshape(-1)]),
        prior_logits=jnp.concatenate([case["prior_logits"], jnp.zeros((extra, actions))]),
        discount=jnp.full((cases + extra, actions), gamma),
    )
    return table, root_of(table, jnp.arange(cases))


def test_one_step_calls_the_model_once_on_the_states_as_they_are():
    calls = []

    def counting(table, key, action, state):
        calls.append((action.shape, state.shape))
        return table_step(table, key, action, state)

    table, root = one_decision(
        np.zeros((7, 5), np.float32), np.zeros(7, np.float32), np.ones((7, 5), np.float32)
    )
    operators.one_step(table, KEY, root, counting)
    # Mapped over the five actions, the trace sees one action and one state for each of the seven roots.
    assert calls == [((7,), (7,))]


def test_one_step_uses_the_models_discount():
    table, root = one_decision(
        np.zeros((1, 2), np.float32), np.zeros(1, np.float32), np.zeros((1, 2), np.float32)
    )
    table = table._replace(value=jnp.array([0.0, 10.0]), discount=jnp.array([[1.0, 0.0], [1.0, 1.0]]))
    improvement = improve(operators.one_step, table, root)
    np.testing.assert_allclose(improvement.qvalues, [[10.0, 0.0]])
    np.testing.assert_allclose(improvement.action_weights, [softmax(np.array([10.0, 0.0]))], atol=1e-6)


# sampled_one_step


@pytest.mark.parametrize(("actions", "samples"), [(2, 4), (3, 4), (6, 4), (18, 4), (18, 16), (3, 1), (3, 2)])
def test_sampled_weights_on_the_golden_figures(actions, samples):
    with np.load(GOLDEN / "improve_sampled.npz") as file:
        prefix = f"A{actions}_N{samples}_"
        sampled, advantage = file[prefix + "actions"], file[prefix + "adv"]
        expected = file[prefix + "pi_stable_f64"]
    weights = np.exp(np.asarray(sample_log_weights(jnp.asarray(advantage)), np.float64))
    estimate = np.zeros_like(expected)
    np.add.at(estimate, (np.arange(len(sampled))[:, None], sampled), weights)
    np.testing.assert_allclose(estimate, expected, rtol=2e-5, atol=1e-12)


@pytest.mark.parametrize("samples", [1, 2, 4, 32])
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
def test_sampled_operator_is_the_estimator_on_its_own_samples(samples, scale):
    rng = np.random.default_rng(samples)
    prior = rng.normal(size=(64, 6)).astype(np.float32)
    q = (scale * rng.uniform(-1, 1, (64, 6))).astype(np.float32)
    operator = functools.partial(operators.sampled_one_step, num_samples=samples)
    value = rng.normal(size=64).astype(np.float32)
    improvement = improve(operator, *one_decision(prior, value, q))
    sampled = sampled_actions(prior, samples)
    expected = np.zeros((64, 6))
    for row in range(64):
        advantage = q[row, sampled[row]].astype(np.float64) - value[row]
        for i, action in enumerate(sampled[row]):
            others = np.delete(advantage, i)
            top = max(0.0, *others) if len(others) else 0.0
            z = np.exp(-top) + np.exp(others - top).sum()
            expected[row, action] += np.exp(np.clip(advantage[i] - top - np.log(z), None, 700))
    largest = np.finfo(np.float32).max
    ours = np.asarray(improvement.action_weights)
    assert np.isfinite(ours).all()
    within = expected < largest / (4 * samples)
    np.testing.assert_allclose(ours[within], expected[within], rtol=2e-3 if scale > 100 else 1e-4, atol=1e-30)
    assert (ours[~within] > 1e36).all()
    # q-values stand where an action was sampled and nowhere else.
    seen = np.zeros((64, 6), bool)
    np.put_along_axis(seen, sampled, True, axis=1)
    # Of no more actions than samples all are looked at, and so known.
    np.testing.assert_array_equal(np.isnan(improvement.qvalues), ~seen & (samples < 6))
    np.testing.assert_array_equal(np.asarray(improvement.qvalues)[seen], q[seen])
    assert np.take_along_axis(seen, np.asarray(improvement.action)[:, None], axis=1).all()


def sampled_actions(prior, samples):
    """Samples as the operator does: the first of three keys, from the prior."""
    key = jax.random.split(KEY, 3)[0]
    return np.asarray(jax.random.categorical(key, jnp.asarray(prior), shape=(samples, len(prior))).T)


def test_sampled_weights_converge_to_the_exact_improvement():
    """With N = 100,000 every weight is within 0.02 (over four deviations) of the exact policy."""
    rng = np.random.default_rng(0)
    prior = rng.normal(size=(4, 6)).astype(np.float32)
    q = rng.normal(size=(4, 6)).astype(np.float32)
    value = np.sum(softmax(prior) * q, axis=1).astype(np.float32)
    # The estimator's Z is that of advantages under the prior, so Z(s) = Σ π·exp(adv) in the limit.
    exact = float64_answer(prior, q)
    errors = []
    for samples in (100, 100_000):
        operator = functools.partial(operators.sampled_one_step, num_samples=samples)
        improvement = improve(operator, *one_decision(prior, value, q))
        errors.append(np.abs(improvement.action_weights - exact).max())
    assert errors[1] < 0.02
    assert errors[1] < errors[0]


# mcts


@pytest.mark.parametrize(("simulations", "depth"), [(1, None), (5, None), (30, None), (30, 1), (30, 3)])
@pytest.mark.parametrize("masked", [False, True])
def test_mcts_gives_what_mctx_gives(simulations, depth, masked):
    mdp, prior = random_mdp(3)
    table = mdp.table(prior)
    root = root_of(table, jnp.arange(len(prior)))
    invalid = np.zeros(prior.shape, bool)
    invalid[:, 1] = masked
    settings = {"num_simulations": simulations, "max_depth": depth, "invalid_actions": jnp.asarray(invalid)}
    ours = operators.mcts(table, KEY, root, table_step, **settings)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs = mctx.muzero_policy(table, KEY, root, table_step, dirichlet_fraction=0.0, **settings)
        summary = theirs.search_tree.summary()
    np.testing.assert_array_equal(ours.action, theirs.action)
    np.testing.assert_array_equal(ours.action_weights, theirs.action_weights)
    visits, q = np.asarray(summary.visit_counts, np.float64), np.asarray(summary.qvalues)
    np.testing.assert_allclose(ours.value, (visits * q).sum(1) / visits.sum(1), rtol=1e-5)  # Eq. 3
    np.testing.assert_array_equal(np.isnan(ours.qvalues), visits == 0)
    assert ours.search_tree is not None


def test_mcts_temperature_sharpens_the_visits():
    mdp, prior = random_mdp(3)
    table = mdp.table(prior)
    root = root_of(table, jnp.arange(len(prior)))
    one = operators.mcts(table, KEY, root, table_step, num_simulations=20)
    half = operators.mcts(table, KEY, root, table_step, num_simulations=20, temperature=0.5)
    squared = np.asarray(one.action_weights, np.float64) ** 2
    np.testing.assert_allclose(half.action_weights, squared / squared.sum(1, keepdims=True), atol=1e-6)


def test_mcts_q_tilts_the_prior_by_the_searched_q():
    mdp, prior = random_mdp(5)
    table = mdp.table(prior)
    root = root_of(table, jnp.arange(len(prior)))
    improvement = operators.mcts_q(table, KEY, root, table_step, num_simulations=3, tau=0.1)
    q = np.asarray(improvement.qvalues, np.float64)
    assert np.isnan(q).any()
    q = np.where(np.isnan(q), np.asarray(root.value)[:, None], q)
    np.testing.assert_allclose(improvement.action_weights, softmax(prior + q / 0.1), atol=1e-5)


# Policy improvement on exact models: the true value of the improved policy, by linear algebra.
# Sampled with N = 4,096 (normalised weights) and searches with 200 simulations may lose 0.02 (values are
# within ±15): sampling error, and visits that explore.


@pytest.mark.parametrize(
    ("operator", "tolerance"),
    [
        pytest.param(operators.one_step, 1e-4, id="one_step"),
        pytest.param(operators.prior, 1e-4, id="prior"),
        pytest.param(functools.partial(operators.sampled_one_step, num_samples=4096), 0.02, id="sampled"),
        pytest.param(functools.partial(operators.mcts, num_simulations=200), 0.02, id="mcts"),
        pytest.param(functools.partial(operators.mcts_q, num_simulations=200), 0.02, id="mcts_q"),
        pytest.param(functools.partial(operators.gumbel, num_simulations=200), 0.02, id="gumbel"),
        pytest.param(operators.regularized, 1e-4, id="regularized"),
        pytest.param(
            functools.partial(operators.regularized, source=operators.mcts, num_simulations=200),
            0.02,
            id="regularized_search",
        ),
        pytest.param(operators.cmpo, 1e-4, id="cmpo"),
        pytest.param(functools.partial(operators.cmpo, num_samples=4096), 0.02, id="cmpo_sampled"),
        pytest.param(operators.mpo, 1e-4, id="mpo"),
        pytest.param(functools.partial(operators.mpo, per="batch"), 1e-4, id="mpo_batch"),
        pytest.param(functools.partial(operators.smc, num_particles=4096, depth=1), 0.02, id="smc_1"),
        pytest.param(functools.partial(operators.smc, num_particles=4096, depth=3), 0.02, id="smc_3"),
    ],
)
def test_the_improved_policy_is_no_worse_in_any_state(operator, tolerance):
    compiled = jax.jit(functools.partial(improve, operator))
    for seed in range(8):
        mdp, prior = random_mdp(seed)
        table = mdp.table(prior)
        improvement = compiled(table, root_of(table, jnp.arange(len(prior))))
        weights = np.asarray(improvement.action_weights, np.float64)
        improved = mdp.evaluate(weights / weights.sum(axis=1, keepdims=True))
        before = mdp.evaluate(softmax(prior))
        assert (improved >= before - tolerance).all(), f"MDP {seed}"
        if operator is not operators.prior:
            assert improved.mean() > before.mean() + 0.1, f"MDP {seed}"


# The contract, for every registered operator


def test_every_registered_operator_is_in_the_suite():
    assert set(SETTINGS) == set(operators.names())


@pytest.fixture
def case():
    mdp, prior = random_mdp(1)
    table = mdp.table(prior)
    return table, root_of(table, jnp.arange(len(prior)))


@every_operator
def test_shapes_and_dtypes(operator, case):
    improvement = improve(operator, *case)
    assert improvement.action.shape == (12,)
    assert improvement.action.dtype == jnp.int32
    for field, shape in {"action_weights": (12, 4), "value": (12,), "qvalues": (12, 4)}.items():
        assert getattr(improvement, field).shape == shape
        assert getattr(improvement, field).dtype == jnp.float32
    assert (np.asarray(improvement.action_weights) >= 0).all()
    assert not improvement.complete or not np.isnan(improvement.qvalues).any()


@every_operator
def test_jit_equals_eager(operator, case):
    eager = improve(operator, *case)
    compiled = jax.jit(functools.partial(improve, operator))(*case)
    np.testing.assert_array_equal(eager.action, compiled.action)
    np.testing.assert_allclose(eager.action_weights, compiled.action_weights, atol=1e-6)
    np.testing.assert_allclose(eager.value, compiled.value, rtol=1e-5)
    np.testing.assert_allclose(eager.qvalues, compiled.qvalues, rtol=1e-5, atol=1e-6)  # of sums near 0


@every_operator
def test_batch_rows_are_independent(operator, case):
    table, root = case
    table = table._replace(next_state=jnp.maximum(table.next_state, 1))  # nothing leads to state 0
    changed = table._replace(reward=table.reward.at[0].add(100.0))
    before, after = improve(operator, table, root), improve(operator, changed, root)
    np.testing.assert_array_equal(before.action_weights[1:], after.action_weights[1:])
    np.testing.assert_array_equal(before.action[1:], after.action[1:])


@every_operator
def test_masked_actions_get_exactly_nothing(operator, case):
    table, root = case
    invalid = np.random.default_rng(0).random((12, 4)) < 0.5
    invalid[np.arange(12), np.arange(12) % 4] = False  # at least one legal action each
    table = table._replace(reward=jnp.where(invalid, 1e4, table.reward))  # a temptation
    improvement = improve(operator, table, root, jnp.asarray(invalid))
    assert (np.asarray(improvement.action_weights)[invalid] == 0).all()
    assert np.isfinite(improvement.action_weights).all()
    assert np.isfinite(improvement.value).all()
    assert not np.take_along_axis(invalid, np.asarray(improvement.action)[:, None], 1).any()


@every_operator
def test_a_mask_of_numbers_does_as_well(operator, case):
    invalid = np.zeros((12, 4))
    invalid[:, 2] = 1
    as_float = improve(operator, *case, jnp.asarray(invalid, jnp.float32))
    as_bool = improve(operator, *case, jnp.asarray(invalid, bool))
    np.testing.assert_array_equal(as_float.action_weights, as_bool.action_weights)


@every_operator
def test_one_action_has_all_the_weight(operator):
    prior, q = np.zeros((3, 1), np.float32), np.array([[5.0], [-1e4], [0.0]], np.float32)
    improvement = improve(operator, *one_decision(prior, q[:, 0], q))
    np.testing.assert_array_equal(improvement.action, 0)
    if operator.func is not operators.sampled_one_step:
        np.testing.assert_allclose(improvement.action_weights, 1)
    assert np.isfinite(improvement.action_weights).all()


@every_operator
@pytest.mark.parametrize("single_legal", [False, True])
def test_gradients_are_finite(operator, case, single_legal):
    table, root = case
    invalid = jnp.asarray(np.arange(4)[None] != 2) & jnp.ones((12, 4), bool) if single_legal else None

    def objective(prior_logits, reward, value):
        improvement = improve(
            operator,
            table._replace(reward=reward),
            root.replace(prior_logits=prior_logits, value=value),
            invalid,
        )
        entropy = jnp.sum(improvement.action_weights * jnp.log(improvement.action_weights + 1e-6))
        return entropy + jnp.sum(improvement.value)

    inputs = (root.prior_logits, 10 * table.reward, root.value)
    if operator.func.__name__ in SEARCHES:  # the search's loop has derivatives in forward mode alone
        gradients = jax.jvp(objective, inputs, jax.tree.map(jnp.ones_like, inputs))
    else:
        gradients = jax.grad(objective, argnums=(0, 1, 2))(*inputs)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@every_operator
def test_actions_are_sampled_from_the_improved_policy(operator, case):
    table, root = case
    row = jax.tree.map(lambda x: jnp.repeat(x[:1], 4000, axis=0), root)
    improvement = improve(operator, table, row)
    frequency = np.bincount(np.asarray(improvement.action), minlength=4) / 4000
    weights = np.asarray(improvement.action_weights, np.float64)
    expected = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)
    # Halving leaves out the best of Gumbel's actions now and then, by what it knew of them half-way.
    slack = 0.05 if operator.func is operators.gumbel else 0
    np.testing.assert_allclose(frequency, expected, atol=slack + 4 * 0.5 / np.sqrt(4000))


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("sampled_one_step", "num_samples"),
        ("mcts", "num_simulations"),
        ("mcts_q", "num_simulations"),
        ("gumbel", "num_simulations"),
        ("gumbel", "max_num_considered_actions"),
        ("regularized", "num_simulations"),
        ("cmpo", "num_samples"),
    ],
)
def test_impossible_budgets_are_refused(name, setting, case):
    with pytest.raises(ValueError, match=f"{setting} of at least 1"):
        operators.get(name)(case[0], KEY, case[1], table_step, **{setting: 0})


def test_impossible_temperatures_are_refused(case):
    for tau in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="tau must be a finite number above 0"):
            operators.mcts_q(case[0], KEY, case[1], table_step, tau=tau)
    for name in ("one_step", "sampled_one_step", "mcts", "mcts_q", "regularized", "cmpo", "smc"):
        for temperature in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="temperature must be a finite number of at least 0"):
                operators.get(name)(case[0], KEY, case[1], table_step, temperature=temperature)


@pytest.mark.parametrize("name", ["mcts", "mcts_q"])
@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("max_depth", [0, -1]),
        ("dirichlet_fraction", [-1, 2, float("nan")]),
        ("dirichlet_alpha", [0, -2, float("inf")]),
        ("pb_c_init", [-1, float("nan")]),
        ("pb_c_base", [0, -1, float("inf")]),
    ],
)
def test_a_search_refuses_what_cannot_be_meant(name, setting, values, case):
    for value in values:
        with pytest.raises(ValueError, match=f"{setting} (must be|of at least 1)"):
            operators.get(name)(case[0], KEY, case[1], table_step, **{setting: value})


def test_whole_numbers_are_as_good_as_others(case):
    settings = {"dirichlet_fraction": 0, "dirichlet_alpha": 1, "pb_c_init": 1, "pb_c_base": 19652}
    whole = operators.mcts(case[0], KEY, case[1], table_step, **settings)
    floats = {name: float(value) for name, value in settings.items()}
    others = operators.mcts(case[0], KEY, case[1], table_step, **floats)
    np.testing.assert_array_equal(whole.action_weights, others.action_weights)


def test_at_the_least_tau_the_best_action_has_all_the_weight(case):
    improvement = operators.mcts_q(case[0], KEY, case[1], table_step, tau=1e-40)
    q = np.asarray(improvement.qvalues)
    q = np.where(np.isnan(q), np.asarray(case[1].value)[:, None], q)
    np.testing.assert_array_equal(np.argmax(improvement.action_weights, axis=1), np.argmax(q, axis=1))
    assert np.isfinite(improvement.action_weights).all()
