"""What says how good an agent is while it trains and at the end: its environment, or held-out episodes."""

from typing import Any, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import numpy as np

from rosmo import envs
from rosmo.agents import Agent, Remembers, Trained, acts
from rosmo.data import DataSet
from rosmo.evaluate import Evaluator, HeldOut, HeldOutWorld, summarise
from rosmo.runs.training import Training
from rosmo.types import Params
from rosmo.worlds import World

HELD_OUT = "held_out/"  # of a column of the table of metrics


@runtime_checkable
class Evaluation(Protocol):
    """Scores parameters, the same for the same parameters and seed."""

    def row(self, params: Params, seed: int) -> dict[str, float]:
        """Returns what an evaluation on the way adds to a row of metrics."""
        ...

    def result(self, params: Params, seed: int) -> dict[str, Any]:
        """Returns what the trained agent is scored by."""
        ...

    def note(self, row: dict[str, float | int]) -> str:
        """Returns what people see of a row on the way."""
        ...


def build_evaluation(training: Training, agent: Trained, held_out: DataSet | None) -> Evaluation:
    """Returns what scores the agents of a training.

    Args:
        training: what is trained.
        agent: the agent.
        held_out: the episodes that are not trained on, where the agent does not play.
    """
    if held_out is None:
        return InEnvironment(training, cast(Agent | Remembers, agent))
    return OnHeldOut(judge_of(agent, held_out, num_actions=training.spaces()[1]))


@runtime_checkable
class Judge(Protocol):
    """Says by held-out episodes how good parameters are."""

    def report(self, params: Params, seed: int) -> dict[str, Any]:
        """Returns figures by name, and lists of them; the same for the same parameters and seed."""
        ...


@runtime_checkable
class Judged(Trained, Protocol):
    """What is trained, and says itself what judges it."""

    def held_out_judge(self, data: DataSet, *, num_actions: int) -> Judge:
        """Returns what judges it by the episodes of `data`."""
        ...


def judge_of(agent: Trained, data: DataSet, *, num_actions: int) -> Judge:
    """Returns what judges an agent by held-out episodes: its own way, that of agents, or that of worlds."""
    if isinstance(agent, Judged):
        return agent.held_out_judge(data, num_actions=num_actions)
    if acts(agent):
        return HeldOut(cast(Agent | Remembers, agent), data, num_actions=num_actions)
    if is_world(agent):
        return HeldOutWorld(agent, data, num_actions=num_actions)
    raise TypeError(
        f"{type(agent).__name__} neither acts nor trains a world: give it act, or held_out_judge(data, "
        "num_actions=…), which returns what judges it by held-out episodes"
    )


def is_world(agent: Trained) -> bool:
    """Whether what is trained is a world."""
    return isinstance(eqx.filter_eval_shape(agent.init, jax.random.key(0)), World)


class InEnvironment:
    """Plays the agent in its environment."""

    def __init__(self, training: Training, agent: Agent | Remembers):
        self._training, self._agent = training, agent
        self._evaluator = training.build_evaluator(agent)

    def row(self, params: Params, seed: int) -> dict[str, float]:
        sampled, greedy = (summarise(self._evaluator(params, seed, greedy=x)) for x in (False, True))
        row = {"return": sampled.mean, "greedy_return": greedy.mean}
        row |= {} if np.isnan(sampled.stderr) else {"return_stderr": sampled.stderr}  # of one episode
        normalised = envs.normalised_or_none(self._training.label, sampled.mean)
        return row if normalised is None else row | {"normalised": normalised}

    def result(self, params: Params, seed: int) -> dict[str, Any]:
        return play(self._training.build_evaluator(self._agent, self._training.final_episodes), params, seed)

    def note(self, row: dict[str, float | int]) -> str:
        return f"return {row['return']:.2f}" if "return" in row else ""


class OnHeldOut:
    """Asks episodes that were not trained on."""

    def __init__(self, judge: Judge):
        self._judge = judge

    def row(self, params: Params, seed: int) -> dict[str, float]:
        found = self._judge.report(params, seed)
        return {f"{HELD_OUT}{name}": value for name, value in found.items() if isinstance(value, float)}

    def result(self, params: Params, seed: int) -> dict[str, Any]:
        return {"held_out": self._judge.report(params, seed)}

    def note(self, row: dict[str, float | int]) -> str:
        if (accuracy := row.get(f"{HELD_OUT}accuracy")) is not None:
            return f"held-out accuracy {accuracy:.1%}"
        loss = row.get(f"{HELD_OUT}loss")
        return "" if loss is None else f"held-out loss {loss:.3f}"


def play(evaluator: Evaluator, params: Params, seed: int) -> dict[str, list[float]]:
    """Returns the returns of an agent by sampled and by greedy actions."""
    return {name: evaluator(params, seed, greedy=name == "greedy").tolist() for name in ("sampled", "greedy")}
