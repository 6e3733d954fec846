"""What encodes observations for a world model, and decodes them: vectors, small images, and screens."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Shaped

from rosmo.networks.base import Linear
from rosmo.networks.conv import ConvTorso, PatchConv
from rosmo.networks.mlp import MLP
from rosmo.networks.resnet import Conv3x3
from rosmo.types import Key

KINDS = ("vector", "planes", "screen")


class VectorEncoder(eqx.Module):
    """An MLP on the flattened observation."""

    mlp: MLP

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, "embedding"]:
        return self.mlp(observation.reshape(-1).astype(jnp.float32))


class VectorDecoder(eqx.Module):
    """An MLP that gives an observation its shape."""

    mlp: MLP
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, features: Float[Array, "features"]) -> Float[Array, "..."]:
        return self.mlp(features).reshape(self.shape)


class PlanesDecoder(eqx.Module):
    """An MLP to feature planes, and a 3×3 convolution of them."""

    mlp: MLP
    conv: PatchConv
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, features: Float[Array, "features"]) -> Float[Array, "height width planes"]:
        height, width, _ = self.shape
        return self.conv(jax.nn.relu(self.mlp(features)).reshape(height, width, -1))


class ScreenEncoder(eqx.Module):
    """Convolutions that halve a screen each, and a layer on all pixels that are left."""

    convs: tuple[Conv3x3, ...]
    linear: Linear

    def __call__(self, observation: Shaped[Array, "height width planes"]) -> Float[Array, "embedding"]:
        x = observation.astype(jnp.float32)
        for conv in self.convs:
            x = jax.nn.relu(conv(x))
        return self.linear(x.reshape(-1))


class ScreenDecoder(eqx.Module):
    """The way back: pixels are doubled and convolved, and cut to the size that the encoder had halved."""

    linear: Linear
    convs: tuple[Conv3x3, ...]
    sizes: tuple[tuple[int, int], ...] = eqx.field(static=True)  # the first is the smallest

    def __call__(self, features: Float[Array, "features"]) -> Float[Array, "height width planes"]:
        x = self.linear(features).reshape(*self.sizes[0], -1)
        for conv, (height, width) in zip(self.convs, self.sizes[1:], strict=True):
            doubled = jnp.repeat(jnp.repeat(jax.nn.relu(x), 2, axis=0), 2, axis=1)
            x = conv(doubled[:height, :width])
        return x


def make_coders(
    key: Key,
    kind: str,
    shape: Sequence[int],
    features: int,
    *,
    channels: Sequence[int],
    hidden: Sequence[int],
    embedding: int,
) -> tuple[eqx.Module, eqx.Module]:
    """Returns an encoder of observations of a shape, and a decoder to them.

    Args:
        key: initialises the parameters.
        kind: "vector" for observations of any shape, seen as one vector; "planes" for images [H, W, C] of a
            size that need not be halved; "screen" for larger ones.
        shape: of an observation.
        features: numbers that the decoder is given.
        channels: of the convolutions; each halves a screen.
        hidden: layers of the encoder on what comes out of them, and of the decoder before its own.
        embedding: numbers that the encoder gives.
    """
    if kind not in KINDS:
        raise ValueError(f"coder must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    encode, decode, last = jax.random.split(key, 3)
    shape = tuple(shape)
    if kind == "vector":
        size = math.prod(shape)
        encoder = VectorEncoder(MLP(encode, [size, *hidden, embedding]))
        return encoder, VectorDecoder(MLP(decode, [features, *reversed(hidden), size]), shape)
    if len(shape) != 3:
        raise ValueError(
            f"coder {kind!r} takes images [height, width, planes], got observations of the shape "
            f"{list(shape)}: use 'vector' for those"
        )
    if not channels:
        raise ValueError(f"coder {kind!r} needs a convolution at least, as in channels = (16,)")
    if kind == "planes":
        height, width, planes = shape
        inner = MLP(decode, [features, *reversed(hidden), height * width * channels[0]])
        encoder = ConvTorso(encode, shape, channels, [*hidden, embedding])
        return encoder, PlanesDecoder(inner, PatchConv(last, channels[0], planes), shape)
    return _screen_coders(encode, decode, shape, features, channels, embedding)


def _screen_coders(
    key_encoder: Key,
    key_decoder: Key,
    shape: tuple[int, ...],
    features: int,
    channels: Sequence[int],
    embedding: int,
) -> tuple[eqx.Module, eqx.Module]:
    sizes = [(shape[0], shape[1])]
    for _ in channels:
        sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
    planes = [shape[2], *channels]
    smallest = math.prod(sizes[-1]) * channels[-1]
    *keys, last = jax.random.split(key_encoder, len(channels) + 1)
    down = tuple(Conv3x3(k, a, b, 2) for k, a, b in zip(keys, planes[:-1], planes[1:], strict=True))
    encoder = ScreenEncoder(down, Linear(last, smallest, embedding))
    *keys, first = jax.random.split(key_decoder, len(channels) + 1)
    planes.reverse()
    up = tuple(Conv3x3(k, a, b) for k, a, b in zip(keys, planes[:-1], planes[1:], strict=True))
    return encoder, ScreenDecoder(Linear(first, features, smallest), up, tuple(reversed(sizes)))
