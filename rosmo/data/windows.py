"""Windows of experience drawn on the device, from a data set that fits in its memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int, Shaped

from rosmo.types import Key, Trajectory


class WindowSampler(eqx.Module):
    """Draws windows uniformly over all steps that have an action.

    Episodes lie one after the other. A window that reaches past the end of its episode goes on into what
    follows, which no target reads; so short episodes are used like long ones.
    """

    steps: Trajectory
    starts: Int[Array, "starts"]
    window: int = eqx.field(static=True)

    def sample(self, key: Key) -> Trajectory:
        """Draws one window `[window]`."""
        return self.window_at(self.start(key))

    def start(self, key: Key) -> Int[Array, ""]:
        """Draws the step that a window begins with."""
        return self.starts[draw_index(key, self.starts.size)]

    def window_at(self, start: Int[Array, ""]) -> Trajectory:
        """Returns the window that begins with a step."""
        return jax.tree.map(
            lambda x: jnp.take(x, start + jnp.arange(self.window), axis=0, mode="clip"), self.steps
        )


def draw_index(key: Key, count: int) -> Shaped[Array, ""]:
    """Draws one of `count` indices."""
    # Bits modulo the count: `randint` draws four times as often, and the bias here is below count/2³².
    return jax.random.bits(key) % np.uint32(count)


def window_sampler(steps: Trajectory, *, window: int, num_actions: int) -> WindowSampler:
    """Checks a data set of steps `[N]`, episodes one after the other, and puts it on the device.

    Args:
        steps: the data set, as NumPy or JAX arrays.
        window: steps in a window; an agent says it as `agent.window`.
        num_actions: every real action must lie below it.
    """
    steps, starts = checked_steps(steps, window=window, num_actions=num_actions)
    return WindowSampler(jax.tree.map(jnp.asarray, steps), jnp.asarray(starts), window)


def checked_steps(
    steps: Trajectory, *, window: int, num_actions: int
) -> tuple[Trajectory, Int[np.ndarray, "starts"]]:
    """Returns a data set that can be trained on as NumPy arrays, and the steps that windows begin with."""
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    steps = jax.tree.map(np.asarray, steps)
    for flag in ("is_first", "is_last", "is_terminal"):
        if getattr(steps, flag).dtype != bool:
            raise TypeError(f"{flag} must be an array of bool, got {getattr(steps, flag).dtype}")
    _refuse_bad_steps(steps, num_actions)
    starts = np.flatnonzero(~steps.is_last).astype(np.int32)
    return eqx.tree_at(lambda s: s.action, steps, steps.action.astype(np.int32)), starts


def _refuse_bad_steps(steps: Trajectory, num_actions: int) -> None:
    """Raises one sentence that names the first step at fault."""
    if steps.action.ndim != 1:
        raise ValueError(
            f"steps must have one leading axis [N], got actions of shape {list(steps.action.shape)}"
        )
    count = steps.action.size
    lengths = {field: len(x) for field, x in vars(steps).items() if x is not None}
    if set(lengths.values()) != {count}:
        raise ValueError(f"the fields of the data set differ in length: {lengths}")
    real = ~steps.is_last
    if not real.any():
        raise ValueError("the data set has no step with an action")
    if real[-1]:
        raise ValueError(f"the data set stops inside an episode: mark its last step ({count - 1}) as is_last")
    faults = {
        "a reward that is not finite": real & ~np.isfinite(steps.reward),
        "a discount outside [0, 1]": real & ~((steps.discount >= 0) & (steps.discount <= 1)),
        f"an action outside 0…{num_actions - 1}": real & ((steps.action < 0) | (steps.action >= num_actions)),
        "is_terminal without is_last": real & steps.is_terminal,
    }
    if steps.invalid_actions is not None:
        if steps.invalid_actions.shape != (count, num_actions):
            shape = list(steps.invalid_actions.shape)
            raise ValueError(f"invalid_actions must have the shape {[count, num_actions]}, got {shape}")
        taken = np.clip(steps.action, 0, num_actions - 1)
        faults["an action that its invalid_actions forbid"] = (
            real & steps.invalid_actions[np.arange(count), taken]
        )
    if np.issubdtype(steps.observation.dtype, np.floating):
        finite = np.isfinite(steps.observation).reshape(count, -1).all(axis=1)
        faults["an observation that is not finite"] = ~finite
    for fault, where in faults.items():
        if where.any():
            raise ValueError(
                f"step {np.flatnonzero(where)[0]} has {fault} ({where.sum()} such steps): "
                "repair or drop its episode"
            )
