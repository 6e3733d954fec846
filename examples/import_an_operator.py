"""A program that plans with mctx swaps its search for the one-step look-ahead: one line changes.

The model is a corridor: from each of five cells one can go left or right; the last cell on the right pays 1.
"""

import jax
import jax.numpy as jnp
import mctx
import numpy as np

from rosmo import operators

CELLS = 5


def recurrent_fn(params, rng_key, action, cell):
    """One step along the corridor, in mctx's language."""
    after = jnp.clip(cell + 2 * action - 1, 0, CELLS - 1)
    arrived = (after == CELLS - 1) & (cell != CELLS - 1)
    output = mctx.RecurrentFnOutput(
        reward=arrived.astype(jnp.float32),
        discount=jnp.where(arrived, 0.0, 0.9),
        prior_logits=jnp.zeros((len(cell), 2)),
        value=params["value"][after],
    )
    return output, after


cells = jnp.arange(CELLS - 1)
params = {"value": jnp.array([0.6, 0.7, 0.8, 0.9, 0.0])}
root = mctx.RootFnOutput(
    prior_logits=jnp.zeros((CELLS - 1, 2)), value=params["value"][cells], embedding=cells
)
key = jax.random.key(0)

settings = {
    "num_simulations": 50,
    "dirichlet_fraction": 0.0,
}  # of the search: a look-ahead has no use of them
searched = mctx.muzero_policy(params, key, root, recurrent_fn, **settings)
improved = operators.one_step(params, key, root, recurrent_fn, **settings)

print("P(right) in each cell")
print("  mctx, 50 model calls:  ", np.round(searched.action_weights, 2)[:, 1])
print("  one_step, 1 model call:", np.round(improved.action_weights, 2)[:, 1])
assert (improved.action_weights[:, 1] > 0.5).all()
