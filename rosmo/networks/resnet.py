"""Residual networks for stacked image observations (paper, Atari)."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Integer, Shaped

from rosmo.networks.base import (
    AbstractDynamics,
    AbstractPrediction,
    AbstractRepresentation,
    Head,
    LayerBuilder,
    Networks,
    lecun_normal,
    registry,
)
from rosmo.types import Key, refuse_counts

Image = Float[Array, "height width channels"]
Resized = Float[Array, "new_height new_width new_channels"]


class Conv3x3(eqx.Module):
    """A 3×3 convolution, channels last, that keeps the size or halves it (rounding up) with stride 2."""

    weight: Float[Array, "3 3 in_channels out_channels"]
    bias: Float[Array, "out_channels"]
    stride: int = eqx.field(static=True)

    def __init__(self, key: Key, in_channels: int, out_channels: int, stride: int = 1):
        self.weight = lecun_normal(key, (3, 3, in_channels, out_channels), 9 * in_channels)
        self.bias = jnp.zeros(out_channels, jnp.float32)
        self.stride = stride

    def __call__(self, x: Image) -> Resized:
        return convolve(x, self.weight, self.stride) + self.bias[None, None]


def convolve(x: Image, weight: Float[Array, "3 3 in_channels out_channels"], stride: int = 1) -> Resized:
    """Convolves one image."""
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x[None], weight, (stride, stride), "SAME", dimension_numbers=layout)[
        0
    ]


def average_pool(x: Image) -> Resized:
    """3×3 average pooling with stride 2; at the border only the pixels that exist are averaged."""

    def window_sum(image: Array) -> Array:
        return jax.lax.reduce_window(image, np.zeros((), x.dtype), jax.lax.add, (3, 3, 1), (2, 2, 1), "SAME")

    return window_sum(x) / window_sum(jnp.ones((*x.shape[:2], 1), x.dtype))


class LayerNorm(eqx.Module):
    """Normalises over pixels and channels, in float32, with a scale and an offset per channel."""

    scale: Float[Array, "channels"]
    offset: Float[Array, "channels"]

    def __init__(self, channels: int):
        self.scale, self.offset = jnp.ones(channels, jnp.float32), jnp.zeros(channels, jnp.float32)

    def __call__(self, x: Image) -> Image:
        y = jax.nn.standardize(x.astype(jnp.float32), axis=(0, 1, 2)).astype(x.dtype)
        return y * self.scale[None, None] + self.offset[None, None]


class ResidualBlock(eqx.Module):
    """Pre-activation block: twice (layer normalisation, rectifier, convolution), added to the input."""

    norms: tuple[LayerNorm, LayerNorm]
    convs: tuple[Conv3x3, Conv3x3]

    def __init__(self, key: Key, channels: int):
        keys = jax.random.split(key)
        self.norms = (LayerNorm(channels), LayerNorm(channels))
        self.convs = (Conv3x3(keys[0], channels, channels), Conv3x3(keys[1], channels, channels))

    def __call__(self, x: Image) -> Image:
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = conv(jax.nn.relu(norm(y)))
        return x + y


class Tower(eqx.Module):
    """Residual blocks, one after the other."""

    blocks: tuple[ResidualBlock, ...]

    def __init__(self, key: Key, count: int, channels: int):
        self.blocks = tuple(ResidualBlock(k, channels) for k in jax.random.split(key, count))

    def __call__(self, x: Image) -> Image:
        for block in self.blocks:
            x = block(x)
        return x


class ResNetRepresentation(AbstractRepresentation):
    """Downsamples by 16 (84×84 → 6×6) and ends in a tower of residual blocks."""

    convs: tuple[Conv3x3, Conv3x3]
    towers: tuple[Tower, Tower, Tower, Tower]

    def __init__(self, key: Key, in_channels: int, channels: int, num_blocks: int):
        keys = jax.random.split(key, 6)
        narrow = channels // 2
        self.convs = (Conv3x3(keys[0], in_channels, narrow, 2), Conv3x3(keys[1], narrow, channels, 2))
        counts = ((1, narrow), (2, channels), (1, channels), (num_blocks, channels))
        first, second, third, last = (Tower(k, *c) for k, c in zip(keys[2:], counts, strict=True))
        self.towers = (first, second, third, last)

    def __call__(self, observation: Shaped[Array, "height width frames"]) -> Resized:
        """Encodes one image of bytes, scaled to [0, 1] here."""
        x = observation.astype(self.convs[0].weight.dtype) / 255
        x = self.towers[0](self.convs[0](x))
        x = self.towers[1](self.convs[1](x))
        x = self.towers[2](average_pool(x))
        return self.towers[3](average_pool(x))


class ResNetDynamics(AbstractDynamics):
    """A convolution of the state and the one-hot action planes, residual blocks, and a reward head."""

    from_state: Conv3x3
    from_action: Float[Array, "3 3 actions channels"]
    tower: Tower
    reward: Head

    def __init__(
        self,
        key: Key,
        state_shape: tuple[int, int, int],
        num_actions: int,
        num_blocks: int,
        head_size: int,
        reward_bins: int,
        ensemble: LayerBuilder | None = None,
    ):
        keys = jax.random.split(key, 3)
        channels = state_shape[-1]
        joint = Conv3x3(keys[0], channels + num_actions, channels)
        self.from_state = eqx.tree_at(lambda m: m.weight, joint, joint.weight[:, :, :channels])
        self.from_action = joint.weight[:, :, channels:]
        self.tower = Tower(keys[1], num_blocks, channels)
        self.reward = Head(keys[2], math.prod(state_shape), head_size, reward_bins, ensemble)

    def __call__(
        self, state: Image, action: Integer[Array, ""]
    ) -> tuple[Image, Float[Array, "*members reward_bins"]]:
        """Takes one step; the convolution of the state does not depend on the action."""
        one_hot = jax.nn.one_hot(action, self.from_action.shape[2], dtype=state.dtype)
        planes = jnp.broadcast_to(one_hot[None, None], (*state.shape[:2], one_hot.size))
        next_state = self.tower(self.from_state(state) + convolve(planes, self.from_action))
        return next_state, self.reward(next_state.reshape(-1))


class ResNetPrediction(AbstractPrediction):
    """Residual blocks with a head of one hidden layer each for policy and value."""

    tower: Tower
    policy: Head
    value: Head

    def __init__(
        self,
        key: Key,
        state_shape: tuple[int, int, int],
        num_actions: int,
        num_blocks: int,
        head_size: int,
        value_bins: int,
        ensemble: LayerBuilder | None = None,
    ):
        keys = jax.random.split(key, 3)
        self.tower = Tower(keys[0], num_blocks, state_shape[-1])
        self.policy = Head(keys[1], math.prod(state_shape), head_size, num_actions)
        self.value = Head(keys[2], math.prod(state_shape), head_size, value_bins, ensemble)

    def __call__(self, state: Image) -> tuple[Float[Array, "actions"], Float[Array, "*members value_bins"]]:
        """Predicts policy and value logits."""
        features = self.tower(state).reshape(-1)
        return self.policy(features), self.value(features)


@registry.register("resnet")
def resnet(
    key: Key,
    *,
    observation_shape: Sequence[int] = (84, 84, 4),
    num_actions: int,
    num_value_bins: int = 601,
    num_reward_bins: int = 601,
    channels: int = 64,
    representation_blocks: int = 6,
    dynamics_blocks: int = 2,
    prediction_blocks: int = 2,
    head_size: int = 128,
    ensemble: LayerBuilder | None = None,
) -> Networks:
    """Residual networks for images of bytes, `[height, width, frames]`.

    Args:
        key: initialises the parameters.
        observation_shape: height, width and number of stacked frames.
        num_actions: number of discrete actions.
        num_value_bins: bins of the value codec.
        num_reward_bins: bins of the reward codec.
        channels: channels of the latent state; the first, full-resolution stage has half as many.
        representation_blocks: residual blocks of h after the downsampling.
        dynamics_blocks: residual blocks of g.
        prediction_blocks: residual blocks of f.
        head_size: hidden units of the reward, value and policy heads.
        ensemble: builds the layers of logits of reward and value for several members; None for one.
    """
    refuse_counts(2, channels=channels)
    refuse_counts(head_size=head_size)
    blocks = {"representation_blocks": representation_blocks, "dynamics_blocks": dynamics_blocks}
    refuse_counts(0, prediction_blocks=prediction_blocks, **blocks)
    height, width, frames = observation_shape
    state_shape = (-(-height // 16), -(-width // 16), channels)
    keys = jax.random.split(key, 3)
    return Networks(
        ResNetRepresentation(keys[0], frames, channels, representation_blocks),
        ResNetDynamics(
            keys[1], state_shape, num_actions, dynamics_blocks, head_size, num_reward_bins, ensemble
        ),
        ResNetPrediction(
            keys[2], state_shape, num_actions, prediction_blocks, head_size, num_value_bins, ensemble
        ),
    )
