"""Training: the state, the update, and many updates in one call, on one device or on a mesh of them."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Int, PyTree

from rosmo.agents import Trained
from rosmo.learner.kept_targets import Source, caching, pays
from rosmo.learner.optimizer import adamw
from rosmo.learner.sharding import Layout, own_rows, put
from rosmo.learner.state import TrainState, fresh_state, laid_out, not_finite
from rosmo.learner.step import Step
from rosmo.types import Key, Keys, Metrics, Params, Trajectory, is_array, refuse_counts


class Learner:
    """Trains an agent.

    A batch is split over all devices of the mesh and its gradients are averaged in one all-reduce. Without a
    "model" axis every device keeps all of the state; with one, parameters, target parameters and the
    optimizer's arrays are split over it by one rule (`rosmo.sharding.split_rule`), and an update gathers what
    the loss reads: weights, never activations. Without a mesh the learner uses the first device. Every window
    has a key of its own, derived from the state's key and step: a batch trains alike on every layout, and a
    restored state goes on exactly as it would have. States are donated: an update consumes the one it is
    given. Under `jax.distributed` every process calls the same methods in the same order.
    """

    def __init__(
        self,
        agent: Trained,
        optimizer: optax.GradientTransformation | None = None,
        *,
        batch_size: int = 128,
        target_update_interval: int = 200,
        cache_targets: bool | None = None,
        mesh: Mesh | None = None,
    ):
        """Builds a learner.

        Args:
            agent: what is trained.
            optimizer: of the parameters; the paper's `adamw()` where not given.
            batch_size: windows in a batch, over all devices.
            target_update_interval: updates between two copies of the parameters to the target network.
            cache_targets: whether `update_many` judges all steps of its source once an interval instead of
                those of every batch: the same targets, sooner if the data set is small. Where not given, as
                its size and a deterministic operator suggest.
            mesh: the devices, with an axis called "data", and one called "model" if the state is to be split.
        """
        refuse_counts(batch_size=batch_size, target_update_interval=target_update_interval)
        self.agent = agent
        self.optimizer = adamw() if optimizer is None else optimizer
        self.batch_size = batch_size
        self.target_update_interval = target_update_interval
        self.cache_targets = cache_targets
        # What of a state is not an array (an activation function, say) is the same for every state.
        fresh = eqx.filter_eval_shape(self._fresh, jax.random.key(0))
        _refuse_other_kinds(agent, fresh.params)
        shapes, self._static = eqx.partition(fresh, is_array)
        self._layout = Layout(mesh, shapes, batch_size)
        self.mesh = self._layout.mesh
        self._step = Step(
            agent, self.optimizer, batch_size, target_update_interval, self._layout, self._static
        )
        self._convolves: bool | None = None  # as the first call of `update_many` finds out
        self._init = jax.jit(
            lambda key: eqx.filter(self._fresh(key), is_array), out_shardings=self._layout.state
        )
        self._not_finite = jax.jit(not_finite, out_shardings=self._layout.replicated)
        self._gather = jax.jit(lambda tree: tree, out_shardings=self._layout.replicated)
        self._update = jax.jit(self._step.on_batch, donate_argnums=0)
        self._update_many = jax.jit(self._step.on_source, donate_argnums=0, static_argnums=(2, 3, 4))

    def init(self, key: Key) -> TrainState:
        """Returns a fresh state, laid out over the mesh."""
        return eqx.combine(self._init(key), self._static)

    def update(self, state: TrainState, batch: Trajectory) -> tuple[TrainState, Metrics]:
        """Takes one step on a batch `[B, T]`; consumes `state`.

        Of several processes each passes its own rows of the batch, those of `own_windows`.
        """
        own = self.own_windows.size
        if len(batch.action) != own:
            raise ValueError(f"this learner takes batches of {own} windows, got {len(batch.action)}")
        arrays, metrics = self._update(self._placed(state), put(batch, self._layout.split))
        return eqx.combine(arrays, self._static), metrics

    def update_many(self, state: TrainState, source: Source, num_updates: int) -> tuple[TrainState, Metrics]:
        """Takes `num_updates` steps in one call on batches drawn on the device; consumes `state`.

        The metrics are those of every step, `[num_updates]` each. Each number of updates compiles once. On a
        mesh, `place` the source first, or every call copies it to the devices again. On a CPU, XLA's
        convolutions are about six times slower inside a loop than outside: there, updates with convolutions
        are taken one by one, by a program of one update.
        """
        if num_updates < 1:
            raise ValueError(f"num_updates must be at least 1, got {num_updates}")
        cached = self._caches(state, source)
        arrays, source, parts = self._placed(state), self.place(source), []
        if cached:
            calls = self._spans(state, num_updates)
        elif num_updates > 1 and self._loops_slowly(arrays, source, num_updates):
            calls = [(1, 1)] * num_updates
        else:
            calls = [(1, num_updates)]
        for spans, length in calls:
            arrays, metrics = self._update_many(arrays, source, spans, length, cached)
            parts.append(metrics)
        metrics = parts[0] if len(parts) == 1 else _joined(parts)
        return eqx.combine(arrays, self._static), metrics

    def refuse_not_finite(self, state: TrainState) -> None:
        """Raises a FloatingPointError if a number of the state is not finite: ask before keeping a state.

        A finite loss does not tell: its gradient may be `nan`, and the update then spoils every parameter.
        """
        bad = jax.device_get(self._not_finite(self._placed(state)))
        if spoiled := [name for name, is_bad in bad.items() if is_bad]:
            raise FloatingPointError(
                f"after update {int(state.step)} the state is not finite ({', '.join(spoiled)}): look for a "
                "nan or inf in the gradient of the loss, or lower learning_rate"
            )

    def trace(self, batch: Trajectory) -> jax.stages.Traced:
        """Traces an update on the shapes of a whole batch: what cannot work fails here, before any work.

        What is returned can be lowered and compiled, also for devices that are not there.
        """
        shapes = jax.tree.map(lambda x: laid_out(x, self._layout.split), batch)
        return self._update.trace(self.state_shapes(), shapes)

    def state_shapes(self) -> TrainState:
        """Returns the shapes of a state's arrays, each with its sharding."""
        return jax.tree.map(laid_out, jax.eval_shape(self._init, jax.random.key(0)), self._layout.state)

    def lower_many(self, state: TrainState, source: Source, num_updates: int) -> jax.stages.Lowered:
        """Lowers an `update_many` without kept targets, to compile it ahead or to see what it costs.

        What that compiles to maps the arrays of a state and a source to those of the next state, and metrics.
        """
        return self._update_many.lower(self._placed(state), self.place(source), 1, num_updates, False)

    def place(self, source: PyTree) -> PyTree:
        """Lays a source out over the mesh, every device with all of it."""
        return put(source, self._layout.replicated)

    def gather(self, params: Params) -> Params:
        """Returns parameters that every device has all of, whatever the layout of the state they are from."""
        arrays, rest = eqx.partition(params, is_array)
        return eqx.combine(self._gather(arrays) if self._layout.splits_state else arrays, rest)

    @functools.cached_property
    def own_windows(self) -> Int[np.ndarray, "own"]:
        """Which windows of a batch lie on the devices of this process: all, unless there are several."""
        return own_rows(self._layout.split, self.batch_size)

    def draw_keys(self, key: Key, step: int | Array) -> Keys:
        """Returns the keys `[B]` that `update_many` draws the windows of a step with, from a state's key."""
        return self._step.keys(key, step)[0]

    def _fresh(self, key: Key) -> TrainState:
        return fresh_state(self.agent, self.optimizer, key)

    def _placed(self, state: TrainState) -> TrainState:
        """The arrays of a state, also of one restored onto another layout."""
        if not isinstance(state.step, Tracer) and state.step.is_deleted():
            raise ValueError("an update has consumed this state: go on with the state that it returned")
        return self._layout.placed(eqx.filter(state, is_array))

    def _caches(self, state: TrainState, source: Source) -> bool:
        if self.cache_targets is not None:
            if self.cache_targets:
                caching(self.agent, source)
            return self.cache_targets
        sizes = {"batch_size": self.batch_size, "window": self.agent.window}
        return pays(self.agent, source, state.target_params, interval=self.target_update_interval, **sizes)

    def _loops_slowly(self, arrays: TrainState, source: Source, num_updates: int) -> bool:
        """Whether updates are of the kind that a CPU takes faster one by one, outside of the caller's jit."""
        if isinstance(arrays.step, Tracer) or self.mesh.devices.flat[0].platform != "cpu":
            return False
        if self._convolves is None:
            traced = self._update_many.trace(arrays, source, 1, num_updates, False)
            self._convolves = "conv_general_dilated" in str(traced.jaxpr)
        return self._convolves

    def _spans(self, state: TrainState, num_updates: int) -> list[tuple[int, int]]:
        """Splits updates where the target network changes, as pairs of a number of spans and their length."""
        interval = self.target_update_interval
        head = min(num_updates, -int(state.step) % interval)
        whole, tail = divmod(num_updates - head, interval)
        return [
            (spans, length) for spans, length in ((1, head), (whole, interval), (1, tail)) if spans * length
        ]


def _joined(parts: list[Metrics]) -> Metrics:
    """The metrics of several calls as those of one, joined on the host: there may be thousands."""
    if isinstance(jax.tree.leaves(parts)[0], Tracer):
        return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    return jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x)), *jax.device_get(parts))


def _refuse_other_kinds(agent: Trained, params: Params) -> None:
    """Raises a TypeError where the parameters are made of other classes each time that they are built."""
    again = eqx.filter_eval_shape(lambda key: agent.init(key), jax.random.key(0))
    if jax.tree.structure(again) == jax.tree.structure(params):
        return
    inside = {type(x) for x in jax.tree.leaves(again, is_leaf=_is_local) if _is_local(x)}
    names = ", ".join(sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in inside)) or "a part of them"
    raise TypeError(
        f"the parameters are of other classes each time that they are built ({names}): define the class at "
        "the top of its file, and not inside of the function that builds the network"
    )


def _is_local(x: Any) -> bool:
    return isinstance(x, eqx.Module) and "<locals>" in type(x).__qualname__
