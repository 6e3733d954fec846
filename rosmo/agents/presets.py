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
    return _with_behavior(model, operators.one_step, behavior_weight, settings)


@registry.register("sampled_rosmo")
def sampled_rosmo(
    model: ModelBuilder, *, num_samples: int = 4, behavior_weight: float = 0.2, **settings
) -> LatentAgent:
    """ROSMO with the policy improvement estimated from sampled actions."""
    operator = functools.partial(operators.sampled_one_step, num_samples=num_samples)
    return _with_behavior(model, operator, behavior_weight, settings)


@registry.register("one_step")
def one_step(model: ModelBuilder, **settings) -> LatentAgent:
    """OneStep: ROSMO without a regularizer."""
    return LatentAgent(model, operators.one_step, **settings)


@registry.register("behavior")
def behavior(model: ModelBuilder, *, behavior_weight: float = 1.0, **settings) -> LatentAgent:
    """Behavior: the policy learned by the behaviour regularizer alone."""
    return _with_behavior(model, operators.prior, behavior_weight, {"policy_weight": 0.0, **settings})


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


@registry.register("gumbel")
def gumbel(
    model: ModelBuilder, *, num_simulations: int = 4, max_depth: int | None = None, **settings
) -> LatentAgent:
    """Gumbel MuZero: policy and value targets from a search with sequential halving, which needs no noise."""
    search = functools.partial(operators.gumbel, num_simulations=num_simulations, max_depth=max_depth)
    return LatentAgent(model, search, bootstrap="operator", **settings)


@registry.register("regularized")
def regularized(
    model: ModelBuilder, *, num_simulations: int = 20, behavior_weight: float = 0.2, **settings
) -> LatentAgent:
    """ROSMO with the regularized policy of Grill et al. in place of π·exp(adv)/Z."""
    operator = functools.partial(operators.regularized, num_simulations=num_simulations)
    return _with_behavior(model, operator, behavior_weight, settings)


@registry.register("cmpo")
def cmpo(
    model: ModelBuilder, *, num_samples: int | None = None, behavior_weight: float = 0.2, **settings
) -> LatentAgent:
    """ROSMO with Muesli's clipped improvement, of all actions or of some that are sampled."""
    operator = functools.partial(operators.cmpo, num_samples=num_samples)
    return _with_behavior(model, operator, behavior_weight, settings)


@registry.register("mpo")
def mpo(
    model: ModelBuilder, *, epsilon: float = 0.1, behavior_weight: float = 0.2, **settings
) -> LatentAgent:
    """ROSMO with the temperature of MPO's dual."""
    operator = functools.partial(operators.mpo, epsilon=epsilon)
    return _with_behavior(model, operator, behavior_weight, settings)


@registry.register("smc")
def smc(
    model: ModelBuilder,
    *,
    num_particles: int = 16,
    depth: int = 4,
    behavior_weight: float = 0.2,
    **settings,
) -> LatentAgent:
    """ROSMO with a search by particles in place of the look-ahead."""
    operator = functools.partial(operators.smc, num_particles=num_particles, depth=depth)
    return _with_behavior(model, operator, behavior_weight, settings)


def _with_behavior(model: ModelBuilder, operator: operators.Operator, weight: float, settings) -> LatentAgent:
    return LatentAgent(model, operator, ((regularizers.behavior, weight),), **settings)
