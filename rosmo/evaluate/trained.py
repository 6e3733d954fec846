"""Playing what was trained in an environment of one's own: `rosmo.evaluate`."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
from jaxtyping import Float

from rosmo import envs
from rosmo.agents import TrainedAgent
from rosmo.evaluate.playing import Evaluator
from rosmo.evaluate.scores import Scores, summarise
from rosmo.types import refuse_counts


class Played(NamedTuple):
    """The returns of episodes, and what they come to."""

    returns: Float[np.ndarray, "episodes"]
    scores: Scores


def evaluate(
    trained: TrainedAgent,
    environment: Any,
    *,
    episodes: int = 100,
    greedy: bool = False,
    seed: int = 0,
    environments: int = 16,
) -> Played:
    """Plays episodes, several at a time, with the actions of all in one call.

    Args:
        trained: what `rosmo.load` returns, or `TrainedAgent(agent, params)` of what was trained in code.
        environment: a name, as "catch" or "gym/CartPole-v1"; a function that makes one from a seed; or one of
            dm_env's or gymnasium's, which is played alone, one episode after the other.
        episodes: how many.
        greedy: whether the greedy actions are played, and not sampled ones.
        seed: of the actions and the environments (one of dm_env's that is made already has its own).
        environments: how many are played at once.
    """
    if not isinstance(trained, TrainedAgent):
        raise TypeError(
            f"evaluate plays a TrainedAgent, as rosmo.load returns it, and not {type(trained).__name__}"
        )
    refuse_counts(episodes=episodes, environments=environments)
    refuse_counts(0, seed=seed)
    make, copies = _maker(environment, environments)
    _refuse_other_spaces(trained, environment, make(seed))
    play = Evaluator(trained.agent, make, episodes=episodes, environments=copies)
    returns = play(trained.params, seed, greedy=greedy)
    return Played(returns, summarise(returns))


def _maker(environment: Any, most: int) -> tuple[Callable[[int], dm_env.Environment], int]:
    """Returns what makes the environment from a seed, and how many there may be."""
    if isinstance(environment, str):
        return lambda seed: envs.make(environment, seed=seed), most
    if isinstance(environment, dm_env.Environment):
        return lambda seed: environment, 1
    if callable(environment):
        try:
            inspect.signature(environment).bind(0)
        except TypeError as error:
            raise TypeError(
                "the function that makes an environment is called with a seed, as lambda seed: … is"
            ) from error
        return functools.partial(_made, environment), most
    return lambda seed: envs.from_gymnasium(environment, seed=seed), 1


def _made(build: Callable[[int], Any], seed: int) -> dm_env.Environment:
    made = build(seed)
    return made if isinstance(made, dm_env.Environment) else envs.from_gymnasium(made, seed=seed)


def _refuse_other_spaces(trained: TrainedAgent, asked: Any, environment: dm_env.Environment) -> None:
    """Refuses an environment that the agent cannot see, or act in."""
    name = asked if isinstance(asked, str) else type(environment).__name__
    shape, count = envs.observation_shape(environment), envs.number_of_actions(environment)
    if shape != trained.observation_shape:
        raise ValueError(
            f"the agent sees observations of the shape {list(trained.observation_shape)}, and {name} shows "
            f"{list(shape)}: play it in an environment like the one that it was trained on"
        )
    if (known := getattr(trained.params, "num_actions", count)) != count:
        raise ValueError(
            f"the agent chooses among {known} actions, and {name} has {count}: play it in an environment "
            "like the one that it was trained on"
        )
