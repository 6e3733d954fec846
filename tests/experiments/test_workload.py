from pathlib import Path

import pytest

from rosmo.experiments.workload import Workload
from rosmo.runs import progress
from rosmo.runs.folder import RunFolder


def a_run(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.begin("", {})
    return folder


def test_the_time_left_is_that_of_each_kind_of_run(tmp_path):
    fast, fast_too, slow, unseen = (
        a_run(tmp_path / name) for name in ("bc/seed0", "bc/seed1", "mzu/seed0", "rosmo/seed0")
    )
    fast.metrics.append({"step": 1_000, "updates_per_second": 1_000.0})
    work = Workload({fast: 1_000, fast_too: 1_000, slow: 1_000, unseen: 2_000})
    assert (work.done, work.total) == (1_000, 5_000)
    assert work.seconds_left(1) == pytest.approx(4_000 / 1_000)  # all that was seen is fast
    slow.metrics.append({"step": 500, "updates_per_second": 10.0})
    assert work.look([slow]) == 500
    mean = (1 / 1_000 + 1 / 10) / 2
    assert work.seconds_left(2) == pytest.approx((1_000 / 1_000 + 500 / 10 + 2_000 * mean) / 2)


def test_updates_that_are_repeated_count_once(tmp_path):
    run = a_run(tmp_path / "seed0")
    work = Workload({run: 3_000})
    assert work.seconds_left(1) is None
    for step, more in ((2_000, 2_000), (1_000, 0), (2_500, 500)):
        run.metrics.path.unlink(missing_ok=True)
        RunFolder(run.path).metrics.append({"step": step})
        assert work.look([run]) == more


@pytest.mark.parametrize("terminal", [False, True])
def test_a_display_that_is_told_the_time_left_shows_it(terminal, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    shown = progress.show(1_000, "grid", unit="updates")
    shown.advance(10, "3 runs left", 3_723.0)
    shown.close()
    assert "1:02:03" in capsys.readouterr().err


def test_a_log_says_nothing_twice(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    shown = progress.show(1_000, "grid", unit="updates")
    for amount, note in ((10, "3 runs left"), (0, "3 runs left"), (0, "2 runs left"), (5, "2 runs left")):
        shown.advance(amount, note)
    lines = capsys.readouterr().err.splitlines()
    assert ["10/1,000" in line for line in lines] == [True, True, False]
