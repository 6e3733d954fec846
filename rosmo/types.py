"""What every room of the library shares: its arrays, and checks of settings."""

import math
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mctx
from jax import Array
from jaxtyping import Bool, Float, Integer, PRNGKeyArray, PyTree, Shaped

Key = PRNGKeyArray
Keys = Shaped[Array, "..."]  # one or many
Params = PyTree
Metrics = dict[str, Array]
Number = float | int | Array  # known, or traced
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
    may go on beyond it (into the next episode, or into padding): nothing that begins before reads that far.
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


def window_keys(key: Keys, batch: Trajectory) -> Keys:
    """Returns a key for each window of a batch, `[B]`: those given, or as many drawn from the one given."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return jax.random.split(key, len(batch.action)) if key.ndim == (0 if typed else 1) else key


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array, or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def map_arrays(function: Callable, tree: PyTree) -> PyTree:
    """Applies `function` to the floating-point arrays of `tree` and leaves everything else as it is."""
    return jax.tree.map(lambda leaf: function(leaf) if eqx.is_inexact_array(leaf) else leaf, tree)


def refuse_counts(least: int = 1, **counts: Any) -> None:
    """Refuses settings that are no whole numbers of at least `least`, by their names."""
    for name, count in counts.items():
        if not isinstance(count, numbers.Integral) or isinstance(count, bool) or count < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {count!r}")


def refuse_numbers(
    least: float | int = 0, most: float | int = math.inf, *, above: bool = False, **values: Any
) -> None:
    """Refuses settings that are no finite numbers between `least` and `most`, by their names.

    Args:
        least: the smallest value that is allowed.
        most: the largest value that is allowed.
        above: whether `least` itself is refused too.
        **values: the settings.
    """
    bound = f"above {least:g}" if above else f"of at least {least:g}"
    bound += "" if most == math.inf else f" and at most {most:g}"
    for name, value in values.items():
        number = float(value) if _is_number(value) else math.nan
        if not (math.isfinite(number) and least <= number <= most) or (above and number == least):
            raise ValueError(f"{name} must be a finite number {bound}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
