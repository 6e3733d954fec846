"""The acting function by itself, where nothing of this library can be imported."""

import functools
import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax import export

import rosmo
from rosmo import agents
from rosmo.cli import main
from rosmo.trained.exporting import FUNCTION
from rosmo.trained.stablehlo import acting_function
from tests.limits import HUNG
from tests.windows import ON_WORLD

ALONE = """
import sys
for name in ("rosmo", "equinox", "mctx", "optax", "jaxtyping", "gin", "orbax"):
    sys.modules[name] = None  # cannot be imported
{code}
for count in (1, 3, 7):
    shown = np.load("shown.npy")[:count]
    print(act(shown, 5, False).tolist(), act(shown, 5, True).tolist())
"""


def test_a_process_without_this_library_acts_alike(runs, tmp_path):
    assert main(["export", str(runs / "rosmo"), str(tmp_path / "out"), "--format", "stablehlo"]) == 0
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    shown = np.random.default_rng(0).normal(size=(7, 10, 5)).astype(np.float32)
    np.save(tmp_path / "shown.npy", shown)
    quiet = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE.format(code=code)],
        capture_output=True, text=True, cwd=tmp_path, env=quiet, timeout=HUNG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    trained = rosmo.load(runs / "rosmo")
    actions = [
        [trained.act(shown[:count], greedy=greedy, seed=5).tolist() for greedy in (False, True)]
        for count in (1, 3, 7)
    ]
    expected = [f"{sampled} {greedy}" for sampled, greedy in actions]
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("name", sorted(set(agents.names()) - set(ON_WORLD)))
def test_every_agent_can_be_exported_for_every_platform(name):
    sizes = {"representation": (5,), "dynamics": (4,), "prediction": (4,)}
    model = functools.partial(rosmo.latent_model, observation_shape=(2,), num_actions=3, **sizes)
    agent = agents.get(name)(model)
    trained = rosmo.TrainedAgent(agent, agent.init(jax.random.key(0)))
    exported = export.deserialize(bytearray(acting_function(trained, "float32")))
    assert exported.platforms == ("cpu", "cuda", "tpu")
    assert [str(x) for x in exported.in_avals] == [
        "float32[B,2]",
        "int32[]",
        "bool[]",
    ]


def test_what_cannot_be_exported_says_so_in_a_sentence(tmp_path):
    class Asks(agents.BC):
        def act(self, params, key, observation, *, greedy=False):
            return jax.numpy.zeros(len(observation), int)

    model = functools.partial(rosmo.latent_model, observation_shape=(2,), num_actions=3)
    agent = Asks(model)
    with pytest.raises(ValueError, match=r"Asks cannot be exported for batches of any size .* x\.shape\[0\]"):
        acting_function(rosmo.TrainedAgent(agent, agent.init(jax.random.key(0))), "float32")
    assert FUNCTION.endswith(".stablehlo")
