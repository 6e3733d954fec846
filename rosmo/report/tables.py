"""The tables of a report, as Markdown."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

Summary = dict[str, Any]


def returns(summary: Summary, policy: str) -> str:
    """Mean ± standard deviation of the returns, method by environment, beside the paper's and the counts.

    Args:
        summary: of the experiment.
        policy: "sampled", or "greedy", of which the paper says nothing.
    """
    cells = {_key(cell): cell for cell in summary["cells"]}
    sampled = policy == "sampled"
    paper = summary["paper"] if sampled else {}
    header = _names(summary)
    for environment in summary["environments"]:
        header += [environment, *["paper"] * (environment in paper), *["seeds × updates"] * sampled]
    rows = []
    for setting, method in itertools.product(summary["settings"], summary["methods"]):
        row = _names(summary, setting, method)
        for environment in summary["environments"]:
            cell = cells.get((setting, method, environment))
            row.append(plus_minus(cell[f"{policy}_mean"], cell[f"{policy}_std"]) if cell else "—")
            if environment in paper:
                said = paper[environment].get(setting, {}).get(method)
                row.append(plus_minus(*said) if said else "—")
            if sampled:
                row.append(_counts(cell) if cell else "—")
        rows.append(row)
    return table(header, rows, texts=len(_names(summary)))


def equal_updates(summary: Summary) -> str:
    """Every method after as many updates as the shortest run of its environment took."""
    found = {_key(one): one for one in summary["equal_updates"]}
    updates = {one["environment"]: one["updates"] for one in summary["equal_updates"]}
    rows = []
    for setting, method in itertools.product(summary["settings"], summary["methods"]):
        cells = [found.get((setting, method, environment)) for environment in updates]
        numbers = [plus_minus(cell["mean"], cell["std"]) if cell else "—" for cell in cells]
        rows.append(_names(summary, setting, method) + numbers)
    header = [*_names(summary), *(f"{name}, {count:,} updates" for name, count in updates.items())]
    return table(header, rows, texts=len(_names(summary)))


def selected(summary: Summary) -> str:
    """The returns of the last checkpoints, and of the best ones by each criterion."""
    rows = []
    for one in summary["selected"]:
        row = [*_names(summary, one["setting"], one["method"]), one["criterion"]]
        for environment in summary["environments"]:
            cell = one["cells"].get(environment)
            updates = f" ({cell['updates']:,})" if cell else ""
            row.append(plus_minus(cell["mean"], cell["std"]) + updates if cell else "—")
        iqm = one["iqm"]
        rows.append([*row, "—" if iqm is None else f"{iqm:.3f}", interval(one["interval"])])
    names = [*_names(summary), "checkpoint"]
    return table([*names, *summary["environments"], "IQM", "95% interval"], rows, texts=len(names))


def aggregates(summary: Summary) -> str:
    """The IQM of each method and setting."""
    found = {(one["setting"], one["method"]): one for one in summary["aggregates"]}
    rows = []
    for setting, method in itertools.product(summary["settings"], summary["methods"]):
        one = found.get((setting, method))
        numbers = [f"{one['iqm']:.3f}", interval(one["interval"]), str(one["seeds"])] if one else ["—"] * 3
        rows.append(_names(summary, setting, method) + numbers)
    names = _names(summary)
    return table([*names, "IQM", "95% interval", "complete seeds"], rows, texts=len(names))


def improvement(summary: Summary, setting: str) -> str:
    """The probability that the method of a row beats that of a column."""
    found = {(x["method"], x["over"]): x for x in summary["improvement"] if x["setting"] == setting}
    methods = [name for name in summary["methods"] if any(name == method for method, _ in found)]

    def cell(method: str, other: str) -> str:
        if method == other:
            return ""
        one = found[method, other]
        return f"{one['probability']:.2f} {interval(one['interval'], digits=2)}".removesuffix(" —")

    rows = [[method, *(cell(method, other) for other in methods)] for method in methods]
    return table(["P(row > column)", *methods], rows)


def compute(summary: Summary) -> str:
    """What an update costs."""
    rows = []
    for cell in summary["cells"]:
        seconds = cell["seconds_per_update"]
        rows.append([
            *_names(summary, cell["setting"], cell["method"]),
            cell["environment"],
            f"{cell['model_calls']:,}",
            f"{cell['flops'] / 1e6:,.0f}",
            "—" if seconds is None else f"{1000 * seconds:.2f}",
        ])  # fmt: skip
    names = [*_names(summary), "environment"]
    return table([*names, "model calls", "MFLOP", "milliseconds"], rows, texts=len(names))


def stages(summary: Summary) -> str:
    """What the training of a world cost, and of the agent in it."""
    rows = []
    for cell in summary["cells"]:
        both = [cell["first_stage"], cell["second_stage"]]
        numbers = [text for stage in both for text in _stage(stage)]
        total = sum(stage["flops"] for stage in both if stage) / 1e12
        names = [*_names(summary, cell["setting"], cell["method"]), cell["environment"]]
        rows.append([*names, *numbers, f"{total:,.3g}"])
    names = [*_names(summary), "environment"]
    columns = [f"{stage}: {what}" for stage in ("world", "agent") for what in ("updates", "seconds", "TFLOP")]
    return table([*names, *columns, "TFLOP of both"], rows, texts=len(names))


def _stage(stage: dict[str, Any] | None) -> list[str]:
    if stage is None:
        return ["—"] * 3
    seconds = "—" if stage["seconds"] is None else f"{stage['seconds']:,.0f}"
    return [f"{stage['updates']:,}", seconds, f"{stage['flops'] / 1e12:,.3g}"]


def missing(summary: Summary) -> str:
    """The runs that are not finished: one sentence where every cell lacks the same seeds."""
    groups: dict[tuple, list[str]] = {}
    for one in summary["missing"]:
        state = f"{one['seed']} ({one['updates']:,} updates)" if one["updates"] else str(one["seed"])
        groups.setdefault(_key(one), []).append(state)
    grid = list(itertools.product(summary["settings"], summary["methods"], summary["environments"]))
    seeds = {key: ", ".join(states) for key, states in groups.items()}
    if len(seeds) == len(grid) and len(common := set(seeds.values())) == 1:
        return f"Seeds {common.pop()}, everywhere."
    alike: dict[tuple[str, ...], list[str]] = {}
    for setting, method, environment in grid:
        if state := seeds.get((setting, method, environment)):
            alike.setdefault((*_names(summary, setting, method), state), []).append(environment)
    rows = [[*names, ", ".join(environments), state] for (*names, state), environments in alike.items()]
    header = [*_names(summary), "environments", "seeds"]
    return table(header, rows, texts=len(header))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Writes a table, its first columns as texts to the left and the others as numbers to the right."""
    align = [*["---"] * texts, *["---:"] * (len(header) - texts)]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in (header, align, *rows))
    return "\n".join("| " + " | ".join(row) + " |" for row in escaped)


def plus_minus(mean: float, std: float | None) -> str:
    """Writes a mean and its deviation, three decimals of small numbers and two of large ones."""
    digits = 3 if abs(mean) < 10 else 2
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def interval(bounds: Sequence[float] | None, digits: int = 3) -> str:
    """Writes an interval, or a dash for that of a single seed."""
    return "—" if bounds is None else f"[{bounds[0]:.{digits}f}, {bounds[1]:.{digits}f}]"


def _counts(cell: dict[str, Any]) -> str:
    least, most = min(cell["updates"]), max(cell["updates"])
    updates = f"{most:,}" if least == most else f"{least:,}–{most:,}"
    return f"{len(cell['seeds'])} × {updates}"


def _names(summary: Summary, setting: str | None = None, method: str = "method") -> list[str]:
    """The method, and the setting where there are several; without any, what their columns are called."""
    if summary["settings"] == [""]:
        return [method]
    return [method, (summary["axis"] or "setting") if setting is None else setting]


def _key(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["setting"], one["method"], one["environment"]
