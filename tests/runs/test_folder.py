import importlib.metadata
import json

import pytest

from rosmo.cli import main
from rosmo.report import learning_curve
from rosmo.runs.folder import RunFolder
from rosmo.runs.metrics import MetricsTable


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
    settings = {"data_dir": "data", "wandb": None, "data": None, "mesh": "data=1", "seed": 3}
    folder.begin("a = 1", settings)
    assert folder.exists()
    assert folder.read_config() == "a = 1"
    assert folder.read_settings() == settings | {"imports": []}
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
        ("settings.json", b""),
        ("settings.json", b'{"imports": [], "data_dir": "x", "wandb": null, "seed": 1}'),
        ("settings.json", b'{"imports": [], "data_dir": "x", "wandb": null, "data": null, "seed": "1"}'),
        ("settings.json", b'{"imports": [], "data_dir": "x", "wandb": null, "data": null, "seed": true}'),
        ("settings.json", b'{"imports": [], "data_dir": "x", "wandb": null, "data": null, "seed": -1}'),
        ("settings.json", b'{"imports": [], "data_dir": "x", "wandb": null, "data": null, "seeds": 0}'),
        ("settings.json", b'{"imports": [], "data_dir": "x", "wandb": null, "data": null, "seeds": 99999}'),
        (
            "settings.json",
            b'{"imports": [], "data_dir": "x", "wandb": null, "data": null, "seed": 2147483648}',
        ),
        (
            "settings.json",
            b'{"imports": [], "data_dir": "x", "wandb": null, "data": null, "seed": 1, "mesh": "data=x"}',
        ),
        ("settings.json", b'{"imports": [3], "data_dir": "x", "wandb": null, "data": null, "seed": 1}'),
        ("metrics.csv", b"loss\n1\n"),
        ("metrics.csv", b"\x89PNG\r\n\x1a\n"),
        ("config.gin", b"\xff\xfe"),
        ("config.gin", b"\n"),
        ("metrics.csv", b"step,loss\n1,6x0\n"),
        ("metrics.csv", b"step\n\xff\n"),
        ("metrics.csv", b"step\n1,2\n"),
        ("metrics.csv", b"step\n" + 200_000 * b"1" + b"\n"),  # more than a cell may hold
    ],
)
def test_a_damaged_file_of_a_run_is_named(file, contents, tmp_path):
    (tmp_path / file).write_bytes(contents)
    folder = RunFolder(tmp_path)
    read = {"settings.json": folder.read_settings, "config.gin": folder.read_config}
    with pytest.raises(ValueError, match=f"{file} is damaged .*: move the run's folder away"):
        read.get(file, folder.updates_taken)()


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


def test_the_rows_that_a_table_has_lost_are_known(tmp_path):
    table = MetricsTable(tmp_path / "metrics.csv")
    for step in (0, 5, 15):
        table.append({"step": step, "loss": 1.0})
    assert table.missing(20, 5) == [10, 20]
    assert table.missing(5, 5) == table.missing(-1, 5) == []
    assert table.missing(17, 5) == [10, 17]


def test_a_link_where_a_file_is_written_is_not_followed(tmp_path):
    (tmp_path / "outside").write_text("keep me")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    (folder.path / "config.gin.tmp").symlink_to(tmp_path / "outside")
    folder.begin("a = 1", {"data_dir": "d", "wandb": None, "data": None, "seed": 0})
    assert (tmp_path / "outside").read_text() == "keep me"
    assert folder.read_config() == "a = 1"


@pytest.mark.parametrize(
    "name", [".lock", "log.txt", "metrics.csv", "operative_config.gin", "learning_curve.png"]
)
def test_a_run_that_goes_on_writes_through_no_link(name, tmp_path, capsys):
    folder, mine = RunFolder(tmp_path / "run"), tmp_path / "mine"
    folder.begin("a = 1", {"data_dir": "data", "wandb": None, "data": None, "mesh": "data=1", "seed": 3})
    mine.write_text("thesis")
    (folder.path / name).symlink_to(mine)
    assert main(["train", "--resume", str(folder.path)]) == 1
    assert f"{name} is a symbolic link" in capsys.readouterr().err
    assert mine.read_text() == "thesis"
