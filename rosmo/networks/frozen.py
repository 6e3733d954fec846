"""Arrays inside of parameters that no training changes: a world that an agent acts in, a prior of a head."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree

_BITS = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


class Frozen(eqx.Module):
    """Arrays as the bits that they consist of.

    What is trained are the floating-point arrays of parameters. As bits others are kept, copied, checkpointed
    and laid out with them, and have no gradient, no moments in an optimizer, and no decay.
    """

    bits: PyTree
    kinds: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, tree: PyTree):
        leaves = jax.tree.leaves(tree)
        self.kinds = tuple(str(x.dtype) if eqx.is_inexact_array(x) else "" for x in leaves)
        self.bits = jax.tree.map(_as_bits, tree)

    def thaw(self) -> Any:
        """Returns the tree as it was."""
        leaves, tree = jax.tree.flatten(self.bits)
        found = [
            jax.lax.bitcast_convert_type(x, jnp.dtype(kind)) if kind else x
            for x, kind in zip(leaves, self.kinds, strict=True)
        ]
        return tree.unflatten(found)


def _as_bits(x: Any) -> Array | Any:
    return jax.lax.bitcast_convert_type(x, _BITS[x.dtype.itemsize]) if eqx.is_inexact_array(x) else x
