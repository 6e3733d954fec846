"""How good a world is, by episodes that it was not trained on."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from rosmo.agents import Trained
from rosmo.data import DataSet
from rosmo.data.stacking import stack_frames
from rosmo.evaluate.held_out import tenths
from rosmo.evaluate.playing import on_one_device
from rosmo.evaluate.windows import ChosenWindows
from rosmo.types import Keys, Params, Trajectory, is_array
from rosmo.worlds import World, align, filter_window
from rosmo.worlds.base import states_at

_SAMPLES = 8  # of imagination, whose mean is what a world expects
_BATCH = 64


class HeldOutWorld:
    """Scores a world by windows of held-out episodes, the same ones every time.

    - the terms of its loss, and the likelihoods of observation, reward and discount per step;
    - `image_error_k`, `reward_error_k`: mean squared errors of what it expects k steps ahead along the data's
      actions, seeing nothing on the way; beside them those of repeating the last observation, and of the mean
      reward. An observation's error is the mean over its numbers, in the units of the data;
    - `calibration`: the uncertainty of one step in tenths, and the error of the observation expected there;
    - `uncertainty_taken` and `uncertainty_other`: of the data's action, and of one sampled from all others.

    Args:
        agent: trains the world, which its parameters are.
        data: the data set of the held-out episodes.
        num_actions: every real action lies below it.
        context: steps before imagination begins, which are seen as far back as its episode goes.
        depth: steps that are imagined.
        windows: how many at most.
    """

    def __init__(
        self,
        agent: Trained,
        data: DataSet,
        *,
        num_actions: int,
        context: int = 8,
        depth: int = 10,
        windows: int = 2_048,
    ):
        window = max(agent.window, context + depth)
        self._windows = ChosenWindows(data, window, num_actions, windows=windows, batch=_BATCH)
        self._depth = depth
        static = eqx.partition(eqx.filter_eval_shape(agent.init, jax.random.key(0)), is_array)[1]

        def judge(arrays: Params, batch: Trajectory, keys: Keys) -> tuple[dict, dict]:
            world, batch = eqx.combine(arrays, static), stack_frames(batch)
            _, means = agent.loss(world, world, jax.tree.map(lambda x: x[:, : agent.window], batch), keys)
            batch = jax.tree.map(lambda x: x[:, : context + depth], batch)
            return means, _compare(world, batch, keys, context)

        self._judge = jax.jit(judge)

    def report(self, params: Params, seed: int) -> dict[str, Any]:
        """Returns the scores by name, the same for the same parameters and seed."""
        arrays, means, compared = on_one_device(params), [], []
        for number, batch in enumerate(self._windows.batches()):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), number), self._windows.batch)
            mean, each = jax.device_get(self._judge(arrays, batch, keys))
            means.append(mean)
            compared.append(each)
        scores: dict[str, Any] = {name: float(np.mean([mean[name] for mean in means])) for name in means[0]}
        each = {name: np.concatenate([part[name] for part in compared]) for name in compared[0]}
        return scores | self._by_depth(each) | _uncertainty(each)

    def _by_depth(self, each: dict[str, np.ndarray]) -> dict[str, float]:
        scores = {}
        for depth in range(self._depth):
            there = each["there"][:, depth]
            if not there.any():
                continue
            rewards = each["reward"][there, depth].astype(np.float64)
            errors = {
                "image": each["image_error"][there, depth],
                "repeated_image": each["repeated_error"][there, depth],
                "reward": (each["expected_reward"][there, depth] - rewards) ** 2,
                "mean_reward": (rewards - rewards.mean()) ** 2,
            }
            scores |= {f"{name}_error_{depth + 1}": float(np.mean(x)) for name, x in errors.items()}
        return scores


def _compare(world: World, batch: Trajectory, keys: Keys, context: int) -> dict[str, Array]:
    """What a world expects after `context` steps, beside what was observed."""
    steps = align(batch)
    seen = jax.tree.map(lambda x: x[:, :context], batch)
    start = states_at(filter_window(world, seen, keys), jnp.full(len(keys), context - 1))
    actions = batch.action[:, context - 1 : -1]
    expected, reward, uncertainty = _expect(world, start, actions, keys)
    shown = batch.observation[:, context:].astype(jnp.float32)
    last = batch.observation[:, context - 1 : context].astype(jnp.float32)
    over = tuple(range(2, shown.ndim))
    other = jax.vmap(lambda key: jax.random.randint(key, (), 1, max(world.num_actions, 2)))(keys)
    other = (actions[:, 0] + other) % world.num_actions
    return {
        # Every step from the start on was reached from the one before it.
        "there": jnp.cumprod(steps.reached[:, context:], axis=1).astype(bool),
        "reward": steps.reward[:, context:],
        "expected_reward": reward,
        "image_error": jnp.mean(jnp.square(expected - shown), axis=over),
        "repeated_error": jnp.mean(jnp.square(jnp.broadcast_to(last, shown.shape) - shown), axis=over),
        "taken": uncertainty,
        "other": world.imagine(start, other, keys).uncertainty,
    }


def _expect(
    world: World, start: Any, actions: Array, keys: Keys
) -> tuple[Float[Array, "batch depth ..."], Float[Array, "batch depth"], Float[Array, "batch"]]:
    """Imagines along actions several times; returns mean observations and rewards, and the first doubt."""

    def once(number: Array) -> tuple[Array, Array, Array]:
        own = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)
        draws = jax.vmap(lambda key: jax.random.split(key, actions.shape[1]))(own)

        def step(state: Any, now: tuple[Array, Keys]) -> tuple[Any, tuple]:
            imagined = world.imagine(state, *now)
            seen = world.reconstruct(imagined.state)
            return imagined.state, (seen, imagined.reward, imagined.uncertainty)

        _, along = jax.lax.scan(step, start, (actions.T, jnp.swapaxes(draws, 0, 1)))
        return along

    image, reward, uncertainty = jax.lax.map(once, jnp.arange(_SAMPLES))
    image, reward = (jnp.swapaxes(jnp.mean(x, axis=0), 0, 1) for x in (image, reward))
    return image, reward, uncertainty[0, 0]


def _uncertainty(each: dict[str, np.ndarray]) -> dict[str, Any]:
    """Whether doubt tells of errors, and of actions that the data does not take."""
    there = each["there"][:, 0]
    taken, other = each["taken"][there].astype(np.float64), each["other"][there].astype(np.float64)
    error = each["image_error"][there, 0].astype(np.float64)
    if not there.any() or not np.ptp(taken):  # a world without an ensemble has no doubt
        return {}
    scores: dict[str, Any] = {
        "uncertainty_taken": float(np.mean(taken)),
        "uncertainty_other": float(np.mean(other)),
        "uncertainty_other_larger": float(np.mean(other > taken)),
        "calibration": tenths(taken, error),
    }
    if np.ptp(error):
        scores["uncertainty_correlation"] = float(np.corrcoef(taken, error)[0, 1])
    return scores
