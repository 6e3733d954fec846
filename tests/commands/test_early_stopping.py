"""Runs that score their checkpoints on the way and keep the best, as a user trains them."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import rosmo
from rosmo import experiments
from rosmo.cli import main
from rosmo.commands.report import gather
from rosmo.evaluate.selection import Judge
from rosmo.report import write
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.folder import RunFolder
from rosmo.runs.selecting import best_of
from tests.commands.test_train import BINDINGS, data  # noqa: F401

SELECT = ["num_updates = 25", "eval_every = 5", "keep = 1", "select_updates = 20"]
BOTH = [*SELECT, "select_by = ('td_error', 'return')", "ensemble = 2", "pessimism = 0.5"]


def train(data: Path, run: Path, *bindings: str, agent: str = "rosmo") -> int:  # noqa: F811
    said = [part for binding in bindings for part in ("-p", binding)]
    return main(["train", f"bsuite/{agent}", *BINDINGS, *said, "--data-dir", str(data), "--run", str(run)])


def steps_of(run: Path) -> list[int]:
    checkpoints = Checkpoints(run / "checkpoints")
    steps = checkpoints.steps
    checkpoints.close()
    return steps


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> Path:  # noqa: F811
    run = tmp_path_factory.mktemp("selected") / "run"
    assert train(data, run, *BOTH) == 0
    return run


def test_the_best_checkpoints_are_kept_beside_the_newest_and_scored(run):
    rows = RunFolder(run).metrics.rows()
    errors = {int(row["step"]): row["select/td_error"] for row in rows if "select/td_error" in row}
    returns = {int(row["step"]): row["select/return"] for row in rows if "select/return" in row}
    assert list(errors) == list(returns) == [5, 10, 15, 20, 25]
    assert returns == {int(row["step"]): row["return"] for row in rows if row["step"] > 0}
    best = {"td_error": min(errors, key=errors.__getitem__), "return": max(returns, key=returns.__getitem__)}
    assert steps_of(run) == sorted({*best.values(), 25})
    selected = json.loads((run / "result.json").read_text())["selected"]
    for name, step in best.items():
        assert selected[name]["step"] == step
        assert selected[name]["score"] == {"td_error": errors, "return": returns}[name][step]
        assert selected[name]["mean"]["sampled"] == pytest.approx(np.mean(selected[name]["sampled"]))
        loaded = rosmo.load(run, step=name)
        assert loaded.settings["step"] == step
        for a, b in zip(
            *(jax.tree.leaves(x.params) for x in (loaded, rosmo.load(run, step=step))), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_a_resumed_run_selects_the_same(run, data, tmp_path):  # noqa: F811
    again = tmp_path / "run"
    shutil.copytree(run, again)
    (again / "result.json").unlink()
    best = {one.step for one in best_of(RunFolder(run).metrics.rows()).values()}
    for step in steps_of(again):
        if step > 15:
            shutil.rmtree(again / "checkpoints" / str(step))
    if steps_of(again)[-1:] != [15]:  # the newest before a kill was there, chosen or not
        assert train(data, tmp_path / "whole", *BOTH, "keep = 'all'") == 0
        assert steps_of(tmp_path / "whole") == [5, 10, 15, 20, 25]
        shutil.copytree(tmp_path / "whole" / "checkpoints" / "15", again / "checkpoints" / "15")
    assert main(["train", "--resume", str(again)]) == 0
    assert steps_of(again) == sorted({*best, 25})
    one, other = (json.loads((folder / "result.json").read_text()) for folder in (run, again))
    assert one == other


def test_checkpoints_are_scored_by_the_data(data, tmp_path, monkeypatch):  # noqa: F811
    judged = []
    call = Judge.__call__

    def noted(self, agent, params, **settings):
        judged.append(call(self, agent, params, **settings))
        return judged[-1]

    monkeypatch.setattr(Judge, "__call__", noted)
    short = ["num_updates = 10", "select_updates = 20"]
    assert train(data, tmp_path / "bc", *short, "select_by = ('fqe', 'wis')", agent="bc") == 0
    rows = [row for row in RunFolder(tmp_path / "bc").metrics.rows() if row["step"] > 0]
    assert [row["select/fqe"] for row in rows] == [found.fqe.mean for found in judged]
    assert [row["select/wis"] for row in rows] == [found.wis.mean for found in judged]
    assert "return" not in rows[0]  # which is evaluated less often


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (["select_by = 'fqq'"], "cannot be selected by 'fqq'. Did you mean 'fqe'?"),
        (["select_by = 'return'"], "checkpoint_every must be a multiple of eval_every, got 5 and 50"),
        (["select_by = 'model'"], "BC has no values of its own"),
        (["keep = 0"], "keep must be a whole number of at least 1"),
        (["keep = 'some'"], "keep must be a whole number or one of 'all'"),
    ],
)
def test_what_cannot_select_is_refused_first(bindings, message, data, tmp_path, capsys):  # noqa: F811
    assert train(data, tmp_path / "run", *bindings, agent="bc") == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_that_selected_nothing_says_so(data, run, tmp_path, capsys):  # noqa: F811
    with pytest.raises(ValueError, match=r"was selected by 'fqe'; there are: td_error, return"):
        rosmo.load(run, step="fqe")
    assert main(["evaluate", str(run), "--step", "return", "--episodes", "2"]) == 0
    assert main(["evaluate", str(run), "--step", "best"]) == 1
    assert "there are: td_error, return" in capsys.readouterr().err


def test_a_report_holds_the_selected_checkpoints_beside_the_last(run, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'about = "One"\nseeds = 2\n[methods]\nROSMO = { configs = ["bsuite/rosmo"] }\n'
        '[environments]\ncatch = { configs = ["bsuite/catch"] }\n'
    )
    experiment = experiments.load(str(file))
    for cell, shift in zip(experiment.cells(), (0.0, 1.0), strict=True):
        folder = tmp_path / cell.folder
        shutil.copytree(run, folder)
        result = json.loads((folder / "result.json").read_text())
        result["sampled"] = [-1.0 + shift]
        result["selected"]["td_error"] |= {"step": 15, "sampled": [0.0 + shift]}
        result["selected"]["return"] |= {"step": 5, "sampled": [0.5 + shift]}
        (folder / "result.json").write_text(json.dumps(result))
    text = write(gather(experiment, tmp_path), tmp_path / "report").read_text()
    assert (tmp_path / "report" / "selected.png").exists()
    rows = [line for line in text.split("## Which checkpoint")[1].splitlines() if line.startswith("| ROSMO")]
    assert rows[0].startswith("| ROSMO | last | -0.500 ± 0.707 (25) | ")
    assert rows[1].startswith("| ROSMO | td_error | 0.500 ± 0.707 (15) | ")
    assert rows[2].startswith("| ROSMO | return | 1.000 ± 0.707 (5) | ")
