"""Windows of experience drawn on the device, from a data set that fits in its memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int, Shaped

from rosmo.data.check import checked_steps
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
