"""Training: the state, the update, and many updates in one call, on one device or on a mesh of them."""

from collections.abc import Callable
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Int, PyTree

from rosmo.agents import Agent, CachesTargets
from rosmo.cache import Draw, Source, cached_draw, caching, judge_all, pays
from rosmo.frames import stack_frames
from rosmo.types import Key, Keys, Metrics, Params, Trajectory, is_array

DATA_AXIS = "data"


class TrainState(eqx.Module):
    """Everything that training changes, and the key that never does."""

    params: Params
    target_params: Params
    opt_state: optax.OptState
    step: Int[Array, ""]
    key: Key


def decay_mask(params: Params) -> PyTree:
    """Marks what weight decay applies to: weight matrices and kernels, but no bias and no normalisation."""
    norms = (eqx.nn.LayerNorm, eqx.nn.GroupNorm, eqx.nn.RMSNorm, eqx.nn.BatchNorm)

    def decays(path, leaf) -> bool | PyTree:
        if isinstance(leaf, norms):
            return jax.tree.map(lambda _: False, leaf)
        name = getattr(path[-1], "name", getattr(path[-1], "key", None)) if path else None
        return leaf.ndim >= 2 and name != "bias"

    return jax.tree_util.tree_map_with_path(decays, params, is_leaf=lambda x: isinstance(x, norms))


def adamw(
    learning_rate: float = 7e-4,
    *,
    weight_decay: float = 1e-4,
    max_grad_norm: float = 5.0,
    warmup_steps: int = 1_000,
    decay_steps: int = 100_000,
    decay_rate: float = 0.1,
) -> optax.GradientTransformation:
    """AdamW on gradients clipped to a global norm, with warm-up and a staircase decay of the learning rate.

    Args:
        learning_rate: the rate that the warm-up ends at.
        weight_decay: of weight matrices and kernels alone.
        max_grad_norm: the global norm that longer gradients are scaled to.
        warmup_steps: updates over which the rate rises from 0; the paper does not say.
        decay_steps: updates between two steps of the staircase; the paper does not say.
        decay_rate: what each step multiplies the rate by.
    """
    schedule = optax.warmup_exponential_decay_schedule(
        0.0, learning_rate, warmup_steps, decay_steps, decay_rate, staircase=True
    )
    # Clipping and moments see the parameters as one vector: a few large operations, not many small ones.
    flat = optax.flatten(optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.scale_by_adam()))
    return optax.chain(
        flat,
        optax.add_decayed_weights(weight_decay, mask=decay_mask),
        optax.scale_by_learning_rate(schedule),
    )


