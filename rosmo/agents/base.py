"""What an agent is. The learner knows nothing else of it."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer, PyTree, Shaped

from rosmo.operators import Improvement
from rosmo.registry import Registry
from rosmo.types import Key, Keys, Metrics, Params, Trajectory

registry = Registry("agent", requires=("model",))

Memory = PyTree  # of arrays [B, ...], or None


@runtime_checkable
class Trained(Protocol):
    """Parameters and a loss on windows of experience: all that a learner knows of what it trains."""

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
        device it is on; `rosmo.types.window_keys` turns a single key into those.
        """
        ...


@runtime_checkable
class Agent(Trained, Protocol):
    """What is trained, and acts by the observation that it is shown."""

    def act(
        self, params: Params, key: Key, observation: Shaped[Array, "batch ..."], *, greedy: bool = False
    ) -> Integer[Array, "batch"]:
        """Chooses an action for each observation, sampled or greedy."""
        ...


@runtime_checkable
class Remembers(Trained, Protocol):
    """What is trained, and acts by all that it was shown in an episode: it carries a memory through it."""

    def initial_memory(self, params: Params, batch: int) -> Memory:
        """Returns the memories of `batch` episodes before their first observations, arrays `[batch, ...]`."""
        ...

    def act(
        self,
        params: Params,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        memory: Memory,
        *,
        greedy: bool = False,
    ) -> tuple[Integer[Array, "batch"], Memory]:
        """Chooses an action for each observation, and returns what to remember at the next one.

        The memory is of the action that was chosen, whatever noise then makes of it: as in data sets.
        """
        ...


def acts(agent: Trained) -> bool:
    """Whether what is trained chooses actions; a world model does not."""
    return isinstance(agent, Agent | Remembers)


class Acting(NamedTuple):
    """How an agent of either kind acts: always with a memory, which is None where it has none.

    `begin(params, batch) -> memory`, and `act(params, key, observation, memory, **settings) -> (action,
    memory)`.
    """

    begin: Callable[[Params, int], Memory]
    act: Callable[..., tuple[Array, Memory]]


def acting(agent: Agent | Remembers) -> Acting:
    """Returns how an agent acts, so that what plays one needs not ask whether it remembers."""
    if isinstance(agent, Remembers):
        return Acting(agent.initial_memory, agent.act)

    def act(params: Params, key: Key, observation: Array, memory: Memory, **settings: Any) -> Any:
        return agent.act(params, key, observation, **settings), memory

    return Acting(lambda params, batch: None, act)


def begun_anew(first: Bool[Array, "batch"], initial: Memory, memory: Memory) -> Memory:
    """Returns memories of which those are initial whose next observation is the first of its episode."""

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(first.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, initial, memory)


@runtime_checkable
class Improves(Protocol):
    """An agent that acts by an improvement operator, and can say what that makes of an observation."""

    def improve(
        self,
        params: Params,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        *,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> Improvement:
        """Returns the improved policy and value of each observation."""
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


class Foreseen(NamedTuple):
    """What an agent's model expects along actions: K rewards, and the values of the K + 1 states."""

    rewards: Float[Array, "batch steps"]
    values: Float[Array, "batch positions"]


@runtime_checkable
class Values(Protocol):
    """An agent that says what return it expects from an observation, discounted by its model's γ."""

    def values(self, params: Params, observation: Shaped[Array, "batch ..."]) -> Float[Array, "batch"]:
        """Returns the value of each observation under the agent's policy."""
        ...


@runtime_checkable
class Foresees(Protocol):
    """An agent whose model imagines what actions lead to."""

    @property
    def unroll_steps(self) -> int:
        """K, how far it is trained to look ahead."""
        ...

    def foresee(
        self,
        params: Params,
        observation: Shaped[Array, "batch ..."],
        actions: Integer[Array, "batch steps"],
    ) -> Foreseen:
        """Returns what the model expects along actions."""
        ...


def entropy(logits: Float[Array, "*batch actions"]) -> Float[Array, "*batch"]:
    """Returns the entropy of the policies that logits stand for."""
    return -jnp.sum(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), axis=-1)


def mean_of_windows(
    x: Float[Array, "batch time"], mask: Bool[Array, "batch time"], share: Float[Array, "batch"] | None = None
) -> Float[Array, ""]:
    """Averages over the masked positions of each window, then over windows: a batch may be taken in parts.

    Windows count alike, or as their `share`, whose mean is 1.
    """
    count = jnp.maximum(jnp.sum(mask, axis=1), 1).astype(x.dtype)
    means = jnp.sum(jnp.where(mask, x, 0), axis=1) / count
    return jnp.mean(means if share is None else share * means)
