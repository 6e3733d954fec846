"""Opening a trained agent by the folder that it lies in."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import jax

from rosmo.agents import Agent, Remembers, TrainedAgent
from rosmo.configs import Consent, frozen, gin_kept, open_run, said
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.folder import RunFolder, seed_folder
from rosmo.runs.selecting import step_of
from rosmo.runs.training import Training
from rosmo.trained.weights import read_weights
from rosmo.types import Params, is_array


def load(
    folder: str | os.PathLike[str],
    *,
    agent: Agent | Remembers | None = None,
    step: int | str | None = None,
    seed: int | None = None,
    trust: bool = False,
    imports: str | Sequence[str] = (),
) -> TrainedAgent:
    """Returns the trained agent of a run, or of a folder that `rosmo export` made of one.

    Any number of agents may be loaded beside each other. Code that a run brings with it is not executed
    unless it is allowed.

    Args:
        folder: of the run, as `runs/rosmo-catch`; with an agent, the file that `rosmo.save` has made.
        agent: built in code as it was when it was saved.
        step: the update whose checkpoint to take, or the criterion that it was selected by, as "fqe" (None:
            the newest).
        seed: which one of a run of several seeds.
        trust: whether the modules that the run brings with it may be imported.
        imports: modules or files of your own to import in their place.
    """
    if agent is not None:
        like = eqx.filter_eval_shape(agent.init, jax.random.key(0))
        if isinstance(step, str):
            raise TypeError(f"a file holds one agent, selected by nothing: leave out step={step!r}")
        params, step, shape = read_weights(Path(folder).expanduser(), like, step)
        return TrainedAgent(agent, params, observation_shape=shape, settings={"step": step})
    path = Path(folder).expanduser()
    if path.is_file():
        raise ValueError(
            f"{path} is a file: of a run name its folder, and with parameters that rosmo.save has kept the "
            "agent=… that they are of"
        )
    run = of_one_seed(RunFolder(path), seed)
    allowed = Consent(trust, [imports] if isinstance(imports, str) else imports)
    with gin_kept():
        _, settings = open_run(run, allowed)
        training, about = frozen(), said()
    params, step = read_params(run, training, step)
    settings = about | {"seed": settings["seed"], "step": step, "environment": training.environment}
    shape, _ = training.spaces()
    return TrainedAgent(training.build_acting_agent(), params, observation_shape=shape, settings=settings)


def read_params(run: RunFolder, training: Training, step: int | str | None = None) -> tuple[Params, int]:
    """Returns the parameters of a run, on one device, and after which update they are."""
    step, agent = step_of(run, step), training.build_agent()
    like = eqx.filter_eval_shape(agent.init, jax.random.key(0))
    if run.weights.exists():
        return read_weights(run.weights, like, step)[:2]
    if "step" in run.read_settings():  # as in what was exported
        raise FileNotFoundError(f"{run.path} has no {run.weights.name}: fetch it again")
    if not run.checkpoints.exists():
        raise FileNotFoundError(f"{run.path} has no checkpoint yet: it is saved as the run goes on")
    checkpoints = Checkpoints(run.checkpoints)
    with contextlib.closing(checkpoints):
        state = checkpoints.restore(training.learner(agent).state_shapes(), step)
    return eqx.combine(state.params, eqx.filter(like, is_array, inverse=True)), int(state.step)


def of_one_seed(run: RunFolder, seed: int | None) -> RunFolder:
    """Returns the folder of a seed of a run of several, or the run itself, which is of one."""
    settings = run.read_settings()
    if count := settings.get("seeds"):
        if seed is None or not 0 <= seed < count:
            raise ValueError(
                f"{run.path} has {count} seeds: say which agent, by seed=0"
                + f", …, seed={count - 1}" * (count > 1)
            )
        return seed_folder(run.path, seed)
    if seed not in (None, settings["seed"]):
        raise ValueError(f"{run.path} is of one seed, {settings['seed']}: leave out seed={seed}")
    return run
