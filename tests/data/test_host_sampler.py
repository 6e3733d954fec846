import functools

import jax
import numpy as np
import pytest

from rosmo import Learner
from rosmo.data import HostSampler, window_sampler
from rosmo.runs.advancing import advancer
from rosmo.runs.training import Training
from tests.learner.test_learner import KEY, assert_close, make_agent, quick_adamw
from tests.windows import ACTIONS, random_steps


@pytest.fixture(scope="module")
def steps():
    rng = np.random.default_rng(3)
    lengths = rng.integers(2, 12, 40)
    return random_steps(rng, lengths, rng.random(40) < 0.5)


def test_host_and_device_draw_the_same_windows(steps):
    keys = jax.random.split(KEY, 64)
    host = HostSampler(steps, window=6, num_actions=ACTIONS).batch(keys)
    device = jax.vmap(window_sampler(steps, window=6, num_actions=ACTIONS).sample)(keys)
    assert_close(host, device)


def test_batches_come_in_order_and_from_any_step_on(steps):
    sampler = HostSampler(steps, window=6, num_actions=ACTIONS)
    keys_of_step = lambda step: jax.random.split(jax.random.fold_in(KEY, step), 4)  # noqa: E731
    whole = list(sampler.batches(keys_of_step, 0, 9))
    assert len(whole) == 9
    for step, batch in enumerate(whole):
        assert_close(batch, sampler.batch(keys_of_step(step)))
    assert_close(list(sampler.batches(keys_of_step, 7, 2)), whole[7:])


def test_a_learner_trains_alike_on_either(steps):
    agent = make_agent()
    learner = Learner(agent, quick_adamw(), batch_size=8, cache_targets=False)
    device, _ = learner.update_many(
        learner.init(KEY), window_sampler(steps, window=agent.window, num_actions=ACTIONS), 4
    )
    sampler = HostSampler(steps, window=agent.window, num_actions=ACTIONS)
    host = learner.init(KEY)
    keys_of_step = functools.partial(learner.draw_keys, jax.device_get(host.key))
    for batch in sampler.batches(keys_of_step, 0, 4):
        host, _ = learner.update(host, batch)
    assert_close(host, device, atol=1e-6)


def test_keys_are_traced_once_however_many_rows_are_logged(steps, monkeypatch):
    agent = make_agent()
    learner = Learner(agent, quick_adamw(), batch_size=8, cache_targets=False)
    traces, draw = [], learner.draw_keys
    learner.draw_keys = lambda key, step: traces.append(step) or draw(key, step)
    monkeypatch.setattr(Training, "spaces", lambda self: ((), ACTIONS))
    training = Training("catch", make_agent, device_bytes=0)
    advance = advancer(training, agent, learner, steps)
    state = learner.init(KEY)
    for _ in range(3):
        state, metrics = advance(state, 2)
        assert metrics["loss"].shape == (2,)
    assert len(traces) == 1


def test_bad_steps_are_refused_as_on_the_device(steps):
    with pytest.raises(ValueError, match="an action outside 0…1"):
        HostSampler(steps, window=6, num_actions=2)
