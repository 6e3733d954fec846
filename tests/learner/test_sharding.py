import functools
import os
import socket
import subprocess
import sys

import equinox as eqx
import jax
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from rosmo import Learner
from rosmo.commands.shared import simulate_devices
from rosmo.costs.hlo import collectives
from rosmo.data import window_sampler
from rosmo.learner.sharding import make_mesh, mesh_shape, split_rule
from rosmo.runs.checkpoint import Checkpoints
from tests.learner.test_learner import assert_close
from tests.limits import HUNG
from tests.pod import ACTIONS, make_agent, make_learner, make_steps, train

CASES = [(name, network) for name in ("rosmo", "mzu") for network in ("mlp", "resnet")]
KEY = jax.random.key(0)


def source_of(learner, network: str = "mlp"):
    return window_sampler(make_steps(network), window=learner.agent.window, num_actions=ACTIONS)


def test_the_rule_splits_the_longest_dimension_that_divides():
    assert split_rule((64, 256), 4) == PartitionSpec(None, "model")
    assert split_rule((3, 3, 64, 18), 8) == PartitionSpec(None, None, "model")
    assert split_rule((1001, 64), 2) == PartitionSpec(None, "model")
    assert split_rule((8, 8), 2) == PartitionSpec()  # small
    assert split_rule((999, 33), 2) == PartitionSpec()  # odd
    assert split_rule((64, 256), 1) == PartitionSpec()
    assert split_rule((), 2) == PartitionSpec()


@pytest.mark.parametrize("text", ["8", "data=", "data=2,data=2", "rows=2", "data=-1", "data=2;model=2"])
def test_a_mesh_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match="a mesh is written as"):
        mesh_shape(text)


def test_a_mesh_larger_than_the_devices_is_refused():
    with pytest.raises(ValueError, match="a mesh of 1,000,000 devices is more than a CPU can stand for"):
        simulate_devices(1_000_000)
    assert mesh_shape("data=4, model=2") == {"data": 4, "model": 2}
    with pytest.raises(ValueError, match="a mesh of 16 devices is not possible here: there are 8"):
        make_mesh({"data": 8, "model": 2})
    with pytest.raises(ValueError, match="a mesh of 0 devices"):
        make_mesh({"data": 0})
    with pytest.raises(ValueError, match="batch of 16 does not divide over the 6 devices"):
        make_learner("rosmo", "mlp", "data=3,model=2")


@pytest.fixture(scope="module")
def layouts():
    """A state after some updates in one call, with kept targets and without, on each layout."""
    found = {}
    for mesh, cached in (("data=1", False), ("data=2,model=4", False), ("data=2,model=4", True)):
        learner = make_learner("rosmo", "mlp", mesh, cache_targets=cached)
        state = learner.init(KEY)
        begun = jax.device_get(state)
        state, metrics = learner.update_many(state, source_of(learner), 10)
        found[mesh, cached] = learner, begun, state, jax.device_get(metrics)
    return found


def test_a_split_state_trains_like_a_whole_one(layouts):
    _, begun, expected, metrics = layouts["data=1", False]
    for key, (_, other, state, their) in layouts.items():
        assert_close(other, begun)  # random numbers do not hang on the layout
        assert_close(jax.device_get(state), jax.device_get(expected), atol=1e-5)
        for name, values in metrics.items():
            np.testing.assert_allclose(their[name], values, atol=1e-4, err_msg=f"{key} {name}")


