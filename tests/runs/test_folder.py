import importlib.metadata
import json

import pytest

from rosmo.report import learning_curve
from rosmo.runs.folder import MetricsTable, RunFolder


def test_rows_come_back_with_columns_that_were_added_later(tmp_path):
    table = MetricsTable(tmp_path / "metrics.csv")
    table.append({"step": 0, "return": -1.0})
    table.append({"step": 10, "loss": 0.5})
    table.append({"step": 20, "loss": 0.25, "return": 1.0})
    expected = [{"step": 0, "return": -1}, {"step": 10, "loss": 0.5}, {"step": 20, "loss": 0.25, "return": 1}]
    assert table.rows() == expected
    assert MetricsTable(table.path).rows() == expected


def test_a_row_that_was_cut_off_is_not_read_and_not_kept(tmp_path):
    table = MetricsTable(tmp_path / "metrics.csv")
    table.append({"step": 10, "loss": 0.5})
    table.append({"step": 20, "loss": 0.25})
    with table.path.open("a") as file:
        file.write("30,0.1")
    assert [row["step"] for row in table.rows()] == [10, 20]
    resumed = MetricsTable(table.path)
    resumed.truncate(10)
    resumed.append({"step": 20, "loss": 0.125})
    assert resumed.rows() == [{"step": 10, "loss": 0.5}, {"step": 20, "loss": 0.125}]


def test_a_header_that_was_cut_off_begins_anew(tmp_path):
    table = MetricsTable(tmp_path / "metrics.csv")
    table.path.write_text("step,retu")
    table.truncate(0)
    table.append({"step": 1, "return": 2.0})
    assert table.rows() == [{"step": 1, "return": 2.0}]


def test_a_folder_is_a_run_once_everything_is_written(tmp_path):
    folder = RunFolder(tmp_path / "deep" / "run")
    assert not folder.exists()
    with pytest.raises(FileNotFoundError, match="is no run"):
        folder.read_settings()
    folder.begin("a = 1", {"seed": 3})
    assert folder.exists()
    assert folder.config.read_text() == "a = 1"
    assert folder.read_settings() == {"seed": 3}
    versions = json.loads((folder.path / "versions.json").read_text())
    assert versions["jax"].count(".") == 2
    for package in ("ale-py", "minatar", "zstandard", "tensorflow-datasets"):
        assert versions[package] == importlib.metadata.version(package)


@pytest.mark.parametrize(
    "text",
    ['{"step": 1, "sam', "", "[]", '{"step": 1, "greedy": [1.0]}']
    + [f'{{"step": 1, "sampled": {returns}, "greedy": [1.0]}}' for returns in ("[]", "[NaN]", "3", '["x"]')],
)
def test_a_damaged_result_is_named(text, tmp_path):
    folder = RunFolder(tmp_path)
    folder.result.write_text(text)
    with pytest.raises(ValueError, match=r"result\.json is damaged \(.+\): delete it"):
        folder.read_result()


@pytest.mark.parametrize(
    ("file", "contents"),
    [
        ("settings.json", b"{"),
        ("settings.json", b"3"),
        ("metrics.csv", b"step,loss\n1,6x0\n"),
        ("metrics.csv", b"step\n\xff\n"),
        ("metrics.csv", b"step\n1,2\n"),
        ("metrics.csv", b"step\n" + 200_000 * b"1" + b"\n"),  # more than a cell may hold
    ],
)
def test_a_damaged_file_of_a_run_is_named(file, contents, tmp_path):
    (tmp_path / file).write_bytes(contents)
    folder = RunFolder(tmp_path)
    with pytest.raises(ValueError, match=f"{file} is damaged .*: move the run's folder away"):
        folder.read_settings() if file == "settings.json" else folder.updates_taken()


def test_one_process_at_a_time_trains_in_a_folder(tmp_path):
    folder = RunFolder(tmp_path)
    with (
        folder.held(),
        pytest.raises(BlockingIOError, match="another process is training"),
        RunFolder(tmp_path).held(),
    ):
        pass
    with folder.held():
        pass


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_curve_is_drawn_of_one_seed_and_of_several(tmp_path, seeds):
    rows = [
        {"step": 0, "return": -1.0, "return_stderr": 0.1},
        {"step": 5, "loss": 1.0},
        {"step": 10, "return": 1.0},
    ]
    path = tmp_path / "curve.png"
    learning_curve([rows] * seeds, path, title="a run", top=1.0)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_nothing_is_drawn_of_nothing(tmp_path):
    learning_curve([[]], tmp_path / "curve.png", title="empty")
    assert not (tmp_path / "curve.png").exists()
