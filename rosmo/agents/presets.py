"""The agents of the paper, each a composition of parts."""

import functools
from collections.abc import Callable

from rosmo import operators, regularizers
from rosmo.agents.base import registry
from rosmo.agents.latent import LatentAgent
from rosmo.model import LatentModel
from rosmo.types import Key

ModelBuilder = Callable[[Key], LatentModel]


@registry.register("rosmo")
def rosmo(model: ModelBuilder, *, behavior_weight: float = 0.2, **settings) -> LatentAgent:
    """ROSMO: one-step look-ahead with behaviour regularization."""
    regularized = ((regularizers.behavior, behavior_weight),)
    return LatentAgent(model, operators.one_step, regularized, **settings)


@registry.register("sampled_rosmo")
def sampled_rosmo(
    model: ModelBuilder, *, num_samples: int = 4, behavior_weight: float = 0.2, **settings
) -> LatentAgent:
    """ROSMO with the policy improvement estimated from sampled actions."""
    operator = functools.partial(operators.sampled_one_step, num_samples=num_samples)
    return LatentAgent(model, operator, ((regularizers.behavior, behavior_weight),), **settings)


@registry.register("one_step")
def one_step(model: ModelBuilder, **settings) -> LatentAgent:
    """OneStep: ROSMO without a regularizer."""
    return LatentAgent(model, operators.one_step, **settings)


@registry.register("behavior")
def behavior(model: ModelBuilder, *, behavior_weight: float = 1.0, **settings) -> LatentAgent:
    """Behavior: the policy learned by the behaviour regularizer alone."""
    regularized = ((regularizers.behavior, behavior_weight),)
    return LatentAgent(model, operators.prior, regularized, policy_weight=0.0, **settings)


@registry.register("mzu")
def mzu(
    model: ModelBuilder,
    *,
    num_simulations: int = 4,
    max_depth: int | None = None,
    dirichlet_fraction: float = 0.25,
    **settings,
) -> LatentAgent:
    """MuZero Unplugged: policy and value targets from Monte-Carlo tree search.

    Its targets have MuZero's noise at the root, its actions have not. Without the noise a search of few
    simulations follows its prior alone, and the policy locks onto one action within 2,000 updates on catch.
    """
    search = functools.partial(operators.mcts, num_simulations=num_simulations, max_depth=max_depth)
    noisy = functools.partial(search, dirichlet_fraction=dirichlet_fraction)
    return LatentAgent(model, noisy, bootstrap="operator", acting=search, **settings)


@registry.register("mzu_q")
def mzu_q(
    model: ModelBuilder,
    *,
    num_simulations: int = 4,
    max_depth: int | None = None,
    dirichlet_fraction: float = 0.25,
    tau: float = 0.1,
    **settings,
) -> LatentAgent:
    """MZU-Q: MuZero Unplugged with the policy update of MPO."""
    search = functools.partial(
        operators.mcts_q, num_simulations=num_simulations, max_depth=max_depth, tau=tau
    )
    noisy = functools.partial(search, dirichlet_fraction=dirichlet_fraction)
    return LatentAgent(model, noisy, bootstrap="operator", acting=search, **settings)
