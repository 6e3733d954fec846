"""What an environment is, how one is made by name, and the scores that returns are measured against."""

import re
from collections.abc import Callable
from typing import NamedTuple

import dm_env
import numpy as np
from jaxtyping import Float, Shaped

from rosmo.envs.gymnasium import PREFIX, builder
from rosmo.envs.noise import ActionNoise
from rosmo.registry import Registry, UnknownPartError

registry = Registry("environment", requires=("seed",))


class Reference(NamedTuple):
    """The mean returns of a random policy and of an online agent."""

    random: float
    online: float


references: dict[str, Reference] = {}


def get(name: str) -> Callable[..., dm_env.Environment]:
    """Returns what builds an environment from a seed, by its registered name or by gymnasium's `gym/ID`."""
    if name.startswith(PREFIX):
        return builder(name)
    try:
        return registry.get(name)
    except UnknownPartError as error:
        identity = re.sub(r"^gym(nasium)?/", "", name, flags=re.IGNORECASE)
        known = f"this one {PREFIX}{identity}" if re.search(r"-v\d+$", name) else f"as in {PREFIX}CartPole-v1"
        raise UnknownPartError(f"{error} Gymnasium's are called {PREFIX}ID, {known}.") from None


def make(name: str, *, seed: int, noise: float = 0.0) -> dm_env.Environment:
    """Builds the environment called `name`.

    Args:
        name: a registered name, or `gym/ID` for one of gymnasium's.
        seed: seeds the environment and its noise, each a stream of its own.
        noise: how often the agent's action gives way to a uniform one.
    """
    environment = get(name)(seed=seed)
    return ActionNoise(environment, noise, seed) if noise else environment


def normalised_score(
    name: str, returns: Shaped[np.ndarray, "..."] | float | int
) -> Float[np.ndarray | np.floating, "..."]:
    """Puts returns on the scale where the random policy has 0 and the online agent 1."""
    if name not in references:
        raise KeyError(
            f"environment {name!r} has no reference scores: set "
            f"rosmo.envs.references[{name!r}] = Reference(random=…, online=…)"
        )
    random, online = references[name]
    return (np.asarray(returns, np.float64) - random) / (online - random)


def normalised_or_none(name: str, mean: float) -> float | None:
    """Returns the normalised score of a mean return, or None without reference scores."""
    return float(normalised_score(name, mean)) if name in references else None
