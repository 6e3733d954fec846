"""What an agent is. The learner knows nothing else of it."""

from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer, PyTree, Shaped

from rosmo.registry import Registry
from rosmo.types import Key, Keys, Metrics, Params, Trajectory

registry = Registry("agent", requires=("model",))


@runtime_checkable
class Agent(Protocol):
    """Parameters, a loss on windows of experience, and actions."""

    @property
    def window(self) -> int:
        """The number of steps T that the windows of a batch must have."""
        ...

    def init(self, key: Key) -> Params:
        """Returns fresh parameters."""
        ...

    def loss(
        self, params: Params, target_params: Params, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch `[B, T]`, a mean over its windows, and the scalars to log.

        The learner passes a key for each window, `[B]`, so that its randomness does not depend on which
        device it is on; `window_keys` turns a single key into those.
        """
        ...

    def act(
        self, params: Params, key: Key, observation: Shaped[Array, "batch ..."], *, greedy: bool = False
    ) -> Integer[Array, "batch"]:
        """Chooses an action for each observation, by chance or the likeliest."""
        ...


@runtime_checkable
class CachesTargets(Protocol):
    """An agent whose targets hang on single steps, and can be kept while the target network stands still."""

    def repeatable(self, target_params: Params, steps: Trajectory) -> bool:
        """Whether a step judged twice gets the same targets."""
        ...

    def judge(self, target_params: Params, steps: Trajectory, key: Key) -> PyTree:
        """Returns what the loss needs of the target network for each of the steps `[N]`."""
        ...

    def gather(self, judged: PyTree, start: Integer[Array, ""]) -> PyTree:
        """Returns the targets of one window out of those of all steps."""
        ...

    def loss_from_targets(
        self, params: Params, batch: Trajectory, targets: PyTree, keys: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns what `loss` would, with the gathered targets `[B, ...]`."""
        ...


def window_keys(key: Keys, batch: Trajectory) -> Keys:
    """Returns a key for each window of a batch, `[B]`: those given, or as many drawn from the one given."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return jax.random.split(key, len(batch.action)) if key.ndim == (0 if typed else 1) else key


def entropy(logits: Float[Array, "*batch actions"]) -> Float[Array, "*batch"]:
    """Returns the entropy of the policies that logits stand for."""
    return -jnp.sum(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), axis=-1)


def mean_of_windows(x: Float[Array, "batch time"], mask: Bool[Array, "batch time"]) -> Float[Array, ""]:
    """Averages over the masked positions of each window, then over windows: a batch may be taken in parts."""
    count = jnp.maximum(jnp.sum(mask, axis=1), 1).astype(x.dtype)
    return jnp.mean(jnp.sum(jnp.where(mask, x, 0), axis=1) / count)
