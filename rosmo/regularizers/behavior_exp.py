"""Cloning with exponential weights, as in AWAC and the exponential form of CRR."""

import math

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from rosmo.regularizers.base import Positions, log_probability, registry
from rosmo.types import refuse_numbers


@registry.register("behavior_exp")
def behavior_exp(
    positions: Positions, *, beta: float = 1.0, max_weight: float = 20.0
) -> Float[Array, "*batch"]:
    """Clones the data set's actions by their advantage: −log π(a|s)·min(exp(adv/β), w).

    Args:
        positions: what the loss knows of each position.
        beta: β, the temperature of the advantage.
        max_weight: w, the largest weight of one action.
    """
    refuse_numbers(above=True, beta=beta, max_weight=max_weight)
    # Clipping the exponent gives the same weight without an overflow on the way.
    weight = jnp.exp(jnp.minimum(positions.advantage / beta, math.log(max_weight)))
    return -log_probability(positions) * weight
