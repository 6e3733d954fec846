"""Behaviour cloning, CRR and CQL: hand arithmetic, a NumPy derivation, and tasks with known answers."""

import dataclasses
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Codec, Learner, Trajectory, adamw, agents, operators, regularizers
from rosmo.agents import BC, CQL, CRR, LatentAgent
from rosmo.agents.targets import find_boundary
from rosmo.data import window_sampler
from rosmo.model import LatentModel
from rosmo.networks import AbstractDynamics, AbstractPrediction, AbstractRepresentation, Networks
from tests.tabular import softmax
from tests.windows import ACTIONS, every_ending, small_model, talkative

KEY = jax.random.key(0)
AGENTS = {
    "bc": BC(small_model, positions=4),
    "crr": CRR(small_model, positions=4, td_steps=2, beta=0.5, max_weight=1.5),
    "cql": CQL(small_model, positions=4, td_steps=2, alpha=0.7),
}
VARIANTS = AGENTS | {
    "crr_binary": CRR(small_model, positions=4, weighting="binary"),
    "cql_one_step": CQL(small_model, positions=4),
}
every_agent = pytest.mark.parametrize("name", AGENTS)


def params_of(agent, seed: int = 1) -> LatentModel:
    return talkative(agent.init(jax.random.key(seed)), jax.random.key(seed + 100))


# Compiled once for each agent and shape, whichever test asks.


@eqx.filter_jit
def loss_of(agent, params, target, batch):
    return agent.loss(params, target, batch, KEY)


@eqx.filter_jit
def gradient_of(agent, params, target, batch):
    return eqx.filter_grad(agent.loss, has_aux=True)(params, target, batch, KEY)


@eqx.filter_jit
def everything_said(model: LatentModel, observation) -> tuple[jax.Array, jax.Array]:
    """Policy logits `[N, A]` and the logits of Q `[N, A, bins]`."""
    state = model.encode(observation)
    q = [model.step(state, jnp.full(len(observation), a))[1] for a in range(model.num_actions)]
    return model.predict(state).policy_logits, jnp.stack(q, axis=1)


@pytest.fixture(scope="module")
def batch():
    return every_ending(np.random.default_rng(0), 6)


def some_forbidden(batch: Trajectory, share: float) -> Trajectory:
    """Forbids actions by chance, but none that was taken."""
    rng = np.random.default_rng(3)
    shape = (*batch.action.shape, ACTIONS)
    taken = np.arange(ACTIONS)[None, None] == np.asarray(batch.action)[..., None]
    return dataclasses.replace(batch, invalid_actions=jnp.asarray((rng.random(shape) < share) & ~taken))


# Networks by table: a state is a one-hot observation, and every step leads to the last state.


class Identity(AbstractRepresentation):
    def __call__(self, observation):
        return observation


class TableDynamics(AbstractDynamics):
    reward: jax.Array  # [S, A, bins]

    def __call__(self, state, action):
        rows = jnp.tensordot(state, self.reward, axes=1)
        return jax.nn.one_hot(len(state) - 1, len(state)), rows[action]


class TablePrediction(AbstractPrediction):
    policy: jax.Array  # [S, A]
    value: jax.Array  # [S, bins]

    def __call__(self, state):
        return state @ self.policy, state @ self.value


def table_model(policy, q, value=None, *, codec: Codec, discount: float = 0.5) -> LatentModel:
    policy, q = jnp.asarray(policy, jnp.float32), jnp.asarray(q, jnp.float32)
    value = jnp.zeros((len(policy), codec.bins)) if value is None else jnp.asarray(value, jnp.float32)
    networks = Networks(Identity(), TableDynamics(q), TablePrediction(policy, value))
    return LatentModel(networks, codec, codec, policy.shape[1], discount)


