"""Writes the report of an experiment: Markdown, JSON and pictures."""

import json
from pathlib import Path
from typing import Any

from rosmo.report import tables
from rosmo.report.figures import draw
from rosmo.report.results import Results
from rosmo.report.summary import summarise

_COMPUTE = (
    "Of one update: the states that the model imagines a next state of (for the targets and for the loss), "
    "the operations of its products (a multiply and an add are two), counted in the trace of the loss and "
    "its gradient with loops multiplied out, and the median time in the runs. Calls and operations are those "
    "of an update that computes its own targets. On a small data set a run keeps the targets of all steps "
    "while the target network stands still, so its seconds are lower than its operations suggest."
)
_CAPTIONS = {
    "main": "IQM of the normalised score, with 95% intervals.",
    "profile": "Performance profile: the share of runs whose normalised score exceeds τ, with 95% intervals.",
    "compute": "The IQM that a budget of compute for each run reaches: every run at its last evaluation "
    "within the budget, a run that is over at its end.",
    "curves": "Returns by drawn actions: mean over seeds, and a band of one standard deviation.",
}


def write(results: Results, folder: Path) -> Path:
    """Writes `report.md`, `results.json` and the pictures, and returns the first.

    Args:
        results: of the experiment, with at least one finished run.
        folder: where they go; what an earlier report wrote there is replaced.
    """
    summary = json.loads(json.dumps(summarise(results)))  # as whoever reads the file will see it
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {name: path.name for name, path in draw(summary, folder).items()}
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "results.json").write_text(text + "\n")
    report = folder / "report.md"
    report.write_text(markdown(summary, pictures))
    return report


def markdown(summary: dict[str, Any], pictures: dict[str, str]) -> str:
    """Returns the text of the report.

    Args:
        summary: all numbers.
        pictures: file names by what they show.
    """
    parts = [f"# {summary['name']}", f"{summary['about']}.", _state(summary)]
    if "main" in pictures:
        parts.append(_picture("main", pictures))
    parts += ["## Returns", "By drawn actions, as in the paper: mean ± standard deviation over seeds."]
    parts += [tables.returns(summary, "sampled"), "By the likeliest actions:"]
    parts += [tables.returns(summary, "greedy"), _picture("curves", pictures)]
    parts += [*_aggregates(summary, pictures), "## Compute", _COMPUTE, tables.compute(summary)]
    if "compute" in pictures:
        parts.append(_picture("compute", pictures))
    if summary["missing"]:
        parts += ["## Missing runs", "Not finished, and left out above (with the updates that they took):"]
        parts.append(tables.missing(summary))
    return "\n\n".join(parts) + "\n"


def _aggregates(summary: dict[str, Any], pictures: dict[str, str]) -> list[str]:
    if not summary["aggregates"]:
        return [
            "## Normalised scores",
            "No seed is finished in every environment that has reference scores: nothing to aggregate yet.",
        ]
    environments = ", ".join(summary["aggregated_environments"])
    parts = [
        "## Normalised scores",
        "0 is a random policy and 1 an online agent. The interquartile mean (IQM) is over environments "
        f"({environments}) and the seeds that are finished in all of them; intervals are "
        "of a stratified bootstrap over seeds (rliable). A single seed has no interval.",
        tables.aggregates(summary),
        _picture("profile", pictures),
    ]
    settings = [s for s in summary["settings"] if any(x["setting"] == s for x in summary["improvement"])]
    if settings:
        parts.append("The probability that a run of one method beats a run of another:")
    for setting in settings:
        parts += [f"{summary['axis'] or 'setting'}: {setting}"] if setting else []
        parts.append(tables.improvement(summary, setting))
    return parts


def _state(summary: dict[str, Any]) -> str:
    done = sum(len(cell["seeds"]) for cell in summary["cells"])
    text = f"{done} of {done + len(summary['missing'])} runs are finished."
    return text + (" Those that are not are listed at the end." if summary["missing"] else "")


def _picture(name: str, pictures: dict[str, str]) -> str:
    return f"![{name}]({pictures[name]})\n\n*{_CAPTIONS[name]}*"
