"""Small agents trained alike on any layout; run as a program, this is one of several processes that do so.

python -m tests.pod HOST:PORT PROCESSES ID OUT MESH AGENT/NETWORK …
"""

import functools
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from rosmo import Codec, Learner, Trajectory, adamw, agents, latent_model
from rosmo.data import HostSampler
from rosmo.learner.sharding import make_mesh, mesh_shape
from tests.windows import random_steps, talkative

ACTIONS, BATCH, UPDATES = 3, 16, 20
# Large enough that the rule splits some of their arrays over a "model" axis.
MODELS = {
    "mlp": functools.partial(
        latent_model, observation_shape=(4,), representation=(32, 32), dynamics=(64,), prediction=(32,)
    ),
    "resnet": functools.partial(
        latent_model,
        network="resnet",
        observation_shape=(16, 16, 2),
        value_codec=Codec(20),  # in 601 bins some gradients are all rounding, of which Adam makes full steps
        channels=16,
        head_size=16,
        representation_blocks=1,
        dynamics_blocks=1,
        prediction_blocks=1,
    ),
}


def make_agent(name: str, network: str):
    extra = {"num_simulations": 3} if name == "mzu" else {}
    model = functools.partial(MODELS[network], num_actions=ACTIONS)
    return agents.get(name)(model, unroll_steps=2, td_steps=2, **extra)


def make_steps(network: str) -> Trajectory:
    rng = np.random.default_rng(0)
    steps = random_steps(rng, rng.integers(3, 9, 40), rng.random(40) < 0.5)
    if network == "mlp":
        return steps
    images = rng.integers(0, 256, (len(steps.action), 16, 16, 2), np.uint8)
    return eqx.tree_at(lambda s: s.observation, steps, images)


def make_learner(name: str, network: str, mesh: str, **settings) -> Learner:
    # At a rate where the rounding of a sum over devices, which Adam magnifies, stays well below 1e-5.
    common = {"batch_size": BATCH, "target_update_interval": 8, "mesh": make_mesh(mesh_shape(mesh))}
    return Learner(make_agent(name, network), adamw(1e-4, warmup_steps=2), **common | settings)


def train(name: str, network: str, mesh: str) -> list[np.ndarray]:
    """Returns the parameters after some updates on batches from the host, each process with its own rows."""
    learner = make_learner(name, network, mesh)

    def begin(state):
        # Moved: where a true gradient is 0, Adam makes full steps of rounding errors.
        scattered = talkative(state.params, jax.random.key(1))
        return eqx.tree_at(lambda s: (s.params, s.target_params), state, (scattered, scattered))

    state = eqx.filter_jit(begin)(learner.init(jax.random.key(0)))
    sampler = HostSampler(make_steps(network), window=learner.agent.window, num_actions=ACTIONS)
    for step in range(UPDATES):
        keys = learner.draw_keys(jax.random.key(7), step)[learner.own_windows]
        state, _ = learner.update(state, sampler.batch(keys))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.device_get(learner.gather(state.params)))]


def main() -> None:
    coordinator, processes, index, out, mesh, *cases = sys.argv[1:]
    size = np.prod(list(mesh_shape(mesh).values()))
    jax.config.update("jax_num_cpu_devices", int(size) // int(processes))
    jax.config.update("jax_disable_most_optimizations", True)
    jax.distributed.initialize(coordinator, int(processes), int(index))
    for case in cases:
        leaves = train(*case.split("/"), mesh)
        if index == "0":
            np.savez(Path(out) / f"{case.replace('/', '-')}.npz", *leaves)


if __name__ == "__main__":
    main()