def single_steps(state, action, reward, terminal, *, states: int, length: int = 2) -> Trajectory:
    """Windows of one real step each, from `state` to the next one, padded with more of the closing step."""
    state, action, reward = np.asarray(state), np.asarray(action), np.asarray(reward)
    count = len(state)
    time = np.minimum(np.arange(length), 1)[None]
    last = np.broadcast_to(time > 0, (count, length))
    return Trajectory(
        observation=jnp.asarray(np.eye(states, dtype=np.float32)[state[:, None] + time]),
        action=jnp.asarray(np.broadcast_to(action[:, None], (count, length)).astype(np.int32)),
        reward=jnp.asarray(np.where(last, 0, reward[:, None]).astype(np.float32)),
        discount=jnp.ones((count, length)),
        is_first=jnp.asarray(~last),
        is_last=jnp.asarray(last),
        is_terminal=jnp.asarray(last & np.asarray(terminal)[:, None]),
    )


# Five bins that stand for −8, −3, 0, 3 and 8, as ε is next to nothing.
BY_HAND = Codec(5, epsilon=1e-8)
EVEN = [0.0] * 5  # logits of no opinion: a Q-value of 0 and a cross entropy of ln 5
SURE = {x: [60.0 * (x == bin) for bin in (-8, -3, 0, 3, 8)] for x in (-8, -3, 0, 3, 8)}
POLICY = [[0, math.log(3)], [0, 0], [0, 0]]  # in state 0: 1/4, 3/4


def test_bc_by_hand():
    model = table_model(POLICY, np.zeros((3, 2, 5)), codec=BY_HAND)
    agent = BC(lambda key: model, positions=2)
    steps = single_steps([0, 0], [0, 1], [5, 5], [True, False], states=3)
    loss, metrics = loss_of(agent, model, model, steps)
    # Two windows of two positions, of which two are real.
    np.testing.assert_allclose(loss, (math.log(4) + math.log(4 / 3)) / 4, rtol=1e-6)
    np.testing.assert_allclose(
        metrics["policy_entropy"], 0.25 * math.log(4) + 0.75 * math.log(4 / 3), rtol=1e-6
    )
    np.testing.assert_allclose(metrics["accuracy"], 0.5)


