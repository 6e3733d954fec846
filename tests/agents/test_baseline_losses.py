"""The losses of BC, CRR and CQL: hand arithmetic, and a NumPy derivation."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from rosmo import Codec, Trajectory
from rosmo.agents import BC, CQL, CRR
from rosmo.model import LatentModel
from tests.baselines import (
    VARIANTS,
    everything_said,
    loss_of,
    params_of,
    scalar,
    single_steps,
    some_forbidden,
    table_model,
    two_hot,
)
from tests.tabular import softmax
from tests.windows import ACTIONS

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
