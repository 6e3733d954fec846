"""Data sets appear on disk whole or not at all, whatever ends their writer."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rosmo
from rosmo.data import rlds
from tests.recorded import FORMATS, assert_equal, episode, joined, write


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_data_set_is_replaced_only_when_asked(tmp_path, episodes):
    (tmp_path / "d").mkdir()  # an empty directory is in nobody's way
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    with pytest.raises(FileExistsError, match="there is a data set in"):
        write(tmp_path / "d", episodes[:2])
    assert contents(tmp_path / "d") == before
    write(tmp_path / "d", episodes[:2], file_format="tfrecord", overwrite=True)
    assert_equal(rlds.read(tmp_path / "d"), joined(episodes[:2]))
    assert os.listdir(tmp_path) == ["d"]


def test_what_is_no_data_set_is_never_replaced(tmp_path, episodes):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="exists and is no data set"):
        write(tmp_path / "home", episodes, overwrite=True)
    assert os.listdir(tmp_path / "home") == ["thesis.tex"]
    assert os.listdir(tmp_path) == ["home"]


def test_one_can_ask_before_the_work_whether_a_directory_is_free(tmp_path, episodes, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("home", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    write(tmp_path / "d", episodes)
    for free in (tmp_path / "missing", str(tmp_path / "empty")):
        rlds.refuse_existing(free, False)
    rlds.refuse_existing("~/d", True)
    with pytest.raises(FileExistsError, match="there is a data set in"):
        rlds.refuse_existing("~/d", False)
    with pytest.raises(FileExistsError, match="exists and is no data set"):
        rlds.refuse_existing(tmp_path / "home", True)


@pytest.mark.parametrize("error", [RuntimeError, OSError, KeyboardInterrupt])
@pytest.mark.parametrize("file_format", FORMATS)
def test_an_interrupted_source_leaves_what_there_was(tmp_path, episodes, file_format, error):
    def interrupted():
        yield from episodes[:3]
        raise error("the source's own words")

    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    with pytest.raises(error, match=r"^the source's own words"):
        write(tmp_path / "d", interrupted(), file_format=file_format, overwrite=True)
    with pytest.raises(error):
        write(tmp_path / "new", interrupted(), file_format=file_format)
    assert contents(tmp_path / "d") == before
    assert os.listdir(tmp_path) == ["d"]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_full_disk_leaves_what_there_was(tmp_path, episodes, file_format, full_disk):
    rng = np.random.default_rng(7)
    large = [episode(rng, 99, shape=(8, 8, 8), dtype="float64") for _ in range(3)]
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    full_disk()
    with pytest.raises(OSError, match=r"could not write the data set .*/d \(.*File too large.*as it was"):
        write(tmp_path / "d", large, file_format=file_format, overwrite=True)
    with pytest.raises(OSError, match="could not write the data set"):
        write(tmp_path / "new", large, file_format=file_format)
    assert contents(tmp_path / "d") == before
    assert os.listdir(tmp_path) == ["d"]


def test_a_failing_last_rename_puts_back_what_there_was(tmp_path, episodes, monkeypatch):
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    rename = Path.rename

    def failing(self, target):
        if "incomplete" in self.name:
            raise OSError("no such luck")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no such luck"):
        write(tmp_path / "d", episodes[:2], overwrite=True)
    assert contents(tmp_path / "d") == before
    assert os.listdir(tmp_path) == ["d"]


KILLED = """
import sys, numpy as np
from rosmo import Trajectory
from rosmo.data import rlds
step = np.arange(4)
def endless():
    rng = np.random.default_rng(0)
    for i in range(10**9):
        yield Trajectory(rng.random((4, 1000)), step.astype(np.int32), np.ones(4, np.float32),
                         np.ones(4, np.float32), step == 0, step == 3, step == 3)
        if i == 100:
            print("writing", flush=True)
rlds.write(sys.argv[1], endless(), name="tiny", metadata={}, file_format=sys.argv[2], overwrite=True)
"""


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_killed_writer_leaves_nothing_that_loads(tmp_path, episodes, file_format):
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    environment = os.environ | {"PYTHONPATH": str(Path(rosmo.__file__).parents[1])}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "d"), file_format]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        with pytest.raises(RuntimeError, match="another process is writing"):
            write(tmp_path / "d", episodes[:2], overwrite=True)
        writer.send_signal(signal.SIGKILL)
    assert sorted(os.listdir(tmp_path)) == [".d.incomplete", "d"]
    assert contents(tmp_path / "d") == before
    assert_equal(rlds.read(tmp_path), joined(episodes))  # the only one below
    with pytest.raises(ValueError, match="is no TFDS data set"):
        rlds.read(tmp_path / ".d.incomplete")
    (tmp_path / ".d.incomplete" / "shard-9").touch()
    write(tmp_path / "d", episodes[:2], overwrite=True, file_format=file_format)
    assert os.listdir(tmp_path) == ["d"]
    assert not list((tmp_path / "d").glob("shard-*"))
    assert_equal(rlds.read(tmp_path / "d"), joined(episodes[:2]))


def test_what_writers_left_is_not_taken_for_a_data_set(tmp_path, episodes):
    write(tmp_path / "d", episodes)
    for name in (".d.incomplete", ".d.previous", "2.0.0.incompleteXYZ"):
        shutil.copytree(tmp_path / "d", tmp_path / name)
    assert_equal(rlds.read(tmp_path), joined(episodes))


def test_a_writer_killed_between_its_renames_loses_nothing(tmp_path, episodes):
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    (tmp_path / "d").rename(tmp_path / ".d.previous")
    with pytest.raises(FileNotFoundError, match=r"rename .*/\.d\.previous to get it back"):
        rlds.read(tmp_path / "d")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write(tmp_path / "d", episodes[:2])
    assert contents(tmp_path / "d") == before
    assert os.listdir(tmp_path) == ["d"]


@pytest.mark.parametrize("name", [".d.incomplete", ".d.previous"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_where_a_writer_works_is_not_followed(tmp_path, episodes, name, there):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    target = tmp_path / "mine" if there else tmp_path / "nowhere"
    (tmp_path / name).symlink_to(target)
    with pytest.raises(FileExistsError, match=rf"/{name} is a symbolic link .*: remove the link"):
        write(tmp_path / "d", episodes)
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]
    assert sorted(os.listdir(tmp_path)) == sorted([name, "mine"])


def test_two_writers_do_not_mix(tmp_path, episodes):
    def meddling():
        yield episodes[0]
        with pytest.raises(RuntimeError, match=r"another process is writing .*/d: wait for it"):
            write(tmp_path / "d", episodes)
        yield episodes[1]

    write(tmp_path / "d", meddling())
    assert_equal(rlds.read(tmp_path / "d"), joined(episodes[:2]))