@pytest.mark.parametrize("weighting", ["binary", "exp"])
def test_crr_by_hand(weighting):
    """In state 0, Q is 3 and 0 under a policy of 1/4 and 3/4: advantages of 2.25 and −0.75.

    In state 1 the target network has Q-values of 8 and 0 under an even policy: a value of 4.
    """
    online = table_model(POLICY, [[SURE[3], EVEN], [EVEN, EVEN], [EVEN, EVEN]], codec=BY_HAND)
    target = table_model(POLICY, [[EVEN, EVEN], [SURE[8], SURE[0]], [EVEN, EVEN]], codec=BY_HAND)
    agent = CRR(lambda key: online, weighting=weighting, max_weight=9.0, positions=1, value_weight=0.25)
    weights = {"binary": (1.0, 0.0), "exp": (9.0, math.exp(-0.75))}[weighting]  # exp(2.25) is 9.49
    cases = [
        # action, reward, terminal: policy loss and critic's loss
        (0, 1.0, False, weights[0] * math.log(4), 0.0),  # 1 + 4/2 = 3, as the critic says
        (1, 1.0, False, weights[1] * math.log(4 / 3), math.log(5)),
        (0, 3.0, True, weights[0] * math.log(4), 0.0),  # 3, and nothing after the end
        # 3 + 4/2 = 5: √6 − 1 lies 0.4495 of the way from the bin of 3 to that of 8.
        (0, 3.0, False, weights[0] * math.log(4), 60 * (math.sqrt(6) - 2)),
    ]
    for action, reward, terminal, policy, critic in cases:
        loss, metrics = loss_of(
            agent, online, target, single_steps([0], [action], [reward], [terminal], states=3)
        )
        np.testing.assert_allclose(metrics["loss/policy"], policy, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(metrics["loss/value"], 0.25 * critic, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(loss, policy + 0.25 * critic, rtol=1e-4, atol=1e-5)


def test_cql_by_hand():
    """In state 0, Q is 3 and 0. In state 1 the online network likes action 1, worth −3 to the target's."""
    online = table_model(POLICY, [[SURE[3], EVEN], [SURE[0], SURE[3]], [EVEN, EVEN]], codec=BY_HAND)
    target = table_model(POLICY, [[EVEN, EVEN], [SURE[8], SURE[-3]], [EVEN, EVEN]], codec=BY_HAND)
    agent = CQL(lambda key: online, alpha=2.0, positions=1)
    low = math.log(math.exp(3) + 1)
    for action, reward, terminal, critic, penalty in [
        (0, 4.5, False, 0.0, low - 3),  # 4.5 − 3/2 = 3, as the network says
        (0, 3.0, True, 0.0, low - 3),
        (1, 1.0, False, math.log(5), low),
        (0, 1.5, False, 60.0, low - 3),  # 0: a bin that it is sure against
    ]:
        loss, metrics = loss_of(
            agent, online, target, single_steps([0], [action], [reward], [terminal], states=3)
        )
        np.testing.assert_allclose(metrics["loss/value"], critic, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(metrics["loss/conservative"], 2 * penalty, rtol=1e-4)
        np.testing.assert_allclose(loss, critic + 2 * penalty, rtol=1e-4)


# The published formulas once more, step by step, in float64.


def two_hot(codec: Codec, x: float) -> np.ndarray:
    y = np.clip(np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + codec.epsilon * x, codec.low, codec.high)
    low = min(int(np.floor(y - codec.low)), codec.bins - 2)
    weights = np.zeros(codec.bins)
    weights[low + 1] = y - codec.low - low
    weights[low] = 1 - weights[low + 1]
    return weights


def scalar(codec: Codec, logits: np.ndarray) -> float:
    y, e = float(softmax(logits) @ np.linspace(codec.low, codec.high, codec.bins)), codec.epsilon
    return np.sign(y) * (((np.sqrt(1 + 4 * e * (abs(y) + 1 + e)) - 1) / (2 * e)) ** 2 - 1)


@dataclasses.dataclass
class Said:
    """What a network says of one step."""

    policy_logits: np.ndarray  # [legal]
    q_logits: dict[int, np.ndarray]  # by legal action

    def q(self, action: int) -> float:
        return scalar(Codec(), self.q_logits[action])

    def policy(self) -> dict[int, float]:
        return dict(zip(self.q_logits, softmax(self.policy_logits), strict=True))

    def value(self) -> float:
        return sum(p * self.q(a) for a, p in self.policy().items())

    def best(self) -> int:
        return max(self.q_logits, key=self.q)


def ask(model: LatentModel, batch: Trajectory) -> list[list[Said]]:
    """What a network says of every step `[B][T]`, of the legal actions alone."""
    windows, time = batch.action.shape
    policy, q = everything_said(model, batch.observation.reshape(-1, 4))
    invalid = np.zeros((windows, time, ACTIONS), bool)
    invalid = (invalid if batch.invalid_actions is None else np.asarray(batch.invalid_actions)).reshape(-1, 3)
    said = []
    for n in range(windows * time):
        legal = [a for a in range(ACTIONS) if not invalid[n, a]]
        logits = {a: np.asarray(q[n, a], np.float64) for a in legal}
        said.append(Said(np.asarray(policy, np.float64)[n, legal], logits))
    return [said[b * time : (b + 1) * time] for b in range(windows)]


def target_of(agent, online: list[Said], target: list[Said], window: Trajectory, t: int) -> float:
    total, factor = 0.0, 1.0
    for i in range(t, t + agent.td_steps):
        total += factor * float(window.reward[i])
        factor *= 0.9 * float(window.discount[i])
        if window.is_last[i + 1]:
            break
    if window.is_last[i + 1] and window.is_terminal[i + 1]:
        return total
    after = target[i + 1]
    return total + factor * (after.value() if isinstance(agent, CRR) else after.q(online[i + 1].best()))


def derived_terms(agent, online: LatentModel, target: LatentModel, batch: Trajectory) -> dict[str, float]:
    terms = {"policy": 0.0, "value": 0.0, "conservative": 0.0}
    for b, (said, said_by_target) in enumerate(zip(ask(online, batch), ask(target, batch), strict=True)):
        window = jax.tree.map(lambda x, b=b: np.asarray(x)[b], batch)
        for t in range(agent.positions):
            if window.is_last[t]:
                break
            here, action = said[t], int(window.action[t])
            log_prob = math.log(here.policy()[action])
            if isinstance(agent, BC):
                terms["policy"] -= log_prob
                continue
            goal = two_hot(Codec(), target_of(agent, said, said_by_target, window, t))
            cross_entropy = -float(goal @ np.log(softmax(here.q_logits[action])))
            if isinstance(agent, CQL):
                total = math.log(sum(math.exp(here.q(a)) for a in here.q_logits))
                terms["conservative"] += agent.alpha * (total - here.q(action))
                terms["value"] += cross_entropy
            else:
                advantage = here.q(action) - here.value()
                weight = min(math.exp(advantage / agent.beta), agent.max_weight)
                weight = float(advantage > 0) if agent.weighting == "binary" else weight
                terms["policy"] -= agent.policy_weight * weight * log_prob
                terms["value"] += agent.value_weight * cross_entropy
    return {name: value / (len(batch.action) * agent.positions) for name, value in terms.items()}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("forbidden", [0.0, 0.4])
def test_the_loss_is_that_of_the_published_formulas(name, forbidden, batch):
    agent = VARIANTS[name]
    online, target = params_of(agent, 1), params_of(agent, 2)
    windows = some_forbidden(batch, forbidden) if forbidden else batch
    loss, metrics = loss_of(agent, online, target, windows)
    expected = derived_terms(agent, online, target, windows)
    for term, value in expected.items():
        np.testing.assert_allclose(metrics.get(f"loss/{term}", 0.0), value, rtol=2e-4, err_msg=term)
    np.testing.assert_allclose(loss, sum(expected.values()), rtol=2e-4)


# What every agent owes the learner.


@every_agent
def test_the_loss_is_the_mean_over_windows(name, batch):
    agent = AGENTS[name]
    params, target = params_of(agent, 1), params_of(agent, 2)
    whole = loss_of(agent, params, target, batch)
    rows = [jax.tree.map(lambda x, i=i: x[i : i + 1], batch) for i in range(len(batch.action))]
    parts = [loss_of(agent, params, target, row) for row in rows]
    means = jax.tree.map(lambda *x: np.mean(x), *parts)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(means), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    longer = jax.tree.map(lambda x: jnp.concatenate([x, x], axis=1), batch)
    np.testing.assert_allclose(loss_of(agent, params, target, longer)[0], whole[0], rtol=1e-6)


@every_agent
def test_nothing_beyond_an_episodes_end_is_read_and_padding_may_be_nan(name, batch):
    agent = AGENTS[name]
    params, target = params_of(agent, 1), params_of(agent, 2)
    beyond = ~np.asarray(find_boundary(batch).observed)
    closed = beyond | np.asarray(batch.is_last)  # the closing step has no action, reward or discount
    assert beyond.sum() == 20
    changed = dataclasses.replace(
        batch,
        observation=jnp.where(beyond[..., None], jnp.nan, batch.observation),
        action=jnp.where(closed, -7, batch.action),
        reward=jnp.where(closed, jnp.nan, batch.reward),
        discount=jnp.where(closed, jnp.nan, batch.discount),
        is_first=batch.is_first ^ beyond,
        is_last=batch.is_last ^ beyond,
        is_terminal=batch.is_terminal ^ beyond,
    )
    before, after = (gradient_of(agent, params, target, windows) for windows in (batch, changed))
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(a, b)


@every_agent
def test_every_real_step_is_read(name, batch):
    agent = AGENTS[name]
    params, target = params_of(agent, 1), params_of(agent, 2)
    row = jax.tree.map(lambda x: x[-1:], batch)
    assert not row.is_last.any()
    before = loss_of(agent, params, target, row)[0]
    for t in range(agent.window):
        changed = dataclasses.replace(row, observation=row.observation.at[0, t].add(1.0))
        assert loss_of(agent, params, target, changed)[0] != before
        changed = dataclasses.replace(row, reward=row.reward.at[0, t].add(1.0))
        learns_from_rewards = name != "bc" and t < agent.window - 1
        assert (loss_of(agent, params, target, changed)[0] != before) == learns_from_rewards


@every_agent
def test_targets_carry_no_gradient(name, batch):
    agent = AGENTS[name]
    params = params_of(agent)

    apart, _ = gradient_of(agent, params, params, batch)
    both = eqx.filter_jit(eqx.filter_grad(lambda pair: agent.loss(*pair, batch, KEY)[0]))((params, params))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(both[1]))
    for a, b in zip(jax.tree.leaves(both[0]), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@every_agent
def test_each_loss_trains_its_own_networks(name, batch):
    agent = AGENTS[name]
    params = params_of(agent)
    gradient = gradient_of(agent, params, params, batch)[0].networks

    def trained(tree) -> bool:
        return any(np.any(leaf) for leaf in jax.tree.leaves(tree))

    assert trained(gradient.representation)
    assert trained(gradient.dynamics) == (name != "bc")
    assert trained(gradient.prediction.policy) == (not name.startswith("cql"))
    assert not trained(gradient.prediction.value)


def test_crr_clones_without_teaching_its_critic(batch):
    """With the critic's loss left out, the weights of the cloning pass nothing back."""
    agent = CRR(small_model, positions=4, value_weight=0.0)
    params = params_of(agent)
    gradient = gradient_of(agent, params, params, batch)[0].networks
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient.dynamics))


@every_agent
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_finite_with_a_single_legal_action(name, dtype, batch):
    agent = dataclasses.replace(AGENTS[name], model=functools.partial(small_model, dtype=dtype))
    params, target = params_of(agent, 1), params_of(agent, 2)
    gradient, metrics = gradient_of(agent, params, target, some_forbidden(batch, 1.1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert all(np.isfinite(value) for value in metrics.values())
    # Where there is no choice, there is nothing to clone and nothing to hold down.
    for term in ("loss/policy", "loss/conservative"):
        np.testing.assert_allclose(metrics.get(term, 0.0), 0, atol=1e-6)


# The paper's remark on its ablation.


@pytest.mark.parametrize(
    ("weighting", "regularizer"), [("binary", regularizers.behavior), ("exp", regularizers.behavior_exp)]
)
def test_behavior_is_crr_with_the_advantage_of_a_model(weighting, regularizer):
    """Where the look-ahead r + γv(s′) − v(s) equals Q(s, a) − E Q(s, ·), so do the policy gradients.

    The reward of the model is the Q of the critic, the next value is 0, and v(s) is what the critic expects.
    One network is online and target: the one judges by the target network, and the other by the online one.
    """
    rng = np.random.default_rng(0)
    states, codec = 7, Codec(9)
    policy, q = rng.normal(size=(states, 3)), 2 * rng.normal(size=(states, 3, 9))
    baseline = [softmax(policy[s]) @ [scalar(codec, q[s, a]) for a in range(3)] for s in range(states)]
    value = np.log(np.array([two_hot(codec, v) for v in baseline]) + 1e-12)
    value[-1] = 0
    model = table_model(policy, q, value, codec=codec)
    steps = single_steps(
        np.repeat(np.arange(states - 1), 3), np.tile(np.arange(3), states - 1), np.zeros(18), [True] * 18,
        states=states, length=3,
    )  # fmt: skip
    behavior = LatentAgent(
        lambda key: model, operators.prior, ((regularizer, 1.0),), policy_weight=0.0, value_weight=0.0,
        reward_weight=0.0, unroll_steps=1, td_steps=1,
    )  # fmt: skip
    crr = CRR(lambda key: model, weighting=weighting, positions=2, value_weight=0.0)
    (behavior_gradient, _), (crr_gradient, metrics) = (
        gradient_of(agent, model, model, steps) for agent in (behavior, crr)
    )
    expected, found = (g.networks.prediction.policy for g in (behavior_gradient, crr_gradient))
    assert 0.2 < metrics["advantage_positive"] < 0.8  # neither all nor nothing is cloned
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


# Small tasks whose answers are known.


def train(agent, steps: Trajectory, updates: int = 300, interval: int = 15) -> LatentModel:
    optimizer = adamw(5e-3, weight_decay=0.0, warmup_steps=10)
    learner = Learner(agent, optimizer, batch_size=32, target_update_interval=interval)
    source = window_sampler(steps, window=agent.window, num_actions=ACTIONS)
    return learner.update_many(learner.init(KEY), source, updates)[0].params


def bandit() -> Trajectory:
    """One decision: action 0 is frequent and pays 0, action 1 pays 1, action 2 is rare and costs 1."""
    action = np.repeat([0, 1, 2], [60, 30, 10])
    return flat(
        single_steps(np.zeros(100, int), action, [0, 1, -1] @ np.eye(3)[:, action], [True] * 100, states=4)
    )


def flat(windows: Trajectory) -> Trajectory:
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), windows)


def policy_in(model: LatentModel, state: int) -> np.ndarray:
    return softmax(everything_said(model, jnp.eye(4)[state][None])[0][0])


def q_in(model: LatentModel, state: int) -> np.ndarray:
    return np.asarray(model.value_codec.decode(everything_said(model, jnp.eye(4)[state][None])[1])[0])


def test_on_a_bandit_each_finds_its_own_answer():
    share = np.array([0.6, 0.3, 0.1])
    reward = np.array([0.0, 1.0, -1.0])
    np.testing.assert_allclose(policy_in(train(BC(small_model), bandit()), 0), share, atol=0.06)
    exponential = share * np.exp(reward) / (share @ np.exp(reward))  # π ∝ μ exp(Q): the baseline cancels
    model = train(CRR(small_model), bandit())
    np.testing.assert_allclose(q_in(model, 0), reward, atol=0.1)
    np.testing.assert_allclose(policy_in(model, 0), exponential, atol=0.06)
    assert policy_in(train(CRR(small_model, weighting="binary"), bandit()), 0)[1] > 0.95
    # The penalty alone is the cross entropy of a policy softmax Q.
    cautious = q_in(train(CQL(small_model, alpha=100.0), bandit()), 0)
    np.testing.assert_allclose(softmax(cautious), share, atol=0.06)


def chain() -> Trajectory:
    """A corridor of three states walked by chance for up to 8 steps; action 2 goes on, and the end pays 1."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(150):
        state, time = 0, 0
        while state < 3 and time < 8:
            action = int(rng.integers(0, 3))
            after = state + 1 if action == 2 else state
            rows.append((state, action, float(after == 3), time == 0, False, False))
            state, time = after, time + 1
        rows.append((state, 0, 0.0, False, True, state == 3))
    state, action, reward, first, last, terminal = map(np.array, zip(*rows, strict=True))
    return Trajectory(
        observation=np.eye(4, dtype=np.float32)[state],
        action=action.astype(np.int32),
        reward=reward.astype(np.float32),
        discount=np.ones(len(rows), np.float32),
        is_first=first,
        is_last=last,
        is_terminal=terminal,
    )


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(CRR, weighting="binary"),
        functools.partial(CRR, beta=0.02),
        functools.partial(CQL, alpha=0.1),
    ],
    ids=["crr_binary", "crr_exp", "cql"],
)
def test_along_a_corridor_both_learn_to_go_on(make):
    agent = make(small_model)
    model = train(agent, chain())
    observations = jnp.repeat(jnp.eye(4)[:3], 20, axis=0)
    for greedy in (False, True):
        actions = np.asarray(agent.act(model, KEY, observations, greedy=greedy))
        assert (actions == 2).mean() > (0.8 if isinstance(agent, CRR) and not greedy else 0.99)
    if isinstance(agent, CRR):
        best = [q_in(model, state)[2] for state in range(3)]
        np.testing.assert_allclose(best, [0.81, 0.9, 1.0], atol=0.12)


@pytest.mark.parametrize("make", [CRR, functools.partial(CQL, alpha=0.0)], ids=["crr", "cql"])
def test_a_truncation_is_not_an_end(make):
    """Two states that pay 1, each seen for one step: 0 ends there, worth 1; 1 was cut off, 1/(1 − γ)."""
    count = 120
    state = np.arange(count) // 2 % 2
    last = np.arange(count) % 2 == 1
    steps = Trajectory(
        observation=np.eye(4, dtype=np.float32)[state],
        action=(np.arange(count) // 4 % 3).astype(np.int32),
        reward=np.where(last, 0, 1).astype(np.float32),
        discount=np.ones(count, np.float32),
        is_first=~last,
        is_last=last,
        is_terminal=last & (state == 0),
    )
    model = train(make(small_model, positions=1), steps, updates=600, interval=6)
    np.testing.assert_allclose(q_in(model, 0), 1.0, rtol=0.1)
    np.testing.assert_allclose(q_in(model, 1), 10.0, rtol=0.1)


# Acting and bad settings.


@every_agent
@pytest.mark.parametrize("greedy", [False, True])
def test_act_chooses_legal_actions(name, greedy):
    agent = AGENTS[name]
    params = params_of(agent)
    observation = jax.random.normal(KEY, (20, 4))
    action = agent.act(params, KEY, observation, greedy=greedy)
    assert (action.shape, action.dtype) == ((20,), jnp.int32)
    invalid = jnp.arange(ACTIONS)[None] == jnp.ones((20, 1), jnp.int32)
    assert not np.any(agent.act(params, KEY, observation, greedy=greedy, invalid_actions=invalid) == 1)


def test_policies_are_sampled_and_q_values_are_not():
    observation = jnp.tile(jax.random.normal(KEY, (1, 4)), (2000, 1))
    for name in ("bc", "crr"):
        agent = AGENTS[name]
        params = params_of(agent)
        policy = softmax(everything_said(params, observation[:1])[0][0])
        counts = np.bincount(agent.act(params, KEY, observation), minlength=ACTIONS)
        np.testing.assert_allclose(counts / 2000, policy, atol=0.05)
        assert (agent.act(params, KEY, observation, greedy=True) == np.argmax(policy)).all()
    agent = AGENTS["cql"]
    params = params_of(agent)
    best = np.argmax(params.value_codec.decode(everything_said(params, observation[:1])[1]))
    for greedy in (False, True):
        assert (agent.act(params, KEY, observation, greedy=greedy) == best).all()


def test_defaults_are_the_published_ones():
    crr, cql = agents.get("crr")(small_model), agents.get("cql")(small_model)
    assert (crr.weighting, crr.beta, crr.max_weight, crr.td_steps) == ("exp", 1.0, 20.0, 1)
    assert (crr.policy_weight, crr.value_weight) == (1.0, 1.0)
    assert (cql.alpha, cql.td_steps) == (1.0, 1)
    assert agents.get("bc")(small_model).window == 6
    assert crr.window == cql.window == 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BC(small_model, positions=0), "positions must be at least 1"),
        (lambda: CRR(small_model, positions=0), "positions and td_steps must be at least 1"),
        (lambda: CQL(small_model, td_steps=0), "positions and td_steps must be at least 1"),
        (lambda: CRR(small_model, beta=0.0), "must be positive"),
        (lambda: CRR(small_model, max_weight=-1.0), "must be positive"),
        (lambda: CQL(small_model, alpha=-1.0), "alpha must not be negative"),
        (lambda: CRR(small_model, weighting="max"), "weighting"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_windows_too_short_and_a_reward_head_too_narrow_are_refused(batch):
    narrow = functools.partial(small_model, reward_codec=Codec(3))
    for make in (BC, CRR, CQL):
        agent = make(small_model, positions=7)
        with pytest.raises(ValueError, match=r"at least \d steps.*got actions of shape \[\d+, 6\]"):
            agent.loss(agent.init(KEY), agent.init(KEY), batch, KEY)
        if make is BC:
            make(narrow).init(KEY)
        else:
            with pytest.raises(ValueError, match="one codec for both"):
                make(narrow).init(KEY)
