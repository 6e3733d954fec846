"""What every room of the library shares: its arrays, and a check of counts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import mctx
from jax import Array
from jaxtyping import Bool, Float, Integer, PRNGKeyArray, PyTree, Shaped

Key = PRNGKeyArray
Keys = Shaped[Array, "..."]  # one or many
Params = PyTree
Metrics = dict[str, Array]
LegalityMask = Shaped[Array, "batch actions"]

# mctx's language. Its dataclasses are made at run time, where no type checker sees their fields.
if TYPE_CHECKING:
    Root = Any
    RecurrentFnOutput = Any
else:
    Root = mctx.RootFnOutput  # prior_logits [B, A], value [B], embedding [B, ...]
    RecurrentFnOutput = mctx.RecurrentFnOutput  # reward [B], discount [B], prior_logits [B, A], value [B]
RecurrentFn = Callable[
    [Any, Any, Any, Any], tuple[RecurrentFnOutput, Any]
]  # params, rng_key, action, embedding


class Trajectory(eqx.Module):
    """Steps of experience in the RLDS convention, with any leading axes (usually `[B, T]`).

    Step t holds `observation_t`, the `action_t` taken there, and the `reward_t` and `discount_t` that
    followed it. The step with `is_last` closes the episode: its observation is real, its action, reward and
    discount are not. It is a termination when `is_terminal` is set too, and a truncation otherwise. A window
    may go on beyond it (into the next episode, or into padding): no part of this library reads that far.
    `discount_t` is the environment's, 1 or 0; the model's γ multiplies it.
    """

    observation: Shaped[Any, "..."]
    action: Integer[Any, "*batch"]
    reward: Float[Any, "*batch"]
    discount: Float[Any, "*batch"]
    is_first: Bool[Any, "*batch"]
    is_last: Bool[Any, "*batch"]
    is_terminal: Bool[Any, "*batch"]
    invalid_actions: Bool[Any, "*batch actions"] | None = None


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array, or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def map_arrays(function: Callable, tree: PyTree) -> PyTree:
    """Applies `function` to the floating-point arrays of `tree` and leaves everything else as it is."""
    return jax.tree.map(lambda leaf: function(leaf) if eqx.is_inexact_array(leaf) else leaf, tree)


def refuse_counts(least: int = 1, **counts: Any) -> None:
    """Refuses settings that are no whole numbers of at least `least`, by their names."""
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {count!r}")
