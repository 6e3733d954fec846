"""The update of a training state as one pure function, on one device or on a mesh of them."""

import dataclasses
from collections.abc import Callable
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec
from jaxtyping import PyTree

from rosmo.agents import CachesTargets, Trained
from rosmo.data.stacking import stack_frames
from rosmo.learner.kept_targets import Draw, Source, cached_draw, caching, judge_all
from rosmo.learner.sharding import Layout
from rosmo.learner.state import TrainState
from rosmo.types import Keys, Metrics, Params, Trajectory, is_array


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """Maps the arrays of a state, and a batch or a source of batches, to those of the next state.

    The way of a batch: its windows are drawn, their frames stacked, the agent's loss and its gradients are
    taken on each device, averaged over all, and the optimizer applies them.

    Args:
        agent: what is trained.
        optimizer: of the parameters.
        batch_size: windows in a batch, over all devices.
        target_update_interval: updates between two copies of the parameters to the target network.
        layout: how state and batch lie over the mesh.
        static: what of a state is not an array.
    """

    agent: Trained
    optimizer: optax.GradientTransformation
    batch_size: int
    target_update_interval: int
    layout: Layout
    static: TrainState

    def on_batch(self, arrays: TrainState, batch: Trajectory) -> tuple[TrainState, Metrics]:
        """Takes one update on a batch that is given."""

        def gradients(arrays: TrainState, windows: Trajectory) -> tuple[Params, Metrics]:
            _, keys_loss = self._window_keys(arrays)
            return self._gradients(arrays, windows, keys_loss)

        def update(arrays: TrainState, batch: Trajectory, part: Callable) -> tuple[TrainState, Metrics]:
            return self._apply(arrays, *part(gradients)(arrays, batch))

        return self._on_mesh(update, self.layout.split.spec)(arrays, batch)

    def on_source(
        self, arrays: TrainState, source: Source, spans: int, length: int, cached: bool
    ) -> tuple[TrainState, Metrics]:
        """Takes `spans` times `length` updates; with kept targets, a span lies between two target updates."""

        def updates(arrays: TrainState, source: Source, part: Callable) -> tuple[TrainState, Metrics]:
            def span(arrays: TrainState) -> tuple[TrainState, Metrics]:
                data = (source, part(self._judge)(arrays, source) if cached else None)
                step = part(self._drawn_gradients)
                return _loop(lambda arrays: self._apply(arrays, *step(arrays, data)), arrays, length)

            arrays, metrics = _loop(span, arrays, spans)
            return arrays, jax.tree.map(lambda x: x.reshape(spans * length), metrics)

        return self._on_mesh(updates, PartitionSpec())(arrays, source)

    def keys(self, key: Array, step: int | Array) -> Keys:
        """Returns two keys for each window of a step's batch: to draw it, and for its loss."""
        return jax.random.split(jax.random.fold_in(key, step), (2, self.batch_size))

    def _on_mesh(self, update: Callable, data_spec: PartitionSpec) -> Callable:
        """Runs `update(state, data, part)` on the mesh, where `part` wraps what a device does with its share.

        A state that every device has whole stays inside of one `shard_map`, loops and optimizer included. A
        split one is updated on its parts by whatever collectives XLA finds that the optimizer needs, and only
        the parts of the work that need the batch run in a `shard_map`, on gathered parameters.
        """

        def on_each_device(function: Callable) -> Callable:
            specs = {"in_specs": (PartitionSpec(), data_spec), "out_specs": PartitionSpec()}
            # Replication is not inferred (check_vma): gradients would be reduced one by one where they arise.
            return jax.shard_map(function, mesh=self.layout.mesh, check_vma=False, **specs)

        def gathering(function: Callable) -> Callable:
            # Without the optimizer's arrays, which no loss reads and nobody gathers.
            mapped = on_each_device(function)
            return lambda arrays, data: mapped(dataclasses.replace(arrays, opt_state=None), data)

        if self.layout.splits_state:
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
        target_params = eqx.combine(arrays.target_params, self.static.target_params)
        layout = {"axis": self.layout.axes, "devices": self.layout.mesh.size}
        agent, steps = caching(self.agent, source)
        return judge_all(agent, target_params, steps, key, **layout)

    def _gradients(
        self, arrays: TrainState, windows: Trajectory, keys: Keys, targets: PyTree = None
    ) -> tuple[Params, Metrics]:
        """The gradients and metrics of a batch: of the windows of this device, averaged over all devices."""
        params, target_params = eqx.combine(
            (arrays.params, arrays.target_params), (self.static.params, self.static.target_params)
        )
        windows = stack_frames(windows)

        def loss(params: Params) -> tuple[Array, Metrics]:
            if targets is None:
                return self.agent.loss(params, target_params, windows, keys)
            return cast(CachesTargets, self.agent).loss_from_targets(params, windows, targets, keys)

        (value, metrics), grads = eqx.filter_value_and_grad(loss, has_aux=True)(params)
        metrics = {name: jnp.asarray(x, jnp.float32) for name, x in ({"loss": value} | metrics).items()}
        flat, unravel = ravel_pytree((grads, metrics))
        return unravel(jax.lax.pmean(flat, self.layout.axes))

    def _apply(self, arrays: TrainState, grads: Params, metrics: Metrics) -> tuple[TrainState, Metrics]:
        """The state after the optimizer's step, laid out as before."""
        state = eqx.combine(arrays, self.static)
        trained = eqx.filter(state.params, eqx.is_inexact_array)
        with jax.numpy_dtype_promotion("standard"):  # optax's schedules mix integers and floats
            updates, opt_state = self.optimizer.update(grads, state.opt_state, trained)
        params = eqx.apply_updates(state.params, updates)
        step = state.step + 1
        refresh = step % self.target_update_interval == 0
        new, old = eqx.filter((params, state.target_params), is_array)
        target = jax.tree.map(lambda n, o: jnp.where(refresh, n, o), new, old)
        arrays = eqx.filter(TrainState(params, target, opt_state, step, state.key), is_array)
        return self.layout.constrain(arrays), metrics | {"grad_norm": optax.tree.norm(grads)}

    def _window_keys(self, state: TrainState) -> Keys:
        """The keys of the windows on this device."""
        keys = self.keys(state.key, state.step)
        here = self.batch_size // self.layout.mesh.size
        start = jax.lax.axis_index(self.layout.axes) * here
        return jax.lax.dynamic_slice_in_dim(keys, start, here, axis=1)


def _plain_draw(source: Source) -> Draw:
    return lambda keys: (jax.vmap(source.sample)(keys), None)


def _loop(step: Callable, arrays: TrainState, length: int) -> tuple[TrainState, Metrics]:
    """Repeats a step, its metrics stacked; once without a loop, for the convolutions of a CPU."""
    if length == 1:
        arrays, metrics = step(arrays)
        return arrays, jax.tree.map(lambda x: x[None], metrics)
    return jax.lax.scan(lambda arrays, _: step(arrays), arrays, length=length)
