"""Training: the state, the update, and many updates in one call, on one device or on a mesh of them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Int, PyTree

from rosmo.agents import Agent, CachesTargets
from rosmo.cache import Draw, Source, cached_draw, caching, judge_all, pays
from rosmo.frames import stack_frames
from rosmo.optimizer import adamw
from rosmo.sharding import DATA_AXIS, MODEL_AXIS, own_rows, put, state_layout
from rosmo.types import Key, Keys, Metrics, Params, Trajectory, is_array, refuse_counts


class TrainState(eqx.Module):
    """Everything that training changes, and the key that never does."""

    params: Params
    target_params: Params
    opt_state: optax.OptState
    step: Int[Array, ""]
    key: Key


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
        agent: Agent,
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
        mesh = Mesh(np.array(jax.local_devices()[:1]), (DATA_AXIS,)) if mesh is None else mesh
        # With automatic axes, whatever it was made with: what leaves the learner is then usable anywhere.
        self.mesh = Mesh(mesh.devices, mesh.axis_names)
        self._refuse_bad_layout()
        self._axes = tuple(axis for axis in (DATA_AXIS, MODEL_AXIS) if axis in self.mesh.axis_names)
        self._replicated = NamedSharding(self.mesh, PartitionSpec())
        self._split = NamedSharding(self.mesh, PartitionSpec(self._axes))
        # What of a state is not an array (an activation function, say) is the same for every state.
        fresh = eqx.filter_eval_shape(self._fresh, jax.random.key(0))
        shapes, self._static = eqx.partition(fresh, is_array)
        self._layout = state_layout(shapes, self.mesh)
        self._state_is_split = self.mesh.shape.get(MODEL_AXIS, 1) > 1
        self._init = jax.jit(lambda key: eqx.filter(self._fresh(key), is_array), out_shardings=self._layout)
        self._gather = jax.jit(lambda tree: tree, out_shardings=self._replicated)
        self._update = jax.jit(self._update_arrays, donate_argnums=0)
        self._update_many = jax.jit(self._update_arrays_many, donate_argnums=0, static_argnums=(2, 3, 4))

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
        arrays, metrics = self._update(self._placed(state), put(batch, self._split))
        return eqx.combine(arrays, self._static), metrics

    def update_many(self, state: TrainState, source: Source, num_updates: int) -> tuple[TrainState, Metrics]:
        """Takes `num_updates` steps in one call on batches drawn on the device; consumes `state`.

        The metrics are those of every step, `[num_updates]` each. Each number of updates compiles once. On a
        mesh, `place` the source first, or every call copies it to the devices again. On a CPU, convolutions
        inside a loop are about six times slower than outside: there, train image networks one update a call.
        """
        if num_updates < 1:
            raise ValueError(f"num_updates must be at least 1, got {num_updates}")
        cached = self._caches(state, source)
        arrays, source, parts = self._placed(state), self.place(source), []
        for spans, length in self._spans(state, num_updates) if cached else [(1, num_updates)]:
            arrays, metrics = self._update_many(arrays, source, spans, length, cached)
            parts.append(metrics)
        metrics = parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
        return eqx.combine(arrays, self._static), metrics

    def trace(self, batch: Trajectory) -> jax.stages.Traced:
        """Traces an update on the shapes of a whole batch: what cannot work fails here, before any work.

        What is returned can be lowered and compiled, also for devices that are not there.
        """

        shapes = jax.tree.map(lambda x: _laid_out(x, self._split), batch)
        return self._update.trace(self.state_shapes(), shapes)

    def state_shapes(self) -> TrainState:
        """Returns the shapes of a state's arrays, each with its sharding."""
        return jax.tree.map(_laid_out, jax.eval_shape(self._init, jax.random.key(0)), self._layout)

    def lower_many(self, state: TrainState, source: Source, num_updates: int) -> jax.stages.Lowered:
        """Lowers an `update_many` without a target cache, to compile it ahead or to see what it costs.

        What that compiles to maps the arrays of a state and a source to those of the next state, and metrics.
        """
        return self._update_many.lower(self._placed(state), self.place(source), 1, num_updates, False)

    def place(self, source: PyTree) -> PyTree:
        """Lays a source out over the mesh, every device with all of it."""
        return put(source, self._replicated)

    def gather(self, params: Params) -> Params:
        """Returns parameters that every device has all of, whatever the layout of the state they are from."""
        arrays, rest = eqx.partition(params, is_array)
        return eqx.combine(self._gather(arrays) if self._state_is_split else arrays, rest)

    @functools.cached_property
    def own_windows(self) -> Int[np.ndarray, "own"]:
        """Which windows of a batch lie on the devices of this process: all, unless there are several."""
        return own_rows(self._split, self.batch_size)

    def draw_keys(self, key: Key, step: int | Array) -> Keys:
        """Returns the keys `[B]` that `update_many` draws the windows of a step with, from a state's key."""
        return self._all_keys(key, step)[0]

    def _placed(self, state: TrainState) -> TrainState:
        """The arrays of a state, also of one restored onto another layout."""
        if not isinstance(state.step, Tracer) and state.step.is_deleted():
            raise ValueError("an update has consumed this state: go on with the state that it returned")
        return jax.device_put(eqx.filter(state, is_array), self._layout)

    def _fresh(self, key: Key) -> TrainState:
        key_params, key_state = jax.random.split(key)
        params = self.agent.init(key_params)
        return TrainState(
            params=params,
            # A copy: donation must not hand the same buffer over twice.
            target_params=jax.tree.map(lambda x: jnp.copy(x) if is_array(x) else x, params),
            opt_state=self.optimizer.init(eqx.filter(params, eqx.is_inexact_array)),
            step=jnp.zeros((), jnp.int32),
            key=key_state,
        )

    def _update_arrays(self, arrays: TrainState, batch: Trajectory) -> tuple[TrainState, Metrics]:
        def gradients(arrays: TrainState, windows: Trajectory) -> tuple[Params, Metrics]:
            _, keys_loss = self._window_keys(arrays)
            return self._gradients(arrays, windows, keys_loss)

        def update(arrays: TrainState, batch: Trajectory, part: Callable) -> tuple[TrainState, Metrics]:
            return self._apply(arrays, *part(gradients)(arrays, batch))

        return self._on_mesh(update, self._split.spec)(arrays, batch)

    def _update_arrays_many(
        self, arrays: TrainState, source: Source, spans: int, length: int, cached: bool
    ) -> tuple[TrainState, Metrics]:
        """Takes `spans` times `length` updates; with a cache, a span lies between two target updates."""

        def updates(arrays: TrainState, source: Source, part: Callable) -> tuple[TrainState, Metrics]:
            def span(arrays: TrainState) -> tuple[TrainState, Metrics]:
                data = (source, part(self._judge)(arrays, source) if cached else None)
                step = part(self._drawn_gradients)
                return _loop(lambda arrays: self._apply(arrays, *step(arrays, data)), arrays, length)

            arrays, metrics = _loop(span, arrays, spans)
            return arrays, jax.tree.map(lambda x: x.reshape(spans * length), metrics)

        return self._on_mesh(updates, PartitionSpec())(arrays, source)

    def _on_mesh(self, update: Callable, data_spec: PartitionSpec) -> Callable:
        """Runs `update(state, data, part)` on the mesh, where `part` wraps what a device does with its share.

        A state that every device has whole stays inside of one `shard_map`, loops and optimizer included. A
        split one is updated on its parts by whatever collectives XLA finds that the optimizer needs, and only
        the parts of the work that need the batch run in a `shard_map`, on gathered parameters.
        """

        def on_each_device(function: Callable) -> Callable:
            specs = {"in_specs": (PartitionSpec(), data_spec), "out_specs": PartitionSpec()}
            # Replication is not inferred (check_vma): gradients would be reduced one by one where they arise.
            return jax.shard_map(function, mesh=self.mesh, check_vma=False, **specs)

        def gathering(function: Callable) -> Callable:
            # Without the optimizer's arrays, which no loss reads and nobody gathers.
            mapped = on_each_device(function)
            return lambda arrays, data: mapped(dataclasses.replace(arrays, opt_state=None), data)

        if self._state_is_split:
            return lambda arrays, data: update(arrays, data, gathering)
        return on_each_device(lambda arrays, data: update(arrays, data, lambda function: function))

    def _drawn_gradients(self, arrays: TrainState, data: tuple[Source, PyTree]) -> tuple[Params, Metrics]:
        source, judged = data
        draw = _plain_draw(source) if judged is None else cached_draw(*caching(self.agent, source), judged)
        keys_window, keys_loss = self._window_keys(arrays)
        windows, targets = draw(keys_window)
        return self._gradients(arrays, windows, keys_loss, targets)

    def _judge(self, arrays: TrainState, source: Source) -> PyTree:
        key = jax.random.fold_in(jax.random.fold_in(arrays.key, arrays.step), 2**31)  # no update has it
        target_params = eqx.combine(arrays.target_params, self._static.target_params)
        layout = {"axis": self._axes, "devices": self.mesh.size}
        agent, steps = caching(self.agent, source)
        return judge_all(agent, target_params, steps, key, **layout)

    def _gradients(
        self, arrays: TrainState, windows: Trajectory, keys: Keys, targets: PyTree = None
    ) -> tuple[Params, Metrics]:
        """The gradients and metrics of a batch: of the windows of this device, averaged over all devices."""
        params, target_params = eqx.combine(
            (arrays.params, arrays.target_params), (self._static.params, self._static.target_params)
        )
        windows = stack_frames(windows)

        def loss(params: Params) -> tuple[Array, Metrics]:
            if targets is None:
                return self.agent.loss(params, target_params, windows, keys)
            return cast(CachesTargets, self.agent).loss_from_targets(params, windows, targets, keys)

        (value, metrics), grads = eqx.filter_value_and_grad(loss, has_aux=True)(params)
        metrics = {name: jnp.asarray(x, jnp.float32) for name, x in ({"loss": value} | metrics).items()}
        flat, unravel = ravel_pytree((grads, metrics))
        return unravel(jax.lax.pmean(flat, self._axes))

    def _apply(self, arrays: TrainState, grads: Params, metrics: Metrics) -> tuple[TrainState, Metrics]:
        """The state after the optimizer's step, laid out as before."""
        state = eqx.combine(arrays, self._static)
        trained = eqx.filter(state.params, eqx.is_inexact_array)
        with jax.numpy_dtype_promotion("standard"):  # optax's schedules mix integers and floats
            updates, opt_state = self.optimizer.update(grads, state.opt_state, trained)
        params = eqx.apply_updates(state.params, updates)
        step = state.step + 1
        refresh = step % self.target_update_interval == 0
        new, old = eqx.filter((params, state.target_params), is_array)
        target = jax.tree.map(lambda n, o: jnp.where(refresh, n, o), new, old)
        arrays = eqx.filter(TrainState(params, target, opt_state, step, state.key), is_array)
        if self._state_is_split:
            arrays = jax.lax.with_sharding_constraint(arrays, self._layout)
        return arrays, metrics | {"grad_norm": optax.tree.norm(grads)}

    def _caches(self, state: TrainState, source: Source) -> bool:
        if self.cache_targets is not None:
            if self.cache_targets:
                caching(self.agent, source)
            return self.cache_targets
        sizes = {"batch_size": self.batch_size, "window": self.agent.window}
        return pays(self.agent, source, state.target_params, interval=self.target_update_interval, **sizes)

    def _spans(self, state: TrainState, num_updates: int) -> list[tuple[int, int]]:
        """Splits updates where the target network changes, as pairs of a number of spans and their length."""
        interval = self.target_update_interval
        head = min(num_updates, -int(state.step) % interval)
        whole, tail = divmod(num_updates - head, interval)
        return [
            (spans, length) for spans, length in ((1, head), (whole, interval), (1, tail)) if spans * length
        ]

    def _all_keys(self, key: Key, step: int | Array) -> Keys:
        return jax.random.split(jax.random.fold_in(key, step), (2, self.batch_size))

    def _window_keys(self, state: TrainState) -> Keys:
        """Two keys, to draw it and for its loss, of each window on this device."""
        keys = self._all_keys(state.key, state.step)
        here = self.batch_size // self.mesh.size
        start = jax.lax.axis_index(self._axes) * here
        return jax.lax.dynamic_slice_in_dim(keys, start, here, axis=1)

    def _refuse_bad_layout(self) -> None:
        names = self.mesh.axis_names
        if DATA_AXIS not in names or not set(names) <= {DATA_AXIS, MODEL_AXIS}:
            raise ValueError(
                f'the mesh needs an axis called "data" for the batch, and may have one called "model", got '
                f"{names}"
            )
        devices = self.mesh.size
        if self.batch_size % devices:
            raise ValueError(
                f"a batch of {self.batch_size} does not divide over the {devices} devices of the mesh: use a "
                f"multiple of {devices}"
            )


def _laid_out(x: Array | jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _plain_draw(source: Source) -> Draw:
    return lambda keys: (jax.vmap(source.sample)(keys), None)


def _loop(step: Callable, arrays: TrainState, length: int) -> tuple[TrainState, Metrics]:
    """Repeats a step, its metrics stacked; once without a loop, for the convolutions of a CPU."""
    if length == 1:
        arrays, metrics = step(arrays)
        return arrays, jax.tree.map(lambda x: x[None], metrics)
    return jax.lax.scan(lambda arrays, _: step(arrays), arrays, length=length)
