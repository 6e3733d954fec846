"""What the target network and an improvement operator say of the steps of a window."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer, PyTree

from rosmo.model import LatentModel, recurrent_fn
from rosmo.operators import Improvement, Operator, look_ahead
from rosmo.types import Key, Root, Trajectory


class StepTargets(NamedTuple):
    """What the target network says of the steps of a window, each by its own observation and action alone."""

    values: Float[Array, "*batch time"]  # to bootstrap from
    policy: Float[Array, "*batch positions actions"]
    prior_logits: Float[Array, "*batch positions actions"]
    prior_value: Float[Array, "*batch positions"]
    advantage: Float[Array, "*batch positions"]


def judge_steps(
    target: LatentModel,
    steps: Trajectory,
    key: Key,
    *,
    operator: Operator,
    positions: int,
    improved_values: bool,
    with_advantage: bool,
) -> StepTargets:
    """Judges steps `[T]`, each once, however many windows read what is said of it.

    Args:
        target: the target network.
        steps: the steps.
        key: of the operator, and of the look-ahead for the actions it left out.
        operator: improves the policies.
        positions: how many of the steps, from the first, need more than a value to bootstrap from.
        improved_values: whether to bootstrap from the operator's values, and not from the network's.
        with_advantage: whether anything reads the advantages; they are 0 where nothing does.
    """
    # Folded, not split: an operator that draws nothing then costs no random numbers. The key's first bits
    # are the imagined actions'.
    key_operator, key_action = (jax.random.fold_in(key, 2**31 + salt) for salt in (0, 1))
    searched = len(steps.action) if improved_values else positions
    target, root = target.imagine_from(steps.observation)
    # Learned is what the members expect; how far they are apart is for the operator alone.
    values = root.value if target.pessimism == 0 else target.neutral.root(root.embedding).value
    root, action, invalid = _first((root, steps.action, steps.invalid_actions), searched)
    improved = operator(target, key_operator, root, recurrent_fn, invalid_actions=invalid)
    advantage = jnp.zeros_like(root.value)
    if with_advantage:
        advantage = _advantage(target, key_action, root, improved, action)
    targets = StepTargets(
        values=improved.value if improved_values else values,
        policy=improved.action_weights[:positions],
        prior_logits=root.prior_logits[:positions],
        prior_value=root.value[:positions],
        advantage=advantage[:positions],
    )
    return jax.lax.stop_gradient(targets)


def _advantage(
    target: LatentModel, key: Key, root: Root, improved: Improvement, action: Integer[Array, "searched"]
) -> Float[Array, "searched"]:
    """The advantage of the data set's actions: the operator's, or by a look-ahead where it has none."""
    qvalue = jnp.take_along_axis(improved.qvalues, action[:, None], axis=1)[:, 0]
    if not improved.complete:
        own = look_ahead(target, key, root.embedding, recurrent_fn, action[:, None])[:, 0]
        qvalue = jnp.where(jnp.isnan(qvalue), own, qvalue)
    return qvalue - root.value


def _first(tree: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda x: x[:count], tree)
