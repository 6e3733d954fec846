"""By what the checkpoints of a run may be selected, and what each criterion needs."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax

from rosmo.agents import Trained, acts
from rosmo.agents.base import Values
from rosmo.data import DataSet, FrameStore
from rosmo.evaluate.selection import ESTIMATORS
from rosmo.model import LatentModel
from rosmo.registry import hint

if TYPE_CHECKING:
    from rosmo.runs.training import Training

RETURN = "return"  # in the environment: a criterion that is no estimate
_KNOWN = (*ESTIMATORS, RETURN)


def criteria_of(select_by: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Returns what each checkpoint is scored by."""
    if select_by is None:
        return ()
    return (select_by,) if isinstance(select_by, str) else tuple(select_by)


def refuse_criteria(training: "Training") -> None:
    """Refuses criteria that there are not, or that other settings leave without what they need."""
    for name in training.criteria:
        if name not in _KNOWN:
            raise ValueError(
                f"checkpoints cannot be selected by {name!r}.{hint(name, _KNOWN)} There are: "
                f"{', '.join(_KNOWN)}"
            )
    if RETURN in training.criteria and training.environment is None:
        raise ValueError("select_by = 'return' needs an environment to play in: select by 'fqe'")
    if RETURN in training.criteria and training.checkpoint_every % training.eval_every:
        raise ValueError(
            "select_by = 'return' needs an evaluation at each checkpoint: checkpoint_every must be a "
            f"multiple of eval_every, got {training.checkpoint_every} and {training.eval_every}"
        )


def refuse_unselectable(training: "Training", agent: Trained, steps: DataSet) -> None:
    """Refuses to select among the checkpoints of what has no policy, or that cannot be judged by its data."""
    if not training.criteria:
        return
    if not acts(agent):
        raise ValueError(f"select_by scores policies, and {type(agent).__name__} has none: leave it out")
    if jax.process_count() > 1:
        raise ValueError("select_by needs all of a run in one process: use rosmo select after the training")
    for name in ("model", "td_error"):
        if name in training.criteria and not isinstance(agent, Values):
            raise ValueError(f"{type(agent).__name__} has no values of its own to select by: select by 'fqe'")
    if set(training.criteria) - {RETURN}:
        refuse_unjudgeable(training, steps)


def refuse_unjudgeable(training: "Training", steps: DataSet) -> None:
    """Refuses data, or networks, that no Q can be learned by."""
    if isinstance(steps, FrameStore):
        raise ValueError(
            "off-policy evaluation needs the steps of its data in memory, and these are a store of frames "
            "on disk: use a data set that fits there"
        )
    model = eqx.filter_eval_shape(training.build_model(), jax.random.key(0))
    if not isinstance(model, LatentModel):
        raise ValueError(
            "off-policy evaluation learns its values by the networks of a run's latent model, and this run "
            f"has a {type(model).__name__}: let rosmo select judge it, with a run first that has one"
        )
