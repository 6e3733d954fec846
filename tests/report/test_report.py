"""The report of an experiment, from run folders that were written by hand."""

import itertools
import json
from pathlib import Path

import gin
import numpy as np
import pytest
from scipy import stats

from rosmo import configs, envs, experiments
from rosmo.cli import main
from rosmo.commands.report import gather
from rosmo.report import style, tables, write
from rosmo.report.figures import draw
from rosmo.report.write import _aggregates
from rosmo.runs.folder import RunFolder

TOML = """
about = "Two methods"
figure = "bars"
seeds = 3
bindings = ["num_updates = 4_000"]
[methods]
ROSMO = { configs = ["bsuite/rosmo"] }
MZU = { configs = ["bsuite/mzu"], bindings = ["num_updates = 2_000"] }
[environments]
catch = { configs = ["bsuite/catch"] }
cartpole = { configs = ["bsuite/cartpole"] }
[paper.catch.""]
ROSMO = [1.0, 0.0]
"""
WITH_SETTINGS = """
about = "Noise"
axis = "ε"
figure = "lines"
seeds = 1
[methods]
ROSMO = { configs = ["bsuite/rosmo"] }
[environments]
catch = { configs = ["bsuite/catch"] }
[settings]
"0" = { bindings = ["noise = 0.0"] }
"0.5" = { bindings = ["noise = 0.5"] }
"""
SCORES = {  # by seed; the third seed of MZU on cartpole was stopped half-way
    ("ROSMO", "catch"): [1.0, 0.5, 0.0],
    ("ROSMO", "cartpole"): [900.0, 1000.0, 950.0],
    ("MZU", "catch"): [0.25, 0.75, 0.5],
    ("MZU", "cartpole"): [400.0, 600.0],
}
RETURNS = """\
| method | catch | paper | seeds × updates | cartpole | seeds × updates |
| --- | ---: | ---: | ---: | ---: | ---: |
| ROSMO | 0.500 ± 0.500 | 1.000 ± 0.000 | 3 × 4,000 | 950.00 ± 50.00 | 3 × 4,000 |
| MZU | 0.500 ± 0.250 | — | 3 × 2,000 | 500.00 ± 141.42 | 2 × 2,000 |
"""
GREEDY = """\
| method | catch | cartpole |
| --- | ---: | ---: |
| ROSMO | 1.500 ± 0.500 | 951.00 ± 50.00 |
| MZU | 1.500 ± 0.250 | 501.00 ± 141.42 |
"""
EQUAL = """\
| method | catch, 2,000 updates | cartpole, 2,000 updates |
| --- | ---: | ---: |
| ROSMO | 2.000 ± 0.000 | 2.000 ± 0.000 |
| MZU | 0.500 ± 0.250 | 500.00 ± 141.42 |
"""
MISSING = """\
| method | environments | seeds |
| --- | --- | --- |
| MZU | cartpole | 2 (1,000 updates) |
"""


SETTINGS = {"data_dir": "data", "wandb": None, "data": None, "mesh": "data=1"}