def test_parameters_and_moments_are_split_and_stay_so(layouts):
    learner, _, state, _ = layouts["data=2,model=4", False]
    arrays = eqx.filter(state, eqx.is_array)
    dynamics = state.params.networks.dynamics.from_state.weight
    assert dynamics.addressable_data(0).size == dynamics.size // 4
    moments = [x for x in jax.tree.leaves(arrays.opt_state) if x.ndim == 1]
    assert len(moments) == 2
    assert all(x.addressable_data(0).size == x.size // 4 for x in moments)
    for x, planned in zip(jax.tree.leaves(arrays), jax.tree.leaves(learner.state_shapes()), strict=True):
        assert x.sharding.is_equivalent_to(planned.sharding, x.ndim)


def test_the_split_step_moves_weights_and_never_the_batch():
    """What the devices exchange has the size of the parameters, however large the batch."""
    exchanged = []
    for size in (8, 32):
        learner = make_learner("rosmo", "mlp", "data=2,model=2", batch_size=size)
        batch = jax.vmap(source_of(learner).sample)(jax.random.split(KEY, size))
        found = collectives(learner.trace(batch).lower().compile().as_text())
        exchanged.append({entry["kind"]: entry["bytes"] for entry in found})
    assert exchanged[0] == exchanged[1]
    assert exchanged[0]["all-gather"] > 0


def test_any_optimizer_works_on_a_split_state():
    def optimizer():
        return optax.chain(optax.clip_by_global_norm(0.1), optax.adafactor(1e-2, min_dim_size_to_factor=16))

    states = []
    for mesh in ("data=1", "data=2,model=2"):
        learner = Learner(
            make_agent("rosmo", "mlp"), optimizer(), batch_size=16, mesh=make_mesh(mesh_shape(mesh))
        )
        states.append(learner.update_many(learner.init(KEY), source_of(learner), 3)[0])
    assert_close(*map(jax.device_get, states), atol=1e-5)


@pytest.mark.parametrize(("first", "second"), [("data=8", "data=1"), ("data=1", "data=4,model=2")])
def test_a_checkpoint_is_restored_on_another_layout_exactly(first, second, tmp_path):
    learner, other = make_learner("rosmo", "mlp", first), make_learner("rosmo", "mlp", second)
    state = jax.tree.map(lambda x: x + 1 if eqx.is_inexact_array(x) else x, learner.init(KEY))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state)
    checkpoints.close()
    restored = Checkpoints(tmp_path).restore(other.init(jax.random.key(5)))
    assert_close(jax.device_get(restored), jax.device_get(state))
    for x, planned in zip(
        jax.tree.leaves(eqx.filter(restored, eqx.is_array)),
        jax.tree.leaves(other.state_shapes()),
        strict=True,
    ):
        assert x.sharding.is_equivalent_to(planned.sharding, x.ndim)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def two_processes(out, mesh: str, cases) -> None:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    names = ["/".join(case) for case in cases]
    command = [sys.executable, "-m", "tests.pod", f"localhost:{free_port()}", "2"]
    processes = [
        subprocess.Popen([*command, str(index), str(out), mesh, *names], env=environment) for index in (0, 1)
    ]
    assert [process.wait(timeout=HUNG) for process in processes] == [0, 0]


@functools.cache
def on_one_device(name: str, network: str):
    return train(name, network, "data=1")


def compare(leaves, expected):
    assert max(np.abs(x).max() for x in expected) > 0.1
    for x, y in zip(leaves, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5, rtol=0)


@pytest.mark.slow  # test_hosts.py trains in two processes too
def test_two_processes_train_like_one(tmp_path):
    two_processes(tmp_path, "data=1,model=2", [("rosmo", "mlp")])
    with np.load(tmp_path / "rosmo-mlp.npz") as saved:
        compare([saved[name] for name in saved.files], on_one_device("rosmo", "mlp"))


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["data=8", "data=4,model=2"])
def test_every_layout_gives_the_same_parameters(mesh, tmp_path):
    """After 20 updates, ROSMO and MZU, MLP and ResNet: one device, eight, and two processes of four."""
    two_processes(tmp_path, mesh, CASES)
    for name, network in CASES:
        expected = on_one_device(name, network)
        compare(train(name, network, mesh), expected)
        with np.load(tmp_path / f"{name}-{network}.npz") as saved:
            compare([saved[part] for part in saved.files], expected)
