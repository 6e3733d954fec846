"""Meshes of devices, and how the arrays of a training state and the windows of a batch lie over them."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

DATA_AXIS, MODEL_AXIS = "data", "model"
_WHOLE_BELOW = 1_024  # entries: to gather a smaller array costs more than to keep it everywhere


def mesh_shape(text: str) -> dict[str, int]:
    """Reads the axes of a mesh, as in "data=4,model=2"."""
    shape: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = part.strip().partition("=")
        if not equals or name not in (DATA_AXIS, MODEL_AXIS) or name in shape or not size.isdecimal():
            raise ValueError(f"a mesh is written as data=8 or as data=4,model=2, got {text!r}")
        shape[name] = int(size)
    return shape


def make_mesh(shape: Mapping[str, int]) -> Mesh:
    """Returns a mesh of the first devices.

    Args:
        shape: devices along "data" and, where a state is to be split too, along "model".
    """
    count, there = math.prod(shape.values()), jax.device_count()
    if not 1 <= count <= there:
        raise ValueError(f"a mesh of {count} devices is not possible here: there are {there}")
    if jax.process_count() > 1 and count != there:
        raise ValueError(
            f"a mesh over several processes takes all of their {there} devices, got {count}: try data={there}"
        )
    types = (jax.sharding.AxisType.Auto,) * len(shape)
    return jax.make_mesh(tuple(shape.values()), tuple(shape), devices=jax.devices()[:count], axis_types=types)


def split_rule(shape: tuple[int, ...], parts: int) -> PartitionSpec:
    """Says how an array is split over the "model" axis: along its longest dimension that divides evenly.

    A small array, and one of which no dimension divides, is kept whole by every device. Parameters, target
    parameters and the state of any optimizer go by this rule alone.
    """
    dimensions = [axis for axis, size in enumerate(shape) if size % parts == 0]
    if parts == 1 or math.prod(shape) < _WHOLE_BELOW or not dimensions:
        return PartitionSpec()
    longest = max(dimensions, key=lambda axis: shape[axis])
    return PartitionSpec(*[None] * longest, MODEL_AXIS)


def state_layout(shapes: PyTree, mesh: Mesh) -> PyTree:
    """Returns the sharding of each array of a state."""
    parts = mesh.shape.get(MODEL_AXIS, 1)
    return jax.tree.map(lambda x: NamedSharding(mesh, split_rule(x.shape, parts)), shapes)


def put(tree: PyTree, sharding: NamedSharding) -> PyTree:
    """Lays arrays out over a mesh, of which each process passes its own part: the parts of its devices."""

    def place(x: Any) -> jax.Array:
        if _lies(x, sharding):
            return x
        if sharding.is_fully_addressable:
            return jax.device_put(x, sharding)
        return jax.make_array_from_process_local_data(sharding, np.asarray(x))

    return jax.tree.map(place, tree)


def _lies(x: Any, sharding: NamedSharding) -> bool:
    """Whether an array lies so already: to be told so by `device_put` takes longer than a small update."""
    return isinstance(x, jax.Array) and not isinstance(x, Tracer) and x.committed and x.sharding == sharding


def own_rows(sharding: NamedSharding, count: int) -> np.ndarray:
    """Returns which of `count` rows, split by `sharding`, lie on the devices of this process."""
    places = sharding.addressable_devices_indices_map((count,)).values()
    return np.unique(np.concatenate([np.arange(count)[index] for index in places if index is not None]))


class Layout:
    """Where a learner's arrays lie: its state by `split_rule`, the windows of a batch over all devices."""

    def __init__(self, mesh: Mesh | None, shapes: PyTree, batch_size: int):
        """Lays a state out.

        Args:
            mesh: the devices; the first one alone where not given.
            shapes: of the arrays of a state.
            batch_size: windows in a batch.
        """
        mesh = Mesh(np.array(jax.local_devices()[:1]), (DATA_AXIS,)) if mesh is None else mesh
        _refuse_mesh(mesh, batch_size)
        # With automatic axes, whatever it was made with: what leaves the learner is then usable anywhere.
        self.mesh = Mesh(mesh.devices, mesh.axis_names)
        self.axes = tuple(axis for axis in (DATA_AXIS, MODEL_AXIS) if axis in mesh.axis_names)
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self.split = NamedSharding(self.mesh, PartitionSpec(self.axes))
        self.state = state_layout(shapes, self.mesh)
        self._leaves = jax.tree.leaves(self.state)
        self.splits_state = self.mesh.shape.get(MODEL_AXIS, 1) > 1

    def placed(self, arrays: PyTree) -> PyTree:
        """Returns the arrays of a state laid out, also of one that was restored onto another layout."""
        pairs = zip(jax.tree.leaves(arrays), self._leaves, strict=True)
        return arrays if all(_lies(*pair) for pair in pairs) else jax.device_put(arrays, self.state)

    def constrain(self, arrays: PyTree) -> PyTree:
        """Returns the arrays of a state as they are to lie, inside a compiled update."""
        return jax.lax.with_sharding_constraint(arrays, self.state) if self.splits_state else arrays


def _refuse_mesh(mesh: Mesh, batch_size: int) -> None:
    names, devices = mesh.axis_names, mesh.size
    if DATA_AXIS not in names or not set(names) <= {DATA_AXIS, MODEL_AXIS}:
        raise ValueError(
            'the mesh needs an axis called "data" for the batch, and may have one called "model", got '
            f"{names}"
        )
    if batch_size % devices:
        raise ValueError(
            f"a batch of {batch_size} does not divide over the {devices} devices of the mesh: use a multiple "
            f"of {devices}"
        )
