"""What the agents of this library ask of an environment."""

import dm_env
import numpy as np
from dm_env import specs


def number_of_actions(environment: dm_env.Environment) -> int:
    """Returns how many discrete actions there are, and refuses any other kind of action."""
    spec = environment.action_spec()
    if not isinstance(spec, specs.DiscreteArray):
        continuous = isinstance(spec, specs.Array) and np.issubdtype(spec.dtype, np.floating)
        kind = "continuous actions" if continuous else f"actions of the kind {type(spec).__name__}"
        raise TypeError(
            f"{type(environment).__name__} has {kind}, and only discrete ones will do: give it an "
            "action_spec of dm_env.specs.DiscreteArray"
        )
    return int(spec.num_values)


def observation_shape(environment: dm_env.Environment) -> tuple[int, ...]:
    """Returns the shape of an observation, and refuses observations of several arrays."""
    spec = environment.observation_spec()
    if not isinstance(spec, specs.Array) or not np.issubdtype(spec.dtype, np.number):
        raise TypeError(
            f"{type(environment).__name__} has observations of the kind {type(spec).__name__}, and only a "
            "single array of numbers will do: give it an observation_spec of dm_env.specs.Array"
        )
    return tuple(spec.shape)
