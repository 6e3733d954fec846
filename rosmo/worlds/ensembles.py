"""How far the members of an ensemble are apart, of the same input."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def disagreement(members: Float[Array, "*batch members features"]) -> Float[Array, "*batch"]:
    """Returns disc(s, a) = max over pairs i, j of ‖f_i(s, a) − f_j(s, a)‖ (MOReL), 0 of a single member.

    It says nothing of gradients: the distance of a member from itself has none.
    """
    members = jax.lax.stop_gradient(members)
    apart = members[..., :, None, :] - members[..., None, :, :]
    return jnp.max(jnp.linalg.norm(apart, axis=-1), axis=(-2, -1))
