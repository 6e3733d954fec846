"""Files that appear whole or not at all, and links that stand in the way."""

import contextlib
import functools

import pytest

from rosmo.data.files import appearing, refuse_existing, refuse_occupied, replacing_file, write_whole


@pytest.mark.parametrize("content", ["déjà", b"\xff"])
def test_a_file_is_replaced_whole(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text("before")
    (tmp_path / ".incomplete-a.json").write_text("of a writer that was killed")
    write_whole(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, full_disk):
    path = tmp_path / "a.bin"
    write_whole(path, b"before")
    full_disk()
    with pytest.raises(OSError, match="File too large"):
        write_whole(path, bytes(200_000))
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_way_is_removed_and_not_followed(tmp_path, there):
    mine = tmp_path / "mine"
    if there:
        mine.write_text("years of work")
    (tmp_path / ".incomplete-a").symlink_to(mine)
    write_whole(tmp_path / "a", "new")
    assert mine.exists() == there
    assert not there or mine.read_text() == "years of work"
    assert (tmp_path / "a").read_text() == "new"
    assert not (tmp_path / "a").is_symlink()


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    path = tmp_path / "a"
    with contextlib.ExitStack() as first:
        mine = first.enter_context(replacing_file(path))
        with replacing_file(path) as theirs:
            assert mine == theirs
            theirs.write_text("theirs")
        with pytest.raises(RuntimeError, match=r"another process is writing .*/a: wait for it"):
            first.close()
    assert path.read_text() == "theirs"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_link_that_is_put_in_the_way_meanwhile_does_not_become_the_file(tmp_path):
    with contextlib.ExitStack() as writing:
        temporary = writing.enter_context(replacing_file(tmp_path / "a"))
        temporary.unlink()
        temporary.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(RuntimeError, match="another process is writing"):
            writing.close()
    assert not (tmp_path / "a").exists()


def test_a_folder_with_folders_in_it_appears_whole_after_one_that_was_stopped(tmp_path):
    left = tmp_path / ".agent.incomplete" / "imports" / "0"
    left.mkdir(parents=True)
    (left / "old.py").write_text("of a writer that was killed")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("years of work")
    (tmp_path / ".agent.incomplete" / "link").symlink_to(elsewhere)
    with appearing(tmp_path / "agent") as made:
        assert not list(made.iterdir())
        (made / "imports").mkdir()
        (made / "imports" / "new.py").write_text("new")
    assert [path.name for path in (tmp_path / "agent").rglob("*")] == ["imports", "new.py"]
    assert (elsewhere / "mine").read_text() == "years of work"
    with (
        pytest.raises(
            FileExistsError, match="agent is there already: choose another folder, or move it away"
        ),
        appearing(tmp_path / "agent"),
    ):
        raise AssertionError("what is there would be lost")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent", "elsewhere"]


@pytest.mark.parametrize("left", [".d.incomplete", ".d.previous"])
def test_a_link_in_the_way_is_refused_before_the_work(left, tmp_path):
    (tmp_path / left).symlink_to(tmp_path / "mine")
    for ask in (refuse_occupied, functools.partial(refuse_existing, overwrite=True)):
        with pytest.raises(FileExistsError, match=r"is a symbolic link where .*/d is to be written"):
            ask(tmp_path / "d")
