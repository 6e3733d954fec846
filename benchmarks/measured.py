"""Updates that can be timed in one checkout of the library, at the word of `benchmarks.compare`.

A process of its own for each checkout: it reads a case a line, and answers with the seconds of an update.
It uses no more of the library than its public names, so that any checkout can be measured.
"""

import functools
import json
import sys
import time

import jax

if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))

import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

import rosmo
from rosmo import agents
from rosmo.data import window_sampler

SETTINGS = {  # model, windows in a batch, settings of latent agents, of searches, and of a call
    "bsuite": (
        {"observation_shape": (10, 5), "num_actions": 3},
        128,
        {"td_steps": 3},
        {"num_simulations": 4},
        (1, 200),
    ),
    "minatar": (
        {
            "network": "conv",
            "observation_shape": (10, 10, 4),
            "num_actions": 4,
            "channels": (16,),
            "representation": (256, 128),
            "dynamics": (256,),
            "prediction": (128,),
        },
        64,
        {"td_steps": 5},
        {"num_simulations": 4},
        (1, 20),
    ),
    "atari": (
        {"network": "resnet", "observation_shape": (84, 84, 4), "num_actions": 6},
        8,
        {"td_steps": 5},
        {"num_simulations": 20},
        (1,),
    ),
}
BASELINES = ("bc", "cql", "crr")
PRODUCT = 2_048


def made_up(shape: tuple[int, ...], num_actions: int, count: int) -> rosmo.Trajectory:
    """Episodes of ten steps."""
    rng = np.random.default_rng(0)
    place = np.arange(count) % 10
    images = rng.integers(0, 256, (count, *shape), np.uint8)
    return rosmo.Trajectory(
        observation=images if len(shape) == 3 else (images > 240).astype(np.float32),
        action=rng.integers(0, num_actions, count).astype(np.int32),
        reward=np.where(place == 9, np.float32(0), rng.choice(np.array([-1, 0, 1], np.float32), count)),
        discount=(place < 8).astype(np.float32),
        is_first=place == 0,
        is_last=place == 9,
        is_terminal=place == 9,
    )


class Case:
    """A preset at a setting on some devices, so many updates a call."""

    def __init__(self, setting: str, preset: str, devices: int, updates: int, **extra):
        sizes, batch, latent, search, _ = SETTINGS[setting]
        settings = {} if preset in BASELINES else dict(latent)
        settings |= search if preset.startswith("mzu") else {}
        agent = agents.get(preset)(functools.partial(rosmo.latent_model, **sizes), **(settings | extra))
        shape, actions = sizes["observation_shape"], sizes["num_actions"]
        source = window_sampler(
            made_up(shape, actions, 200 if setting == "atari" else 20_000),
            window=agent.window,
            num_actions=actions,
        )
        mesh = jax.make_mesh(
            (devices,), ("data",), devices=jax.devices()[:devices], axis_types=(AxisType.Auto,)
        )
        self.learner = rosmo.Learner(agent, batch_size=batch, mesh=mesh, cache_targets=False)
        self.source = self.learner.place(source)
        self.state = self.learner.init(jax.random.key(0))
        self.updates, self.calls = updates, 1 if updates > 1 or setting == "atari" else 50
        self.seconds()

    def seconds(self) -> float:
        """Returns the seconds of an update."""
        start = time.perf_counter()
        for _ in range(self.calls):
            self.state, _ = self.learner.update_many(self.state, self.source, self.updates)
        jax.block_until_ready(self.state)
        return (time.perf_counter() - start) / (self.calls * self.updates)


def product_seconds() -> float:
    """Returns the seconds of a large float32 product on all cores."""
    x = jnp.ones((PRODUCT, PRODUCT))
    jnp.matmul(x, x).block_until_ready()
    start = time.perf_counter()
    jnp.matmul(x, x).block_until_ready()
    return time.perf_counter() - start


def main() -> None:
    cases: dict[str, Case] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        name = json.dumps(asked)
        try:
            if asked == "product":
                answer = {"seconds": product_seconds()}
            elif asked.pop("forget", False):
                cases.clear()
                jax.clear_caches()
                answer = {"seconds": 0.0}
            else:
                if name not in cases:
                    cases[name] = Case(**asked)
                answer = {"seconds": cases[name].seconds()}
        except Exception as error:  # a checkout may lack what is asked for
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
