"""The networks of what collects data: made on the device, and copied to the host to act with.

For the few observations of a step, NumPy is several times as fast as a jitted call, and waits for no other
thread where the cores are busy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float, Shaped

from rosmo.networks.base import Linear
from rosmo.networks.conv import ConvTorso, patches
from rosmo.networks.mlp import MLP

Network = MLP | ConvTorso
Layer = tuple[np.ndarray, np.ndarray]  # weight and bias


def new_network(
    seed: int,
    observation_shape: Sequence[int],
    outputs: int,
    *,
    channels: Sequence[int],
    hidden: Sequence[int],
) -> Network:
    """Returns a fresh network: an MLP, with 3×3 convolutions before it if there are channels."""
    key, sizes = jax.random.key(seed), (*hidden, outputs)
    if channels:
        return ConvTorso(key, observation_shape, channels, sizes)
    return MLP(key, (math.prod(observation_shape), *sizes))


@dataclass(frozen=True)
class HostNetwork:
    """A network on the host."""

    convs: tuple[Layer, ...]
    layers: tuple[Layer, ...]

    def __call__(self, observations: Shaped[np.ndarray, "batch ..."]) -> Float[np.ndarray, "batch outputs"]:
        x = observations.astype(np.float32)
        for weight, bias in self.convs:
            x = np.maximum(patches(x, np) @ weight + bias, 0)
        x = x.reshape(len(x), -1)
        for weight, bias in self.layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return x @ weight + bias

    def without_last(self) -> "HostNetwork":
        """Returns the network without its last output."""
        *layers, (weight, bias) = self.layers
        return HostNetwork(self.convs, (*layers, (weight[:, :-1], bias[:-1])))


def on_host(network: Network, observation_scale: float | tuple[float, ...] = 1.0) -> HostNetwork:
    """Copies a network to the host, for observations as the environment gives them.

    Args:
        network: the network.
        observation_scale: what it was given were observations times this.
    """
    convs = network.convs if isinstance(network, ConvTorso) else ()
    mlp = network.mlp if isinstance(network, ConvTorso) else network
    host = HostNetwork(tuple(_copied(conv.linear) for conv in convs), tuple(map(_copied, mlp.layers)))
    if not convs:
        weight, _ = host.layers[0]
        weight *= np.asarray(observation_scale, np.float32).reshape(-1, 1)
    return host


def _copied(layer: Linear) -> Layer:
    # True copies: an update takes over the memory of the state it is given, which a view would still show.
    return np.array(layer.weight), np.array(layer.bias)
