"""Convolutional networks for small images such as MinAtar's 10×10, with a vector as the latent state."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Shaped

from rosmo.networks.base import AbstractRepresentation, LayerBuilder, Linear, Networks, registry
from rosmo.networks.mlp import MLP, MLPDynamics, MLPPrediction
from rosmo.types import Key


class PatchConv(eqx.Module):
    """A 3×3 convolution that keeps the size, as one matrix product over the patches of an image.

    Inside a loop on a CPU, as in `update_many`, XLA's own convolutions are slow: an update of one layer on
    10×10 images takes 4 times as long with `lax.conv_general_dilated`, and one of two layers 11 times.
    """

    linear: Linear

    def __init__(self, key: Key, in_channels: int, out_channels: int):
        self.linear = Linear(key, 9 * in_channels, out_channels)

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "height width out"]:
        return jax.vmap(jax.vmap(self.linear))(patches(x))


def patches(
    image: Float[Any, "*batch height width planes"], xp: ModuleType = jnp
) -> Float[Any, "*batch height width cut"]:
    """Lays the 3×3 neighbours of every pixel side by side, with zeros around the image, by JAX or NumPy."""
    *batch, height, width, _ = image.shape
    padded = xp.pad(image, (*((0, 0) for _ in batch), (1, 1), (1, 1), (0, 0)))
    return xp.concatenate(
        [padded[..., i : i + height, j : j + width, :] for i in range(3) for j in range(3)], axis=-1
    )


class ConvTorso(eqx.Module):
    """Convolutions with rectifiers after them, then an MLP on all pixels."""

    convs: tuple[PatchConv, ...]
    mlp: MLP

    def __init__(self, key: Key, image_shape: Sequence[int], channels: Sequence[int], sizes: Sequence[int]):
        if len(image_shape) != 3:
            raise ValueError(
                "convolutions take images [height, width, planes], got observations of the shape "
                f"{list(image_shape)}: use fully connected layers for those"
            )
        height, width, planes = image_shape
        *keys, key_mlp = jax.random.split(key, len(channels) + 1)
        pairs = zip(keys, (planes, *channels[:-1]), channels, strict=True)
        self.convs = tuple(PatchConv(*args) for args in pairs)
        self.mlp = MLP(key_mlp, [height * width * (*image_shape, *channels)[-1], *sizes])

    def __call__(self, image: Shaped[Array, "height width planes"]) -> Float[Array, "features"]:
        x = image.astype(self.mlp.layers[0].weight.dtype)
        for conv in self.convs:
            x = jax.nn.relu(conv(x))
        return self.mlp(x.reshape(-1))


class ConvRepresentation(AbstractRepresentation):
    """Encodes planes of zeros and ones as they are."""

    torso: ConvTorso

    def __call__(self, observation: Shaped[Array, "height width planes"]) -> Float[Array, "state"]:
        """Encodes one image."""
        return self.torso(observation)


@registry.register("conv")
def conv(
    key: Key,
    *,
    observation_shape: Sequence[int],
    num_actions: int,
    num_value_bins: int = 20,
    num_reward_bins: int = 20,
    channels: Sequence[int] = (16,),
    representation: Sequence[int] = (128,),
    dynamics: Sequence[int] = (256,),
    prediction: Sequence[int] = (64,),
    ensemble: LayerBuilder | None = None,
) -> Networks:
    """A convolutional representation with the dynamics and the prediction of `mlp` behind it.

    Pixels are taken as they are: they are to be zeros and ones, as MinAtar's bytes are, or scaled already.

    Args:
        key: initialises the parameters.
        observation_shape: height, width and number of planes of an image.
        num_actions: number of discrete actions.
        num_value_bins: bins of the value codec.
        num_reward_bins: bins of the reward codec.
        channels: of each 3×3 convolution of h.
        representation: sizes of the layers of h after them; the last is the size of the latent state.
        dynamics: hidden sizes of g, between two latent states.
        prediction: hidden sizes of f; the reward head takes the last.
        ensemble: builds the layers of logits of reward and value for several members; None for one.
    """
    keys = jax.random.split(key, 3)
    state_size = representation[-1]
    return Networks(
        ConvRepresentation(ConvTorso(keys[0], observation_shape, channels, representation)),
        MLPDynamics(keys[1], state_size, num_actions, dynamics, prediction[-1], num_reward_bins, ensemble),
        MLPPrediction(keys[2], state_size, prediction, num_actions, num_value_bins, ensemble),
    )
