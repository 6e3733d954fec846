"""A trained agent as a folder to give away: without its data, and with nothing in it of where it was made."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rosmo import envs
from rosmo.agents import TrainedAgent
from rosmo.configs import Consent, frozen, gin_kept, open_run, portable, sources
from rosmo.data.files import appearing, refuse_occupied
from rosmo.runs import imported
from rosmo.runs.folder import RunFolder
from rosmo.runs.imported import Imported
from rosmo.runs.training import Training
from rosmo.trained.card import card, card_of_function, scores_of
from rosmo.trained.loading import of_one_seed, read_params
from rosmo.trained.stablehlo import acting_function
from rosmo.trained.weights import write_weights
from rosmo.types import Params

FORMATS = ("rosmo", "stablehlo")
FUNCTION = "act.stablehlo"


def export(
    folder: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    form: str = "rosmo",
    step: int | str | None = None,
    seed: int | None = None,
    trust: bool = False,
    imports: str | Sequence[str] = (),
) -> Path:
    """Writes the agent of a run to a folder of its own, whole or not at all, and returns where.

    Args:
        folder: of the run.
        target: where to; nothing may be there yet.
        form: "rosmo" for what `rosmo.load` opens, or "stablehlo" for an acting function that needs jax alone.
        step: the update whose checkpoint to take, or what it was selected by (None: the newest).
        seed: which one of a run of several seeds.
        trust: whether the modules that the run brings with it may be imported: its agent is built of them.
        imports: modules or files of your own to import in their place, which then go with the agent.
    """
    if form not in FORMATS:
        raise ValueError(f"an agent is exported as one of {', '.join(FORMATS)}, and not as {form!r}")
    run, target = (
        of_one_seed(RunFolder(Path(folder).expanduser()), seed),
        Path(target).expanduser().absolute(),
    )
    refuse_occupied(target)
    allowed = Consent(trust, [imports] if isinstance(imports, str) else imports)
    with gin_kept():
        _, settings = open_run(run, allowed)
        training = frozen()
        params, step = read_params(run, training, step)
        config = portable()
    modules = sources(allowed.imports) if allowed.imports else _kept(run, settings["imports"])
    settings = {**{name: settings[name] for name in ("seed", "data")}, "step": step}
    with appearing(target) as made:
        if form == "stablehlo":
            _write_function(made, target.name, run, training, params, settings)
        else:
            settings |= {"imports": imported.keep(made, modules), "data_dir": "data", "wandb": None}
            (made / run.config.name).write_text(config)
            _write_agent(made, target.name, run, training, params, settings)
        _mention_paths(made, run)
    return target


def _write_agent(
    made: Path, name: str, run: RunFolder, training: Training, params: Params, settings: Mapping[str, Any]
) -> None:
    scores = scores_of(run, training, settings["step"])
    files = ["metrics.csv", "learning_curve.png", "versions.json"]
    if run.finished() and run.read_result().step == settings["step"]:
        files.append(run.result.name)
    for file in files:
        if (run.path / file).exists():
            shutil.copyfile(run.path / file, made / file)
    written = RunFolder(made)
    write_weights(written.weights, params, settings["step"], training.spaces()[0])
    written.settings.write_text(json.dumps(settings, indent=2))
    (made / "README.md").write_text(card(name, training, settings, scores, made))


def _write_function(
    made: Path, name: str, run: RunFolder, training: Training, params: Params, settings: Mapping[str, Any]
) -> None:
    trained = TrainedAgent(training.build_acting_agent(), params, observation_shape=training.spaces()[0])
    dtype = _dtype(training)
    (made / FUNCTION).write_bytes(acting_function(trained, dtype))
    scores = scores_of(run, training, settings["step"])
    (made / "README.md").write_text(card_of_function(name, training, settings, scores, dtype, FUNCTION))


def _dtype(training: Training) -> str:
    """The type of observations: bytes of the environments that show such, and float32 otherwise."""
    if training.environment is None:
        return "float32"
    shown: Any = envs.make(training.environment, seed=0).observation_spec()
    return "uint8" if shown.dtype == "uint8" else "float32"


def _kept(run: RunFolder, modules: Sequence[Mapping[str, Any]]) -> list[Imported]:
    """The modules that a run keeps, with their files."""
    found = []
    for number, module in enumerate(modules):
        if not module["files"] and module["name"].endswith(".py"):
            raise ValueError(f"the run does not keep its module {module['name']}: name it by --import")
        folder = run.path / imported.FOLDER / str(number)
        found.append(Imported(module["name"], {place: folder / place for place in module["files"]}))
    return found


def _mention_paths(made: Path, run: RunFolder) -> None:
    """Says which modules name places of this machine: they are their author's, and stay as they are."""
    places = {str(Path.home()), str(run.path.resolve())} - {"/"}
    for path in sorted(made.rglob("*.py")):
        if named := [place for place in sorted(places) if place in path.read_text(errors="replace")]:
            print(f"rosmo: {path.relative_to(made)} names {named[0]}: look at it first", file=sys.stderr)
