"""The page that goes with an agent that is given away, which model hubs read too."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rosmo import __version__
from rosmo.evaluate import summarise
from rosmo.report.held_out import as_report
from rosmo.runs.folder import RunFolder
from rosmo.runs.training import Training

_FILES = {
    "model.safetensors": "its parameters",
    "config.gin": "the configuration that it was trained with",
    "settings.json": "its seed and update, and what its data is recognised by",
    "versions.json": "the versions of Python and of the packages that it was trained with",
    "metrics.csv": "losses and returns along its training",
    "learning_curve.png": "a picture of them",
    "result.json": "its scores in full",
    "imports": "modules of its author's own: code",
}


class Score(NamedTuple):
    """What an agent got by sampled or by greedy actions, on average over episodes."""

    policy: str
    mean: float
    stderr: float | None
    episodes: int


class Scores(NamedTuple):
    """All that is known of how good an agent is."""

    returns: Sequence[Score] = ()
    held_out: Mapping[str, Any] | None = None


def scores_of(run: RunFolder, training: Training, step: int) -> Scores:
    """Returns the scores of a run at a step: of its last evaluation, or of one on the way."""
    if run.finished():
        result = run.read_result()
        if result.step == step and result.held_out is not None:
            return Scores(held_out=result.held_out)
        ends = [{"step": result.step, "sampled": result.sampled, "greedy": result.greedy}]
        for played in (*ends, *result.selected.values()):
            if played["step"] == step and played.get("sampled"):
                return Scores([_score(policy, played[policy]) for policy in ("sampled", "greedy")])
    row = next((row for row in run.metrics.rows() if row["step"] == step), {})
    names = {"sampled": "return", "greedy": "greedy_return"}
    found = [Score(x, row[y], None, training.eval_episodes) for x, y in names.items() if y in row]
    return Scores(found)


def _score(policy: str, returns: Sequence[float]) -> Score:
    scores = summarise(np.array(returns))
    return Score(policy, scores.mean, None if np.isnan(scores.stderr) else scores.stderr, scores.episodes)


def card(name: str, training: Training, settings: Mapping[str, Any], scores: Scores, folder: Path) -> str:
    """Returns the page of a folder that `rosmo.load` opens.

    Args:
        name: of the folder.
        training: what the agent was trained as.
        settings: those that the folder keeps.
        scores: of the agent.
        folder: with all other files in it.
    """
    code = ", ".join(module["name"] for module in settings["imports"])
    shape, _ = training.spaces()
    lines = [
        f'trained = rosmo.load("{name}"{", trust=True" * bool(code)})  # the path of this folder',
        f"action = trained.act(observation)  # of the shape {list(shape)}, or a batch of such",
    ]
    if training.environment:
        lines.append(f'print(rosmo.evaluate(trained, "{training.environment}", episodes=100).scores)')
    rows = "\n".join(f"| `{file}` | {about} |" for file, about in _FILES.items() if (folder / file).exists())
    picture = "![learning curve](learning_curve.png)\n\n" * (folder / "learning_curve.png").exists()
    return (
        f"{_opening(name, training, scores)}"
        f"It is loaded by rosmo {__version__} with its `run` extra:\n\n{_python(*lines)}"
        + (_CODE.format(code=code) if code else "")
        + _trained_on(training, settings)
        + f"{_scored(scores)}{picture}## What is here\n\n| file | what it is |\n|---|---|\n{rows}\n"
    )


def card_of_function(
    name: str, training: Training, settings: Mapping[str, Any], scores: Scores, dtype: str, function: str
) -> str:
    """Returns the page of a folder with an acting function that needs jax alone.

    Args:
        name: of the folder.
        training: what the agent was trained as.
        settings: those of its run.
        scores: of the agent.
        dtype: of observations.
        function: the name of the file with the function.
    """
    shape, actions = training.spaces()
    lines = [
        "from pathlib import Path",
        "",
        "import numpy as np",
        "from jax import export",
        "",
        f'act = export.deserialize(Path("{name}/{function}").read_bytes()).call',
        f'observations = np.zeros({(3, *shape)}, "{dtype}")  # any number of them, here 3',
        f"actions = act(observations, 0, False)  # a seed, and whether greedily: 3 of 0 … {actions - 1}",
    ]
    return (
        f"{_opening(name, training, scores)}"
        f"Its acting function is StableHLO, for CPU, CUDA and TPU, and needs jax {jax.__version__} or a "
        f"later one (jax promises six months of them), and nothing else:\n\n{_python(*lines, imported='')}"
        + _trained_on(training, settings)
        + _scored(scores)
    )


def _opening(name: str, training: Training, scores: Scores) -> str:
    """What hubs read, the title, and what this is."""
    tags = ["reinforcement-learning", "offline-reinforcement-learning", "jax", "rosmo", training.label]
    front = {"library_name": "rosmo", "pipeline_tag": "reinforcement-learning", "tags": tags}
    metrics = [
        {
            "type": "mean_reward",
            "name": f"mean return, {score.policy} actions",
            "value": f"{score.mean:.2f}" + (f" +/- {score.stderr:.2f}" if score.stderr is not None else ""),
            "verified": False,
        }
        for score in scores.returns
    ]
    if metrics:
        result = {
            "task": {"type": "reinforcement-learning", "name": "reinforcement learning"},
            "dataset": {"type": training.label, "name": training.label},
            "metrics": metrics,
        }
        front["model-index"] = [{"name": name, "results": [result]}]
    # JSON is YAML, and quotes what a name may hold.
    matter = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in front.items())
    where = f"of `{training.environment}`" if training.environment else f"`{training.label}`"
    return (
        f"---\n{matter}---\n\n# {name}\n\nAn agent that was trained offline, on recorded data {where} alone. "
    )


def _python(*lines: str, imported: str = "import rosmo\n\n") -> str:
    text = "\n".join(lines)
    return f"```python\n{imported}{text}\n```\n\n"


_CODE = """\
It brings code of its author's, in `imports/` ({code}), which `trust=True` executes: read it first.

"""


def _trained_on(training: Training, settings: Mapping[str, Any]) -> str:
    rows = {
        "environment": training.environment or "none: data alone",
        "data": settings["data"],
        "share of its episodes": f"{training.data_fraction:g}",
        "noise while it was collected": f"{training.noise:g}",
        "updates": f"{settings['step']:,}",
        "seed": settings["seed"],
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"## What it was trained on\n\n| | |\n|---|---|\n{table}\n\n"


def _scored(scores: Scores) -> str:
    if scores.held_out is not None:
        return f"## What held-out episodes say of it\n\n```\n{as_report(scores.held_out)}\n```\n\n"
    if not scores.returns:
        return "## Scores\n\nIt was not scored.\n\n"
    rows = [
        f"| {score.policy} | {score.mean:.3f} | "
        + ("" if score.stderr is None else f"{score.stderr:.3f}")
        + f" | {score.episodes} |\n"
        for score in scores.returns
    ]
    head = "| actions | mean return | standard error | episodes |\n|---|---|---|---|\n"
    return f"## Scores\n\n{head}{''.join(rows)}\n"
