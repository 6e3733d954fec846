"""A 3×3 convolution of small images as XLA's own and as a product over patches, outside and inside a loop.

    ./dev python -m benchmarks.convolutions [--rounds 5]

An update is the gradient of a network with one or two layers of 16 channels on 768 images of 10×10×4, as many
as a baseline trains on with 128 windows of 6 steps. Prints the median milliseconds of CPU time, all forms in
turns, with one thread.
"""

import argparse
import os
import statistics
import time

import jax

if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax.numpy as jnp
import numpy as np

from rosmo.networks.base import lecun_normal
from rosmo.networks.conv import patches
from rosmo.networks.resnet import convolve

IMAGES, CHANNELS, UPDATES = 768, 16, 10


def by_patches(image, weight):
    return patches(image) @ weight.reshape(-1, weight.shape[-1])


FORMS = {"XLA's convolution": convolve, "patches": by_patches}


def program(form, layers: int, looped: bool):
    """Returns what takes `UPDATES` updates, in one call or in as many."""
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.random((4_000, 10, 10, 4)) < 0.1)
    planes = [4, *[CHANNELS] * layers]
    keys = jax.random.split(jax.random.key(0), layers + 1)
    weights = [lecun_normal(keys[i], (3, 3, *planes[i : i + 2]), 9 * planes[i]) for i in range(layers)]
    weights.append(lecun_normal(keys[-1], (100 * CHANNELS, 128), 100 * CHANNELS))

    def loss(weights, image):
        x = image.astype(jnp.float32)
        for weight in weights[:-1]:
            x = jax.nn.relu(form(x, weight))
        return jnp.mean((x.reshape(-1) @ weights[-1]) ** 2)

    def update(weights, key):
        batch = images[jax.random.randint(key, (IMAGES,), 0, len(images))]
        gradient = jax.grad(lambda w: jnp.mean(jax.vmap(loss, (None, 0))(w, batch)))(weights)
        return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradient), None

    step = jax.jit(lambda w, keys: jax.lax.scan(update, w, keys)[0] if looped else update(w, keys)[0])

    def run() -> float:
        keys, start = jax.random.split(jax.random.key(1), UPDATES), time.process_time()
        for key in [keys] if looped else keys:
            jax.block_until_ready(step(weights, key))
        return 1e3 * (time.process_time() - start) / UPDATES

    run()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("| layers | form | ms outside a loop | ms inside a loop |\n|---|---|---|---|")
    for layers in (1, 2):
        runs = {
            (name, looped): program(form, layers, looped)
            for name, form in FORMS.items()
            for looped in (False, True)
        }
        times = {key: [] for key in runs}
        for _ in range(rounds):
            for key, run in runs.items():
                times[key].append(run())
        for name in FORMS:
            row = [f"{statistics.median(times[name, looped]):.0f}" for looped in (False, True)]
            print(f"| {layers} | {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
