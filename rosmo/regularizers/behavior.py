"""Cloning of the actions that the model finds better than average (paper, Eq. 11)."""

from jax import Array
from jaxtyping import Float

from rosmo.regularizers.base import Positions, log_probability, registry


@registry.register("behavior")
def behavior(positions: Positions) -> Float[Array, "*batch"]:
    """Clones the data set's actions of positive advantage: −log π(a|s)·1[adv > 0]."""
    return -log_probability(positions) * (positions.advantage > 0).astype(positions.advantage.dtype)