def begin(root: Path, cell: experiments.Cell) -> RunFolder:
    training = configs.load(cell.configs, cell.bindings)
    folder = RunFolder(root / cell.folder)
    folder.begin(gin.config_str(), SETTINGS | {"seed": cell.seed})
    for step in range(0, training.num_updates // 2 + 1, 1_000):
        speed = {"updates_per_second": 100.0 + step, "seconds": step / (100 + cell.seed)}
        folder.metrics.append({"step": step, "return": step / 1_000, **speed})
    return folder


def finish(folder: RunFolder, step: int, score: float) -> None:
    folder.metrics.append(
        {"step": step, "return": score, "updates_per_second": 10_000.0, "seconds": step / 100}
    )
    folder.finish({"step": step, "sampled": [score - 1, score + 1], "greedy": [score, score + 2]})


@pytest.fixture(scope="module")
def reported(tmp_path_factory) -> Path:
    """The folder of a report that the command wrote."""
    root = tmp_path_factory.mktemp("report")
    (root / "two.toml").write_text(TOML)
    for cell in experiments.load(str(root / "two.toml")).cells():
        folder = begin(root / "runs" / "two", cell)
        scores = SCORES[cell.method, cell.environment]
        if cell.seed < len(scores):
            finish(folder, 2_000 if cell.method == "MZU" else 4_000, scores[cell.seed])
    arguments = ["--out", str(root / "runs"), "--to", str(root / "docs")]
    assert main(["report", str(root / "two.toml"), *arguments]) == 0
    return root / "docs" / "two"


@pytest.fixture(scope="module")
def numbers(reported) -> dict:
    return json.loads((reported / "results.json").read_text())


def test_the_tables_are_these(reported):
    text = (reported / "report.md").read_text()
    for table in (RETURNS, EQUAL, GREEDY, MISSING):
        assert f"\n\n{table}" in text
    assert "11 of 12 runs are finished" in text
    assert "other settings" not in text
    assert "plain mean" not in text


def test_every_picture_is_small_and_in_the_report(reported):
    pictures = {path.name for path in reported.glob("*.png")}
    assert pictures == {"main.png", "profile.png", "compute.png", "curves.png", "clock.png"}
    text = (reported / "report.md").read_text()
    for name in pictures:
        assert f"]({name})" in text
        assert (reported / name).read_bytes().startswith(b"\x89PNG")
        assert (reported / name).stat().st_size < 200_000


@pytest.mark.parametrize(
    ("lengths", "scale", "ticks"),
    [
        ([20_000, 200_000], "symlog", ["0", "10k", "20k", "200k"]),  # the shorter has two thirds of the axis
        ([20_000, 25_000], "linear", ["0", "10k", "20k"]),
        ([0, 100], "linear", None),  # a run that was evaluated before it began, and no more
    ],
)
def test_runs_of_unequal_length_share_an_axis(lengths, scale, ticks):
    figure, axes = style.panels(1, 1)
    axis = axes[0, 0]
    for length in lengths:
        axis.plot([0, length], [0, 1])
    style.update_ticks(axis, lengths)
    assert axis.get_xscale() == scale
    figure.canvas.draw()
    low, high = axis.get_xlim()
    shown = [text.get_text() for text in axis.get_xticklabels() if low <= text.get_position()[0] <= high]
    assert ticks in (None, shown)


def test_the_json_has_each_seed_and_the_aggregates_over_complete_seeds(numbers):
    for cell in numbers["cells"]:
        expected = SCORES[cell["method"], cell["environment"]]
        assert cell["sampled"] == expected
        assert cell["greedy"] == [score + 1 for score in expected]
        np.testing.assert_allclose(
            cell["normalised"], envs.normalised_score(cell["environment"], np.array(expected))
        )
    for one in numbers["aggregates"]:
        complete = {"ROSMO": 3, "MZU": 2}[one["method"]]
        scores = [
            envs.normalised_score(environment, np.array(SCORES[one["method"], environment][:complete]))
            for environment in ("catch", "cartpole")
        ]
        assert one["seeds"] == complete
        assert one["iqm"] == pytest.approx(stats.trim_mean(np.concatenate(scores), 0.25))
        assert one["interval"][0] <= one["iqm"] <= one["interval"][1]
    better, worse = numbers["improvement"]
    assert better["probability"] == (3 / 6 + 1) / 2  # 3 of 6 pairs on catch, all on cartpole
    assert worse["probability"] == 1 - better["probability"]
    low, high = better["interval"]
    assert low < better["probability"] < high
    assert worse["interval"] == [1 - high, 1 - low]
    assert numbers["missing"] == [
        {"method": "MZU", "environment": "cartpole", "setting": "", "seed": 2, "updates": 1_000}
    ]


def test_each_method_is_counted_by_its_own_configuration(numbers):
    calls = {(cell["method"], cell["environment"]): cell["model_calls"] for cell in numbers["cells"]}
    for environment in ("catch", "cartpole"):  # both of three actions; the searches have four simulations
        assert calls["ROSMO", environment] == 128 * (6 * 3 + 5)
        assert calls["MZU", environment] == 128 * (9 * 4 + 5)
    seconds = {cell["method"]: cell["seconds_per_update"] for cell in numbers["cells"]}
    assert seconds["ROSMO"] == pytest.approx(1 / np.median([100, 1_100, 2_100, 10_000]))


def test_a_budget_takes_the_last_evaluation_within_it(numbers):
    for one, quantity in itertools.product(numbers["over_compute"], ("flops", "seconds")):
        budgets, scores = (np.array(one[quantity][name]) for name in ("budget", "iqm"))
        cells = [cell for cell in numbers["cells"] if cell["method"] == one["method"]]
        cost = "flops" if quantity == "flops" else "seconds_per_update"
        updates, complete = {"ROSMO": (4_000, 3), "MZU": (2_000, 2)}[one["method"]]
        assert budgets[-1] == pytest.approx(updates * max(cell[cost] for cell in cells))
        final = next(a["iqm"] for a in numbers["aggregates"] if a["method"] == one["method"])
        assert scores[-1] == pytest.approx(final)
        # Evaluations are 1,000 updates apart; one after `step` updates returned step / 1,000 everywhere.
        dearest = max(cell[cost] for cell in cells)
        within = (budgets > 1_001 * dearest) & (budgets < 1_999 * min(cell[cost] for cell in cells))
        early = [envs.normalised_score(name, np.ones(complete)) for name in ("catch", "cartpole")]
        assert within.any()
        np.testing.assert_allclose(scores[within], stats.trim_mean(np.concatenate(early), 0.25))


def test_curves_are_of_the_evaluations_that_all_seeds_have(numbers):
    cell = next(c for c in numbers["cells"] if (c["method"], c["environment"]) == ("ROSMO", "cartpole"))
    late = np.mean([1 / (100 + seed) for seed in range(3)])  # seconds of an update, by the mean seed
    assert cell["curve"] == {
        "seconds": pytest.approx([0, 1_000 * late, 2_000 * late, 40]),
        "updates": [0, 1_000, 2_000, 4_000],
        "mean": [0.0, 1.0, 2.0, 950.0],
        "std": [0.0, 0.0, 0.0, 50.0],
        "seeds": [[0.0, 1.0, 2.0, 900.0], [0.0, 1.0, 2.0, 1000.0], [0.0, 1.0, 2.0, 950.0]],
    }


def test_a_profile_is_the_share_of_runs_above_a_score(numbers):
    scores = np.concatenate([
        envs.normalised_score(environment, np.array(SCORES["ROSMO", environment]))
        for environment in ("catch", "cartpole")
    ])  # fmt: skip
    profile = next(one for one in numbers["profiles"]["methods"] if one["method"] == "ROSMO")
    thresholds = np.array(numbers["profiles"]["thresholds"])
    np.testing.assert_allclose(profile["share"], (scores[:, None] > thresholds).mean(0))
    assert 0 < np.mean(profile["share"]) < 1


def test_figures_draw_the_numbers(numbers):
    numbers = numbers | {"figure": "lines", "settings": ["", "other"], "axis": "x"}
    figures = draw(numbers)
    points = {line.get_label(): line.get_ydata() for line in figures["main"].axes[0].get_lines()}
    for one in numbers["aggregates"]:
        np.testing.assert_array_equal(points[one["method"]], [one["iqm"]])
    for axis, environment in zip(figures["curves"].axes, numbers["environments"], strict=True):
        cells = [cell for cell in numbers["cells"] if cell["environment"] == environment]
        drawn = {line.get_label(): line.get_ydata() for line in axis.get_lines()}
        assert {name: list(values) for name, values in drawn.items()} == {
            cell["method"]: cell["curve"]["mean"] for cell in cells
        }
    bars = draw(numbers | {"figure": "bars"})["main"].axes[0].patches
    assert [bar.get_width() for bar in bars] == [one["iqm"] for one in numbers["aggregates"]]


def test_a_method_and_its_variants_keep_their_colour():
    names = ["OneStep", "MZU, N = 4", "MZU, unroll 1", "MZU-Q", "ROSMO"]
    looks = style.looks(names)
    assert looks["ROSMO"] == style.looks(["ROSMO"])["ROSMO"]
    assert looks["MZU, N = 4"] == style.looks(["MZU"])["MZU"]
    assert looks["MZU, unroll 1"]["color"] == looks["MZU, N = 4"]["color"]
    assert len({(look["color"], look["linestyle"]) for look in looks.values()}) == len(names)
    many = style.looks([f"method {number}" for number in range(9)])
    assert len({(look["color"], look["linestyle"]) for look in many.values()}) == 9


def test_a_report_that_cannot_be_made_leaves_the_last_one(tmp_path, monkeypatch):
    (tmp_path / "one.toml").write_text(WITH_SETTINGS)
    experiment = experiments.load(str(tmp_path / "one.toml"))
    finish(begin(tmp_path / "runs", next(experiment.cells())), 15_000, 1.0)
    results = gather(experiment, tmp_path / "runs")
    write(results, tmp_path / "docs")
    before = {path.name: path.read_bytes() for path in (tmp_path / "docs").iterdir()}
    monkeypatch.setattr(tables, "compute", lambda summary: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(results, tmp_path / "docs")
    assert {path.name: path.read_bytes() for path in (tmp_path / "docs").iterdir()} == before


def test_a_run_without_metrics_is_named(tmp_path):
    (tmp_path / "one.toml").write_text(WITH_SETTINGS)
    experiment = experiments.load(str(tmp_path / "one.toml"))
    folder = begin(tmp_path / "runs", next(experiment.cells()))
    finish(folder, 15_000, 1.0)
    folder.metrics.path.unlink()
    with pytest.raises(ValueError, match=r"rosmo-catch-0/seed0/metrics\.csv has no rows"):
        gather(experiment, tmp_path / "runs")


def test_a_bar_in_a_name_breaks_no_table():
    text = tables.table(["P", "A|B"], [["A|B", "1"]])
    assert text.splitlines() == ["| P | A\\|B |", "| --- | ---: |", "| A\\|B | 1 |"]


def test_one_seed_of_one_environment_makes_a_report_without_intervals(tmp_path):
    (tmp_path / "one.toml").write_text(WITH_SETTINGS)
    experiment = experiments.load(str(tmp_path / "one.toml"))
    first = next(experiment.cells())
    finish(begin(tmp_path / "runs", first), 15_000, 1.0)
    text = write(gather(experiment, tmp_path / "runs"), tmp_path / "docs").read_text()
    assert "| ROSMO | 0 | 1.000 | 1 × 15,000 |\n| ROSMO | 0.5 | — | — |" in text
    assert "| ROSMO | 0 | 1.000 | — | 1 |\n| ROSMO | 0.5 | — | — | — |" in text
    assert "A single seed has no interval. Of fewer than 4 runs, the IQM is the plain mean." in text
    assert "P(row > column)" not in text


def test_runs_that_are_missing_alike_are_said_once():
    def said(*missing: tuple[str, str, int]) -> list[str]:
        keys = ("method", "environment", "seed")
        lacking = [dict(zip(keys, one, strict=True)) | {"setting": "", "updates": 0} for one in missing]
        grid = {"settings": [""], "methods": ["A", "B"], "environments": ["x", "y"]}
        return tables.missing(grid | {"missing": lacking}).splitlines()

    cells = [(method, environment) for method in "AB" for environment in "xy"]
    assert said(*((m, e, s) for m, e in cells for s in (1, 2))) == ["Seeds 1, 2, everywhere."]
    assert said(*((m, e, 2) for m, e in cells), ("B", "y", 3))[2:] == [
        "| A | x, y | 2 |",
        "| B | x | 2 |",
        "| B | y | 2, 3 |",
    ]
    assert said(("A", "y", 1))[2:] == ["| A | y | 1 |"]


def test_a_run_of_other_settings_is_named(tmp_path):
    (tmp_path / "one.toml").write_text(WITH_SETTINGS)
    runs = tmp_path / "runs"
    finish(begin(runs, next(experiments.load(str(tmp_path / "one.toml")).cells())), 15_000, 1.0)
    (tmp_path / "one.toml").write_text(WITH_SETTINGS.replace("noise = 0.0", "noise = 0.1"))
    results = gather(experiments.load(str(tmp_path / "one.toml")), runs)
    text = write(results, tmp_path / "docs").read_text()
    assert (
        "1 of them had other settings than the experiment's file has now (the first: rosmo-catch-0/" in text
    )


def test_without_reference_scores_there_are_returns_alone(tmp_path, monkeypatch):
    monkeypatch.delitem(envs.references, "catch")
    (tmp_path / "one.toml").write_text(WITH_SETTINGS)
    experiment = experiments.load(str(tmp_path / "one.toml"))
    for cell in experiment.cells():
        finish(begin(tmp_path / "runs", cell), 15_000, 1.0)
    text = write(gather(experiment, tmp_path / "runs"), tmp_path / "docs").read_text()
    assert "None. The library has no reference scores of catch to normalise by." in text
    assert sorted(path.name for path in (tmp_path / "docs").glob("*.png")) == ["clock.png", "curves.png"]


def test_no_finished_run_is_one_sentence_that_says_what_to_run(tmp_path, capsys):
    assert main(["report", "noise", "--out", str(tmp_path / "runs"), "--to", str(tmp_path / "docs")]) == 1
    error = capsys.readouterr().err
    assert f"rosmo experiment noise --out {tmp_path / 'runs'}" in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_environment_without_reference_scores_is_named_beside_those_that_have_some(numbers):
    text = "".join(_aggregates(numbers, {"profile": "profile.png"}))
    assert "no reference scores" not in text
    cells = [*numbers["cells"], {"environment": "mine", "normalised": [None]}]
    wider = numbers | {"environments": [*numbers["environments"], "mine", "unfinished"], "cells": cells}
    text = "".join(_aggregates(wider, {"profile": "profile.png"}))
    assert "has no reference scores of mine to normalise by" in text
