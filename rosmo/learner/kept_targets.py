"""Targets of all steps of a small data set, judged once while the target network stands still."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int, PyTree

from rosmo.agents import CachesTargets
from rosmo.types import Key, Keys, Params, Trajectory

_CHUNK = 2048  # steps that are judged at a time

Draw = Callable[[Keys], tuple[Trajectory, PyTree]]  # windows, and their targets if those are kept


@runtime_checkable
class Source(Protocol):
    """A device-resident data set: a pytree of arrays that draws windows inside a compiled step."""

    def sample(self, key: Key) -> Trajectory:
        """Draws one window `[T]`."""
        ...


@runtime_checkable
class StepSource(Source, Protocol):
    """A source of windows over steps that it holds one after the other."""

    @property
    def steps(self) -> Trajectory:
        """All steps, `[N]`."""
        ...

    def start(self, key: Key) -> Int[Array, ""]:
        """Draws the step that a window begins with."""
        ...

    def window_at(self, start: Int[Array, ""]) -> Trajectory:
        """Returns the window that begins with a step."""
        ...


def caching(agent: Any, source: Any) -> tuple[CachesTargets, StepSource]:
    """Returns the agent and the source as what a cache needs, or refuses them."""
    if not isinstance(agent, CachesTargets) or not isinstance(source, StepSource):
        raise TypeError(
            f"targets cannot be cached for {type(agent).__name__} on {type(source).__name__}: leave "
            "cache_targets out, or give an agent and a source that allow it"
        )
    return agent, source


def pays(
    agent: Any, source: Any, target_params: Params, *, interval: int, batch_size: int, window: int
) -> bool:
    """Whether to judge every step once an interval: the same targets, for well below the work of batches."""
    if not isinstance(agent, CachesTargets) or not isinstance(source, StepSource):
        return False
    small = 2 * len(source.steps.action) <= interval * batch_size * window
    return small and agent.repeatable(target_params, source.steps)


def judge_all(
    agent: CachesTargets,
    target_params: Params,
    source: StepSource,
    key: Key,
    *,
    axis: tuple[str, ...],
    devices: int,
) -> PyTree:
    """Judges all steps inside a `shard_map`, each device its share, and hands every device the whole."""
    count = len(source.steps.action)
    chunk = min(_CHUNK, -(-count // devices))
    chunks = -(-count // (devices * chunk))  # of each device
    first = jax.lax.axis_index(axis) * chunks

    def judge(index: Array) -> PyTree:
        index = first + index
        rows = index * chunk + jnp.arange(chunk)
        part = jax.tree.map(lambda x: jnp.take(x, rows, axis=0, mode="clip"), source.steps)
        return agent.judge(target_params, part, jax.random.fold_in(key, index))

    shares = jax.lax.map(judge, jnp.arange(chunks))
    shares = jax.tree.map(lambda x: x.reshape(chunks * chunk, *x.shape[2:]), shares)
    return jax.lax.all_gather(shares, axis, tiled=True)


def cached_draw(agent: CachesTargets, source: StepSource, judged: PyTree) -> Draw:
    """Returns what draws windows together with the targets of their steps."""

    def draw(keys: Keys) -> tuple[Trajectory, PyTree]:
        starts = jax.vmap(source.start)(keys)
        targets = jax.vmap(agent.gather, in_axes=(None, 0))(judged, starts)
        return jax.vmap(source.window_at)(starts), targets

    return draw
