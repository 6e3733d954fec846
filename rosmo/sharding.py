"""Meshes of devices, and the one rule by which the arrays of a training state are split over them."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
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
        if sharding.is_fully_addressable or getattr(x, "sharding", None) == sharding:
            return jax.device_put(x, sharding)
        return jax.make_array_from_process_local_data(sharding, np.asarray(x))

    return jax.tree.map(place, tree)


def own_rows(sharding: NamedSharding, count: int) -> np.ndarray:
    """Returns which of `count` rows, split by `sharding`, lie on the devices of this process."""
    places = sharding.addressable_devices_indices_map((count,)).values()
    return np.unique(np.concatenate([np.arange(count)[index] for index in places if index is not None]))
