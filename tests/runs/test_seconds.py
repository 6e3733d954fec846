"""Runs that end by their seconds of training."""

import pytest

from rosmo.cli import main
from rosmo.runs import clock
from rosmo.runs.folder import RunFolder
from tests.commands.test_train import BINDINGS, data  # noqa: F401


@pytest.fixture
def ticking(monkeypatch):
    """A clock by which every look takes a second, so that a call of the learner does."""
    seconds = iter(range(1_000_000))
    monkeypatch.setattr(clock, "now", lambda: float(next(seconds)))


@pytest.mark.usefixtures("ticking")
def test_a_run_ends_at_the_first_row_after_its_seconds(data, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    limited = [*BINDINGS, "-p", "max_seconds = 2.5", "--mesh", "data=1"]
    assert main(["train", *limited, "--run", str(run), "--data-dir", str(data)]) == 0
    rows = RunFolder(run).metrics.rows()
    assert [row["seconds"] for row in rows] == [0, 1, 2, 3]
    assert [row["step"] for row in rows] == [0, 5, 10, 15]
    assert "return" in rows[-1], "the last row is evaluated wherever it comes"
    assert RunFolder(run).read_result().step == 15

    RunFolder(run).result.unlink()  # a kill before it was scored
    assert main(["train", "--resume", str(run)]) == 0
    assert RunFolder(run).metrics.rows() == rows
    assert RunFolder(run).read_result().step == 15


@pytest.mark.usefixtures("ticking")
def test_seconds_before_a_stop_count(data, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    short = [*BINDINGS, "-p", "num_updates = 10", "--mesh", "data=1"]
    assert main(["train", *short, "--run", str(run), "--data-dir", str(data)]) == 0
    config = RunFolder(run).config
    longer = config.read_text().replace("num_updates = 10", "num_updates = 100")
    config.write_text(longer.replace("max_seconds = None", "max_seconds = 4"))
    RunFolder(run).result.unlink()
    assert main(["train", "--resume", str(run)]) == 0
    assert [row["seconds"] for row in RunFolder(run).metrics.rows()] == [0, 1, 2, 3, 4]


def test_no_time_at_all_is_refused(tmp_path, capsys):
    arguments = [*BINDINGS, "-p", "max_seconds = 0", "--run", str(tmp_path / "run")]
    assert main(["train", *arguments]) == 1
    assert "max_seconds must be a finite number above 0, got 0" in capsys.readouterr().err
