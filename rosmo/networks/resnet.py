"""Residual networks for stacked image observations (paper, Atari)."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer, Shaped

from rosmo.networks.base import (
    AbstractDynamics,
    AbstractPrediction,
    AbstractRepresentation,
    Head,
    Networks,
    lecun_normal,
    registry,
)
from rosmo.types import Key


def conv3x3(key: Key, in_channels: int, out_channels: int, stride: int = 1, *, use_bias: bool = True) -> eqx.nn.Conv2d:
    """A 3×3 convolution that keeps the size, or halves it (rounding up) with stride 2."""
    layer = eqx.nn.Conv2d(in_channels, out_channels, 3, stride, padding="SAME", use_bias=use_bias, key=key)
    return lecun_normal(layer, key)


def average_pool(x: Float[Array, "channels height width"]) -> Float[Array, "channels half_height half_width"]:
    """3×3 average pooling with stride 2; at the border only the pixels that exist are averaged."""

    def window_sum(image):
        return jax.lax.reduce_window(image, jnp.zeros((), x.dtype), jax.lax.add, (1, 3, 3), (1, 2, 2), "SAME")

    return window_sum(x) / window_sum(jnp.ones((1, *x.shape[1:]), x.dtype))


class ResidualBlock(eqx.Module):
    """Pre-activation block: twice (layer normalisation, rectifier, 3×3 convolution), added to the input."""

    norms: tuple[eqx.nn.GroupNorm, eqx.nn.GroupNorm]
    convs: tuple[eqx.nn.Conv2d, eqx.nn.Conv2d]

    def __init__(self, key: Key, channels: int):
        keys = jax.random.split(key)
        # One group is layer normalisation over channels and pixels with a scale and an offset per channel.
        self.norms = (eqx.nn.GroupNorm(1, channels), eqx.nn.GroupNorm(1, channels))
        self.convs = (conv3x3(keys[0], channels, channels), conv3x3(keys[1], channels, channels))

    def __call__(self, x: Float[Array, "channels height width"]) -> Float[Array, "channels height width"]:
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = conv(jax.nn.relu(norm(y)))
        return x + y


class Tower(eqx.Module):
    """Residual blocks, one after the other."""

    blocks: tuple[ResidualBlock, ...]

    def __init__(self, key: Key, count: int, channels: int):
        self.blocks = tuple(ResidualBlock(k, channels) for k in jax.random.split(key, count))

    def __call__(self, x: Float[Array, "channels height width"]) -> Float[Array, "channels height width"]:
        for block in self.blocks:
            x = block(x)
        return x


class ResNetRepresentation(AbstractRepresentation):
    """Downsamples by 16 (84×84 → 6×6) and ends in a tower of residual blocks."""

    convs: tuple[eqx.nn.Conv2d, eqx.nn.Conv2d]
    towers: tuple[Tower, Tower, Tower, Tower]

    def __init__(self, key: Key, in_channels: int, channels: int, num_blocks: int):
        keys = jax.random.split(key, 6)
        narrow = channels // 2
        self.convs = (conv3x3(keys[0], in_channels, narrow, 2), conv3x3(keys[1], narrow, channels, 2))
        counts = ((1, narrow), (2, channels), (1, channels), (num_blocks, channels))
        first, second, third, last = (Tower(k, *c) for k, c in zip(keys[2:], counts, strict=True))
        self.towers = (first, second, third, last)

    def __call__(self, observation: Shaped[Array, "height width frames"]) -> Float[Array, "channels rows columns"]:
        """Encodes one image of bytes, scaled to [0, 1] here."""
        x = jnp.moveaxis(observation, -1, 0).astype(self.convs[0].weight.dtype) / 255
        x = self.towers[0](self.convs[0](x))
        x = self.towers[1](self.convs[1](x))
        x = self.towers[2](average_pool(x))
        return self.towers[3](average_pool(x))


class ResNetDynamics(AbstractDynamics):
    """A convolution of the state and the one-hot action planes, residual blocks, and a reward head."""

    from_state: eqx.nn.Conv2d
    from_action: eqx.nn.Conv2d
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
    ):
        keys = jax.random.split(key, 3)
        channels = state_shape[0]
        joint = conv3x3(keys[0], channels + num_actions, channels)
        self.from_state = eqx.tree_at(
            lambda m: m.weight, conv3x3(keys[0], channels, channels), joint.weight[:, :channels]
        )
        self.from_action = eqx.tree_at(
            lambda m: m.weight,
            conv3x3(keys[0], num_actions, channels, use_bias=False),
            joint.weight[:, channels:],
        )
        self.tower = Tower(keys[1], num_blocks, channels)
        self.reward = Head(keys[2], math.prod(state_shape), head_size, reward_bins)

    def __call__(
        self, state: Float[Array, "channels rows columns"], action: Integer[Array, ""]
    ) -> tuple[Float[Array, "channels rows columns"], Float[Array, "reward_bins"]]:
        """Takes one step; the convolution of the state does not depend on the action."""
        one_hot = jax.nn.one_hot(action, self.from_action.in_channels, dtype=state.dtype)
        planes = jnp.broadcast_to(one_hot[:, None, None], (one_hot.size, *state.shape[1:]))
        next_state = self.tower(self.from_state(state) + self.from_action(planes))
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
    ):
        keys = jax.random.split(key, 3)
        self.tower = Tower(keys[0], num_blocks, state_shape[0])
        self.policy = Head(keys[1], math.prod(state_shape), head_size, num_actions)
        self.value = Head(keys[2], math.prod(state_shape), head_size, value_bins)

    def __call__(
        self, state: Float[Array, "channels rows columns"]
    ) -> tuple[Float[Array, "actions"], Float[Array, "value_bins"]]:
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
    """
    height, width, frames = observation_shape
    state_shape = (channels, -(-height // 16), -(-width // 16))
    keys = jax.random.split(key, 3)
    return Networks(
        ResNetRepresentation(keys[0], frames, channels, representation_blocks),
        ResNetDynamics(keys[1], state_shape, num_actions, dynamics_blocks, head_size, num_reward_bins),
        ResNetPrediction(keys[2], state_shape, num_actions, prediction_blocks, head_size, num_value_bins),
    )