class Learner:
    """Trains an agent.

    A batch is split over the mesh's "data" axis, its gradients are averaged in one all-reduce, and everything
    else is replicated; without a mesh the learner uses the first device. Every window has a key of its own,
    derived from the state's key and step: a batch trains alike on every layout, and a restored state goes on
    exactly as it would have. States are donated: an update consumes the one it is given.
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
            mesh: the devices, with an axis called "data".
        """
        for name, value in {
            "batch_size": batch_size,
            "target_update_interval": target_update_interval,
        }.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        self.agent = agent
        self.optimizer = adamw() if optimizer is None else optimizer
        self.batch_size = batch_size
        self.target_update_interval = target_update_interval
        self.cache_targets = cache_targets
        # With automatic axes, whatever it was made with: what leaves the learner is then usable anywhere.
        self.mesh = data_mesh() if mesh is None else Mesh(mesh.devices, mesh.axis_names)
        self._refuse_bad_layout()
        self._replicated = NamedSharding(self.mesh, PartitionSpec())
        self._split = NamedSharding(self.mesh, PartitionSpec(DATA_AXIS))
        # What of a state is not an array (an activation function, say) is the same for every state.
        self._static = eqx.partition(eqx.filter_eval_shape(self._fresh, jax.random.key(0)), is_array)[1]
        self._init = jax.jit(
            lambda key: eqx.filter(self._fresh(key), is_array), out_shardings=self._replicated
        )
        self._update = jax.jit(self._update_arrays, donate_argnums=0)
        self._update_many = jax.jit(self._update_arrays_many, donate_argnums=0, static_argnums=(2, 3, 4))

    def init(self, key: Key) -> TrainState:
        """Returns a fresh state, laid out over the mesh."""
        return eqx.combine(self._init(key), self._static)

    def update(self, state: TrainState, batch: Trajectory) -> tuple[TrainState, Metrics]:
        """Takes one step on a batch `[B, T]`; consumes `state`."""
        if len(batch.action) != self.batch_size:
            raise ValueError(
                f"this learner takes batches of {self.batch_size} windows, got {len(batch.action)}"
            )
        arrays, metrics = self._update(self._placed(state), jax.device_put(batch, self._split))
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

    def trace(self, batch: Trajectory) -> None:
        """Traces an update on a batch, or on shapes of one: what cannot work fails here, before any work."""
        state = jax.eval_shape(self._init, jax.random.key(0))
        jax.eval_shape(self._update_arrays, state, batch)

    def lower_many(self, state: TrainState, source: Source, num_updates: int) -> jax.stages.Lowered:
        """Lowers an `update_many` without a target cache, to compile it ahead or to see what it costs.

        What that compiles to maps the arrays of a state and a source to those of the next state, and metrics.
        """
        return self._update_many.lower(self._placed(state), self.place(source), 1, num_updates, False)

    def place(self, source: PyTree) -> PyTree:
        """Lays a source out over the mesh, every device with all of it."""
        return jax.device_put(source, self._replicated)

    def _placed(self, state: TrainState) -> TrainState:
        """The arrays of a state, also of one restored onto another layout."""
        if not isinstance(state.step, Tracer) and state.step.is_deleted():
            raise ValueError("an update has consumed this state: go on with the state that it returned")
        return jax.device_put(eqx.filter(state, is_array), self._replicated)

    def _update_arrays(self, arrays: TrainState, batch: Trajectory) -> tuple[TrainState, Metrics]:
        def shard(arrays: TrainState, windows: Trajectory) -> tuple[TrainState, Metrics]:
            _, keys_loss = self._window_keys(arrays)
            return self._step(arrays, windows, keys_loss)

        return self._on_mesh(shard, PartitionSpec(DATA_AXIS))(arrays, batch)

    def _update_arrays_many(
        self, arrays: TrainState, source: Source, spans: int, length: int, cached: bool
    ) -> tuple[TrainState, Metrics]:
        """Takes `spans` times `length` updates; with a cache, a span lies between two target updates."""

        def shard(arrays: TrainState, source: Source) -> tuple[TrainState, Metrics]:
            def span(arrays: TrainState) -> tuple[TrainState, Metrics]:
                draw = self._cached_draw(arrays, source) if cached else _plain_draw(source)
                return _loop(lambda arrays: self._draw_and_step(arrays, draw), arrays, length)

            arrays, metrics = _loop(span, arrays, spans)
            return arrays, jax.tree.map(lambda x: x.reshape(spans * length), metrics)

        return self._on_mesh(shard, PartitionSpec())(arrays, source)

    def _draw_and_step(self, arrays: TrainState, draw: Draw) -> tuple[TrainState, Metrics]:
        keys_window, keys_loss = self._window_keys(arrays)
        windows, targets = draw(keys_window)
        return self._step(arrays, windows, keys_loss, targets)

    def _cached_draw(self, arrays: TrainState, source: Source) -> Draw:
        state = eqx.combine(arrays, self._static)
        key = jax.random.fold_in(jax.random.fold_in(state.key, state.step), 2**31)  # no update has it
        agent, steps = caching(self.agent, source)
        layout = {"axis": DATA_AXIS, "devices": self.mesh.shape[DATA_AXIS]}
        return cached_draw(agent, steps, judge_all(agent, state.target_params, steps, key, **layout))

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

    def _on_mesh(self, shard: Callable, data_spec: PartitionSpec) -> Callable:
        """Runs `shard(state, data)` on every device, each with all of the state and its part of the data."""
        specs = {"in_specs": (PartitionSpec(), data_spec), "out_specs": PartitionSpec()}
        # Replication is not inferred (check_vma): the gradients would be reduced one by one where they arise.
        return jax.shard_map(shard, mesh=self.mesh, check_vma=False, **specs)

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

    def draw_keys(self, key: Key, step: int | Array) -> Keys:
        """Returns the keys `[B]` that `update_many` draws the windows of a step with, from a state's key."""
        return self._all_keys(key, step)[0]

    def _all_keys(self, key: Key, step: int | Array) -> Keys:
        return jax.random.split(jax.random.fold_in(key, step), (2, self.batch_size))

    def _window_keys(self, state: TrainState) -> Keys:
        """Two keys, to draw it and for its loss, of each window on this device."""
        keys = self._all_keys(state.key, state.step)
        here = self.batch_size // self.mesh.shape[DATA_AXIS]
        start = jax.lax.axis_index(DATA_AXIS) * here
        return jax.lax.dynamic_slice_in_dim(keys, start, here, axis=1)

    def _step(
        self, arrays: TrainState, windows: Trajectory, keys: Keys, targets: PyTree = None
    ) -> tuple[TrainState, Metrics]:
        state = eqx.combine(arrays, self._static)
        windows = stack_frames(windows)

        def loss(params: Params) -> tuple[Array, Metrics]:
            if targets is None:
                return self.agent.loss(params, state.target_params, windows, keys)
            return cast(CachesTargets, self.agent).loss_from_targets(params, windows, targets, keys)

        (value, metrics), grads = eqx.filter_value_and_grad(loss, has_aux=True)(state.params)
        metrics = {name: jnp.asarray(x, jnp.float32) for name, x in ({"loss": value} | metrics).items()}
        flat, unravel = ravel_pytree((grads, metrics))
        grads, metrics = unravel(jax.lax.pmean(flat, DATA_AXIS))
        trained = eqx.filter(state.params, eqx.is_inexact_array)
        with jax.numpy_dtype_promotion("standard"):  # optax's schedules mix integers and floats
            updates, opt_state = self.optimizer.update(grads, state.opt_state, trained)
        params = eqx.apply_updates(state.params, updates)
        step = state.step + 1
        refresh = step % self.target_update_interval == 0
        new, old = eqx.filter((params, state.target_params), is_array)
        target = jax.tree.map(lambda n, o: jnp.where(refresh, n, o), new, old)
        state = TrainState(params, target, opt_state, step, state.key)
        return eqx.filter(state, is_array), metrics | {"grad_norm": optax.tree.norm(grads)}

    def _refuse_bad_layout(self) -> None:
        if DATA_AXIS not in self.mesh.axis_names:
            raise ValueError(
                f'the mesh needs an axis called "data" for the batch, got {self.mesh.axis_names}'
            )
        devices = self.mesh.shape[DATA_AXIS]
        if self.batch_size % devices:
            raise ValueError(
                f"a batch of {self.batch_size} does not divide over the {devices} devices of the mesh's "
                f'"data" axis: use a multiple of {devices}'
            )


def _plain_draw(source: Source) -> Draw:
    return lambda keys: (jax.vmap(source.sample)(keys), None)


def _loop(step: Callable, arrays: TrainState, length: int) -> tuple[TrainState, Metrics]:
    """Repeats a step, its metrics stacked; once without a loop, for the convolutions of a CPU."""
    if length == 1:
        arrays, metrics = step(arrays)
        return arrays, jax.tree.map(lambda x: x[None], metrics)
    return jax.lax.scan(lambda arrays, _: step(arrays), arrays, length=length)


def data_mesh(devices: int = 1) -> Mesh:
    """Returns a mesh of the first devices, for batches to be split over."""
    axes = {"axis_types": (jax.sharding.AxisType.Auto,)}
    return jax.make_mesh((devices,), (DATA_AXIS,), devices=jax.devices()[:devices], **axes)
