"""Windows of one root train as windows did before they could have several: bit for bit.

The recorded updates are those of the code before. To record what the code at hand does, run this as a module.
"""

import dataclasses
import hashlib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

if __name__ == "__main__":
    import tests.conftest  # noqa: F401  (the settings that the tests are compiled with, before anything is)

from rosmo import Learner, agents
from rosmo.data import window_sampler
from tests.learner.test_learner import KEY, mesh_of, quick_adamw
from tests.windows import ACTIONS, random_steps, small_model, talkative

GOLDEN = Path(__file__).parents[1] / "golden" / "one_root_updates.npz"
CASES = {  # a preset, its settings, whether actions are masked, whether targets are kept
    "rosmo": ("rosmo", {}, False, False),
    "rosmo_kept": ("rosmo", {}, False, True),
    "rosmo_masked": ("rosmo", {}, True, False),
    "rosmo_operator": ("rosmo", {"bootstrap": "operator"}, False, False),
    "sampled": ("sampled_rosmo", {"num_samples": 2}, True, False),
    "mzu": ("mzu", {"num_simulations": 3}, True, False),
}


def source_of(agent, masked: bool):
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 12, 40)
    steps = random_steps(rng, lengths, rng.random(40) < 0.5)
    if masked:
        invalid = rng.random((len(steps.action), ACTIONS)) < 0.4
        invalid[np.arange(len(invalid)), steps.action] = False
        steps = dataclasses.replace(steps, invalid_actions=invalid)
    return window_sampler(steps, window=agent.window, num_actions=ACTIONS)


def updates(case: str) -> dict[str, np.ndarray]:
    """Six updates with three refreshes of the target network: what each logged, and the last parameters."""
    preset, settings, masked, kept = CASES[case]
    agent = agents.get(preset)(small_model, unroll_steps=3, td_steps=2, **settings)
    learner = Learner(
        agent, quick_adamw(), batch_size=8, target_update_interval=2, cache_targets=kept, mesh=mesh_of(1)
    )
    start = talkative(agent.init(KEY), jax.random.key(1))
    copy = jax.tree.map(jnp.copy, start)
    state = eqx.tree_at(lambda s: (s.params, s.target_params), learner.init(KEY), (start, copy))
    state, metrics = learner.update_many(state, source_of(agent, masked), 6)
    params = [np.ravel(x) for x in jax.tree.leaves(eqx.filter(state.params, eqx.is_array))]
    return {name: np.asarray(x) for name, x in metrics.items()} | {"params": np.concatenate(params)}


def compiled_here() -> str:
    """What the bits hang on: the compiler, and what the processor can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith("flags")), "")
    return f"jax {jax.__version__}, processor {hashlib.sha256(flags.encode()).hexdigest()[:16]}"


@pytest.mark.parametrize("case", CASES)
def test_one_root_trains_as_before(case):
    with np.load(GOLDEN) as golden:
        same_machine = str(golden["compiled"]) == compiled_here()
        recorded = {
            name.removeprefix(f"{case}/"): golden[name] for name in golden if name.startswith(f"{case}/")
        }
    found = updates(case)
    assert found.keys() == recorded.keys()
    for name, values in recorded.items():
        if same_machine:
            np.testing.assert_array_equal(found[name], values, err_msg=name)
        else:  # other instructions round differently
            np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-4, err_msg=name)


if __name__ == "__main__":
    found = {f"{case}/{name}": x for case in CASES for name, x in updates(case).items()}
    np.savez_compressed(GOLDEN, compiled=np.array(compiled_here()), **found)
