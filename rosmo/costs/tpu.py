"""What an update costs on a TPU that is not there: libtpu's compiler runs ahead of time on any machine."""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from dm_env import specs
from jax.experimental import topologies
from jax.sharding import Mesh

from rosmo import envs
from rosmo.costs.compute import shapes_of_batch, update_compute
from rosmo.costs.hlo import collectives, moved_bytes
from rosmo.learner import Learner
from rosmo.learner.sharding import DATA_AXIS, mesh_shape
from rosmo.runs.training import Training


class Chip(NamedTuple):
    """Peaks of a chip, or of one of its cores.

    `flops` is the rate of matrix products in bfloat16, which JAX uses for float32 too unless told otherwise.
    """

    memory: float  # bytes
    flops: float  # per second
    bandwidth: float  # bytes of memory per second

    def core(self, devices: Sequence[Any]) -> "Chip":
        """Returns the peaks of each device, where two of them may be the cores of one chip."""
        parts = len(devices) // len({tuple(device.coords) for device in devices})
        return Chip(*(peak / parts for peak in self))


# From https://cloud.google.com/tpu/docs/system-architecture-tpu-vm and its page on each version.
CHIPS = {
    "v2": Chip(16 * 2**30, 46e12, 700e9),
    "v3": Chip(32 * 2**30, 123e12, 900e9),
    "v4": Chip(32 * 2**30, 275e12, 1_228e9),
    "v5e": Chip(16 * 2**30, 197e12, 819e9),
    "v5p": Chip(95 * 2**30, 459e12, 2_765e9),
    "v6e": Chip(32 * 2**30, 918e12, 1_640e9),
}


def chip_of(topology: str) -> Chip:
    """Returns the chip of a topology such as "v5e:2x4"."""
    name, colon, sizes = topology.partition(":")
    if name not in CHIPS or not colon or not re.fullmatch(r"\d+(x\d+)*", sizes):
        raise ValueError(
            f"a topology is written as v5e:2x4, with a chip of {', '.join(CHIPS)}, got {topology!r}"
        )
    return CHIPS[name]


def compile_update(training: Training, topology: str, mesh: str | None = None) -> dict[str, Any]:
    """Compiles the learner's update for a topology and returns what it costs each device, in plain numbers.

    Args:
        training: what is trained; its data is not read.
        topology: chip and arrangement, such as "v5e:2x4".
        mesh: as in "data=4,model=2"; where not given, all devices along "data".
    """
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    shape = mesh_shape(mesh) if mesh else {DATA_AXIS: len(devices)}
    if math.prod(shape.values()) != len(devices):
        raise ValueError(f"{topology} has {len(devices)} devices, and a mesh of {mesh} has another number")
    agent = training.build_agent()
    grid = Mesh(np.array(devices).reshape(*shape.values()), tuple(shape))
    learner = training.learner(agent, mesh=grid)
    shape_of_one, dtype = _observation(training)
    batch = shapes_of_batch(learner.batch_size, agent.window, shape_of_one, dtype)
    compiled = learner.trace(batch).lower(lowering_platforms=("tpu",)).compile()
    text, memory = compiled.as_text() or "", compiled.memory_analysis()
    work = update_compute(agent, batch_size=learner.batch_size, observation_shape=shape_of_one)
    report = {
        "topology": topology,
        "mesh": shape,
        "devices": len(devices),
        "batch": learner.batch_size,
        **state_bytes(learner),
        "temporaries": memory.temp_size_in_bytes,  # pyright: ignore[reportOptionalMemberAccess]
        "arguments": memory.argument_size_in_bytes,  # pyright: ignore[reportOptionalMemberAccess]
        "flops": work.flops / len(devices),
        "bytes": moved_bytes(text),
        "collectives": collectives(text),
    }
    return report | roofline(report, chip_of(topology).core(devices))


def _observation(training: Training) -> tuple[tuple[int, ...], Any]:
    """The shape and type of an observation; without an environment, where data is not read, of floats."""
    if training.environment is None:
        return training.spaces()[0], np.float32
    spec = cast(specs.Array, envs.make(training.environment, seed=0).observation_spec())
    return tuple(spec.shape), spec.dtype


def state_bytes(learner: Learner) -> dict[str, int]:
    """Returns the bytes of parameters, target parameters and optimizer that one device holds."""
    shapes = learner.state_shapes()

    def size(tree: Any) -> int:
        return sum(
            math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree)
        )

    parts = {"parameters": shapes.params, "target": shapes.target_params, "optimizer": shapes.opt_state}
    return {name: size(tree) for name, tree in parts.items()}


def roofline(report: dict[str, Any], chip: Chip) -> dict[str, Any]:
    """Returns whether an update fits a chip, and the seconds that it cannot go below."""
    by = {"FLOP/s": report["flops"] / chip.flops, "bandwidth": report["bytes"] / chip.bandwidth}
    bound = max(by, key=lambda name: by[name])
    needed = report["arguments"] + report["temporaries"]
    return {"memory": chip.memory, "fits": needed <= chip.memory, "bound": bound, "seconds": by[bound]}
