"""Windows of a store that hold several roots: those of the next episode are stacked as in memory."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Learner, agents
from rosmo.data import FrameStore, StoreSampler, window_sampler, write_store
from rosmo.data.stacking import stack_frames
from tests.learner.test_learner import KEY, assert_close, quick_adamw
from tests.windows import random_steps, small_model

SIZE, STACK, ACTIONS = (3, 2), 4, 3
LENGTHS = (9, 2, 12, 3, 2, 20, 5)


def episodes():
    rng = np.random.default_rng(0)
    for i, length in enumerate(LENGTHS):
        steps = random_steps(rng, [length], np.array([i % 2 == 0]))
        frames = rng.integers(1, 255, (length, *SIZE)).astype(np.uint8)
        yield dataclasses.replace(steps, observation=frames, is_first=np.arange(length) == 0)


def stacked(episode):
    """An episode with its frames stacked, the slow and obvious way."""
    frames = np.concatenate([np.zeros((STACK - 1, *SIZE), np.uint8), episode.observation])
    stacks = [np.stack(frames[t : t + STACK], axis=-1) for t in range(len(episode.action))]
    return dataclasses.replace(episode, observation=np.stack(stacks))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("store") / "s"
    write_store(directory, {"all": episodes()}, stack=STACK, metadata={})
    return directory


def in_memory(window: int, chosen=tuple(range(7))):
    kept = [stacked(episode) for i, episode in enumerate(episodes()) if i in chosen]
    steps = jax.tree.map(lambda *x: np.concatenate(x), *kept)
    return window_sampler(steps, window=window, num_actions=ACTIONS)


@pytest.mark.parametrize("window", [2, 5, 30])
def test_stacks_hold_no_frame_of_another_episode(directory, window):
    store = FrameStore(directory)
    found = stack_frames(store.read(np.arange(store.num_starts), window))
    source = in_memory(window)
    expected = jax.vmap(source.window_at)(source.starts)
    beyond = np.asarray(source.starts)[:, None] + np.arange(window) >= sum(LENGTHS)
    assert beyond.any() == (window > 2)
    np.testing.assert_array_equal(found.is_last, expected.is_last)
    np.testing.assert_array_equal(
        np.asarray(found.observation)[~beyond], np.asarray(expected.observation)[~beyond]
    )


def test_windows_stay_within_the_episodes_to_use(directory):
    """A share of the episodes is all that is read of, also where a window runs on past an end."""
    store, window = FrameStore(directory, fraction=0.6, seed=1), 30
    first = store.starts(np.arange(store.num_starts))[1]
    chosen = np.flatnonzero(np.isin(np.cumsum([0, *LENGTHS[:-1]]), first))
    gaps = np.diff(chosen)
    assert (gaps == 1).any()  # some of them lie in a row, others do not
    assert (gaps > 1).any()
    windows = store.read(np.arange(store.num_starts), window)
    mine = np.concatenate([e.observation for i, e in enumerate(episodes()) if i in chosen])
    allowed = {frame.tobytes() for frame in (*mine, np.zeros(SIZE, np.uint8))}
    assert {frame.tobytes() for frame in windows.observation.reshape(-1, *SIZE)} == allowed
    # Where they lie in a row a window goes on; elsewhere it stays at a step that is no root.
    source = in_memory(window, chosen)
    expected = jax.vmap(source.window_at)(source.starts)
    stays = np.zeros(windows.is_last.shape, bool)
    stays[:, 1:] = np.logical_and.accumulate(windows.is_last[:, ::-1], axis=1)[:, ::-1][:, 1:]
    stays[:, 1:] &= windows.is_last[:, :-1]
    assert stays.any()
    np.testing.assert_array_equal(windows.reward[~stays], np.asarray(expected.reward)[~stays])
    inside = windows.is_first[:, 1:].any(axis=1)
    assert 0 < inside.sum() < len(inside)


def test_several_roots_train_alike_on_the_store_and_in_memory(directory):
    model = functools.partial(small_model, observation_shape=(*SIZE, STACK))
    agent = agents.rosmo(model, unroll_steps=2, td_steps=2, roots=4)
    learner = Learner(agent, quick_adamw(), batch_size=16, cache_targets=False)
    source = in_memory(agent.window)
    sampler = StoreSampler(FrameStore(directory), window=agent.window, num_actions=ACTIONS)
    memory, disk = learner.init(KEY), learner.init(KEY)
    key = jax.device_get(memory.key)
    for step in range(3):
        keys = learner.draw_keys(key, step)
        batch = jax.vmap(source.sample)(keys)
        assert jnp.any(batch.is_last[:, :3])
        memory, _ = learner.update(memory, batch)
        disk, _ = learner.update(disk, sampler.batch(keys))
    assert_close(disk, memory, atol=1e-6)
