"""Writes the report of an experiment: Markdown, JSON and pictures."""

import json
from pathlib import Path
from typing import Any

from rosmo.report import tables
from rosmo.report.figures import draw
from rosmo.report.results import Results
from rosmo.report.style import save
from rosmo.report.summary import summarise

_COMPUTE = (
    "Of one update: the states that the model imagines a next state of (for the targets and for the loss), "
    "the operations of its products (a multiply and an add are two), counted in the trace of the loss and "
    "its gradient with loops multiplied out, and the median time in the runs, one on each core. "
    "A critic imagines no next state: it asks the same dynamics for the values of all actions. Calls and "
    "operations are those of an update that computes its own targets. On a small data set an agent without a "
    "search keeps the targets of all steps while the target network stands still, so that its seconds are "
    "lower than its operations suggest; a search, whose targets are drawn, and the baselines keep none."
)
_EQUAL = (
    "The methods above took different numbers of updates. Each after as many as the shortest took, by the "
    "evaluations on the way, which have fewer episodes:"
)
_STAGES = (
    "Of a whole run, evaluations apart: the training of the world that an agent acts in, which seeds share, "
    "and that of the agent. Seconds are medians over seeds, of one core; of a core that a run had to itself, "
    "they are the time that it was given of it."
)
_SELECTED = (
    "Returns by sampled actions of the last checkpoint of each run, and of the best one on the way by a "
    "criterion: an off-policy estimate from the data alone, or `return`, the mean return of the "
    "evaluations on the way, which nobody has who cannot play. All are scored by episodes of their own: mean "
    "± standard deviation over seeds, and in parentheses the median update that the checkpoint is of."
)
_FEW_RUNS = 4  # a quarter of fewer is less than one run, and nothing is cut off
_CAPTIONS = {
    "selected": "IQM of the normalised score by checkpoint, with 95% intervals.",
    "main": "IQM of the normalised score, with 95% intervals.",
    "profile": "Performance profile: the share of runs whose normalised score exceeds τ, with 95% intervals.",
    "compute": "The IQM that a budget of compute for each run reaches: every run at its last evaluation "
    "within the budget, a run that is over at its end. These evaluations have fewer episodes than those of "
    "the tables, and a score is reached somewhere before the evaluation that shows it.",
    "clock": "The same over the seconds of training, evaluations apart: those of a run on one core are the "
    "time that it had of it.",
    "curves": "Returns by sampled actions: mean over seeds, and a band of one standard deviation. Where some "
    "runs are much longer than others, the axis is logarithmic past the end of the shortest.",
}


def write(results: Results, folder: Path) -> Path:
    """Writes `report.md`, `results.json` and the pictures, and returns the first.

    Args:
        results: of the experiment, with at least one finished run.
        folder: where they go; what an earlier report wrote there is replaced.
    """
    summary = json.loads(json.dumps(summarise(results)))  # as whoever reads the file will see it
    numbers = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False)
    figures = draw(summary)
    text = markdown(summary, {name: f"{name}.png" for name in figures})
    # Nothing is replaced before all of its successors are there.
    folder.mkdir(parents=True, exist_ok=True)
    for name in _CAPTIONS:
        (folder / f"{name}.png").unlink(missing_ok=True)  # it may have no successor
    for name, figure in figures.items():
        save(figure, folder / f"{name}.png")
    (folder / "results.json").write_text(numbers + "\n")
    report = folder / "report.md"
    report.write_text(text)
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
    parts += ["## Returns", _by_sampled_actions(summary), tables.returns(summary, "sampled")]
    if summary["equal_updates"]:
        parts += [_EQUAL, tables.equal_updates(summary)]
    parts += ["By greedy actions:", tables.returns(summary, "greedy"), _picture("curves", pictures)]
    parts += [_picture("clock", pictures)] if "clock" in pictures else []
    if summary.get("selected"):  # reports that were kept may be older
        parts += ["## Which checkpoint", _SELECTED, tables.selected(summary)]
        parts += [_picture("selected", pictures)] if "selected" in pictures else []
    parts += [*_aggregates(summary, pictures), "## Compute", _COMPUTE, tables.compute(summary)]
    if "compute" in pictures:
        parts.append(_picture("compute", pictures))
    if any(cell.get("first_stage") for cell in summary["cells"]):
        parts += ["## Both stages", _STAGES, tables.stages(summary)]
    if summary["missing"]:
        parts += ["## Missing runs", "Not finished, and left out above (with the updates that they took):"]
        parts.append(tables.missing(summary))
    return "\n\n".join(parts) + "\n"


def _aggregates(summary: dict[str, Any], pictures: dict[str, str]) -> list[str]:
    if not summary["aggregates"]:
        return ["## Normalised scores", _nothing_to_aggregate(summary)]
    environments = ", ".join(summary["aggregated_environments"])
    parts = [
        "## Normalised scores",
        "0 is a random policy and 1 an online agent. The interquartile mean (IQM) is over environments "
        f"({environments}) and the seeds that are finished in all of them; intervals are "
        f"of a stratified bootstrap over seeds (rliable). A single seed has no interval.{_few(summary)}"
        f"{_without_reference(summary)}",
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


def _nothing_to_aggregate(summary: dict[str, Any]) -> str:
    """Says whether reference scores or runs are missing."""
    if not summary["aggregated_environments"]:
        return f"None.{_without_reference(summary)}"
    scored = ", ".join(summary["aggregated_environments"])
    return (
        f"None yet: no seed is finished in every environment that has reference scores ({scored})."
        f"{_without_reference(summary)}"
    )


def _without_reference(summary: dict[str, Any]) -> str:
    """Says which environments have no scores to normalise by, if any, and how to give them."""
    played = {cell["environment"]: cell["normalised"] for cell in summary["cells"]}
    names = [name for name in summary["environments"] if None in played.get(name, [])]
    if not names:
        return ""
    return (
        f" The library has no reference scores of {', '.join(names)} to normalise by. Give them by "
        '`rosmo.envs.references["NAME"] = rosmo.envs.Reference(random=…, online=…)` in a module that '
        "`--import` names."
    )


def _by_sampled_actions(summary: dict[str, Any]) -> str:
    text = (
        "By sampled actions: mean ± standard deviation over seeds. An agent that has no policy to sample "
        "from takes its greedy action."
    )
    if summary["paper_note"]:
        text += f" The paper's figures are {summary['paper_note']}."
    return text


def _few(summary: dict[str, Any]) -> str:
    environments = len(summary["aggregated_environments"])
    few = any(one["seeds"] * environments < _FEW_RUNS for one in summary["aggregates"])
    return f" Of fewer than {_FEW_RUNS} runs, the IQM is the plain mean." if few else ""


def _state(summary: dict[str, Any]) -> str:
    done = sum(len(cell["seeds"]) for cell in summary["cells"])
    text = f"{done} of {done + len(summary['missing'])} runs are finished."
    if summary["missing"]:
        text += " Those that are not are listed at the end."
    if departed := summary["departed"]:
        text += (
            f" {len(departed)} of them had other settings than the experiment's file has now (the first: "
            f"{departed[0]})."
        )
    return text


def _picture(name: str, pictures: dict[str, str]) -> str:
    return f"![{name}]({pictures[name]})\n\n*{_CAPTIONS[name]}*"
