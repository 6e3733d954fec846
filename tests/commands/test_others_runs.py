"""Runs that somebody else has made: none of their code runs unasked, and they work wherever they lie."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rosmo.cli import main
from rosmo.runs.folder import RunFolder
from tests.commands.test_train import BINDINGS, data  # noqa: F401

PART = """
import pathlib
import helper_of_mine
from rosmo import operators

pathlib.Path({mark!r}).touch()


@operators.register("mine")
def mine(params, rng_key, root, recurrent_fn, *, invalid_actions=None):
    '''A look-ahead under another name.'''
    assert helper_of_mine.VALUE == 3
    return operators.one_step(params, rng_key, root, recurrent_fn, invalid_actions=invalid_actions)
"""


def command(*arguments) -> subprocess.CompletedProcess:
    program = [sys.executable, "-m", "rosmo", *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, timeout=1_800, check=False)


@pytest.fixture(scope="module")
def shared(data, tmp_path_factory):  # noqa: F811
    """A run with a part of its author's own, moved elsewhere after its files were deleted."""
    home, away = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("away")
    mark = away / "executed"
    (home / "parts_of_mine.py").write_text(PART.format(mark=str(mark)))
    (home / "helper_of_mine.py").write_text("VALUE = 3\n")
    done = command(
        "train", *BINDINGS, "-p", "num_updates = 5", "--import", home / "parts_of_mine.py",
        "-p", "operator = @mine", "--data-dir", data, "--run", home / "run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shutil.move(home / "run", away / "run")
    shutil.rmtree(home)
    mark.unlink()
    return away / "run", mark


def test_a_run_keeps_its_modules_with_their_checksums(shared):
    run, _ = shared
    [module] = RunFolder(run).read_settings()["imports"]
    assert module["name"] == "parts_of_mine.py"
    assert sorted(module["files"]) == ["helper_of_mine.py", "parts_of_mine.py"]
    assert (run / "imports" / "0" / "helper_of_mine.py").read_text() == "VALUE = 3\n"


@pytest.mark.parametrize("arguments", [["evaluate"], ["train", "--resume"]])
def test_its_code_does_not_run_unasked(arguments, shared):
    run, mark = shared
    done = command(*arguments, run)
    assert done.returncode == 1
    assert "would run code that it brings with it (parts_of_mine.py)" in done.stderr
    assert "--trust" in done.stderr
    assert "--import" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not mark.exists()


def test_with_trust_it_is_played_in_its_new_place(shared):
    run, mark = shared
    done = command("evaluate", run, "--episodes", 1, "--trust", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scores"]
    assert mark.exists()
    mark.unlink()


OPENED = """
import sys
import numpy as np
import rosmo
trained = rosmo.load(sys.argv[1], trust=sys.argv[2] == "trust")
print(trained.act(np.zeros((10, 5), np.float32)))
"""


def opened(folder, consent) -> subprocess.CompletedProcess:
    program = [sys.executable, "-c", OPENED, str(folder), consent]
    return subprocess.run(program, capture_output=True, text=True, timeout=1_800, check=False)


def test_an_agent_with_code_of_its_own_is_given_away_with_it_and_runs_none_of_it_unasked(shared, tmp_path):
    run, mark = shared
    shutil.copytree(run, tmp_path / "copy")
    refused = command("export", tmp_path / "copy", tmp_path / "out")
    assert refused.returncode == 1
    assert "would run code that it brings with it" in refused.stderr
    assert not mark.exists()
    done = command("export", tmp_path / "copy", tmp_path / "out", "--trust")
    assert done.returncode == 0, done.stderr
    mark.unlink()
    shutil.rmtree(tmp_path / "copy")
    refused = opened(tmp_path / "out", "")
    assert refused.returncode == 1
    assert "would run code that it brings with it (parts_of_mine.py)" in refused.stderr
    assert "trust=True" in refused.stderr
    assert not mark.exists()
    done = opened(tmp_path / "out", "trust")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("0", "1", "2")
    assert mark.exists()
    mark.unlink()
    with (tmp_path / "out" / "imports" / "0" / "helper_of_mine.py").open("a") as file:
        file.write("import os\n")
    changed = opened(tmp_path / "out", "trust")
    assert "helper_of_mine.py is missing or has changed" in changed.stderr
    assert not mark.exists()
    assert "executes: read it first" in (tmp_path / "out" / "README.md").read_text()


def test_a_module_of_ones_own_can_take_the_place_of_its(shared, tmp_path):
    run, mark = shared
    (tmp_path / "own.py").write_text(PART.format(mark=str(tmp_path / "own")).replace("== 3", "== 4"))
    (tmp_path / "helper_of_mine.py").write_text("VALUE = 4\n")
    done = command("evaluate", run, "--episodes", 1, "--import", tmp_path / "own.py")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "own").exists()
    assert not mark.exists()


def test_a_module_that_was_changed_is_refused(shared, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(shared[0], run)
    with (run / "imports" / "0" / "helper_of_mine.py").open("a") as file:
        file.write("import os\n")
    done = command("evaluate", run, "--trust")
    assert done.returncode == 1
    assert "helper_of_mine.py is missing or has changed since the run was begun" in done.stderr
    assert not shared[1].exists()


@pytest.mark.parametrize(
    "text",
    [
        "import evil_module_of_theirs\n",
        "  from os import system\n",
        "include '/etc/passwd'\n",
        "from __gin__ import dynamic_registration\nimport subprocess\n",
    ],
)
def test_a_configuration_of_a_run_imports_nothing(text, shared, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    shutil.copytree(shared[0], run)
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(settings | {"imports": []}))
    (run / "config.gin").write_text(text + (run / "config.gin").read_text())
    (tmp_path / "evil_module_of_theirs.py").write_text("raise SystemExit('executed')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for arguments in (["evaluate", str(run)], ["evaluate", str(run), "--trust"]):
        assert main(arguments) == 1
        assert "which is not read, as it could run any code" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("what is this", "config.gin: "),
        ("dynamics = (8,)\n", "config.gin does not say what was trained: move the run's folder away"),
    ],
)
def test_a_configuration_of_a_run_that_is_none_is_named(text, message, shared, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(shared[0], run)
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(settings | {"imports": []}))
    (run / "config.gin").write_text(text)
    assert main(["evaluate", str(run)]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_gin_file_imports_nothing(tmp_path, capsys):
    (tmp_path / "mine.gin").write_text("include 'bsuite/rosmo.gin'\nimport os\n")
    assert main(["train", str(tmp_path / "mine.gin")]) == 1
    assert "mine.gin says 'import os', which is not read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "include'{}'",
        "include '''{}'''",
        "include r'{}'",
        "include \\\n'{}'",
        "include '' '{}'",
        "include '{}' ''",
    ],
)
def test_a_gin_file_imports_nothing_by_way_of_another(line, tmp_path, monkeypatch, capsys):
    """However gin lets it be written."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil_module_of_theirs.py").write_text("raise SystemExit('executed')\n")
    (tmp_path / "evil.gin").write_text("import evil_module_of_theirs\n")
    (tmp_path / "mine.gin").write_text(f"include 'bsuite/rosmo.gin'\n{line.format(tmp_path / 'evil.gin')}\n")
    assert main(["train", str(tmp_path / "mine.gin")]) == 1
    error = capsys.readouterr().err
    assert "mine.gin says" in error
    assert "write it as include 'NAME.gin'" in error
    (tmp_path / "mine.gin").write_text(f"include '{tmp_path / 'evil.gin'}'  # as it should be written\n")
    assert main(["train", str(tmp_path / "mine.gin")]) == 1
    assert "says 'import evil_module_of_theirs', which is not read" in capsys.readouterr().err


def test_a_binding_includes_nothing(tmp_path, capsys):
    (tmp_path / "evil.gin").write_text("import os\n")
    assert main(["train", "-p", f"include '{tmp_path / 'evil.gin'}'"]) == 1
    assert "a binding says" in capsys.readouterr().err


def test_what_is_included_is_what_gin_reads(tmp_path, monkeypatch, capsys):
    """A file of one's own comes before a packaged one of its name, and the ending is part of the name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bsuite").mkdir()
    (tmp_path / "bsuite" / "rosmo.gin").write_text("import os\n")
    (tmp_path / "bsuite" / "rosmo").write_text("")
    (tmp_path / "mine.gin").write_text("include 'bsuite/rosmo.gin'\n")
    assert main(["train", "mine.gin"]) == 1
    assert "says 'import os', which is not read" in capsys.readouterr().err
    (tmp_path / "mine.gin").write_text("include 'bsuite/rosmos.gin'\n")
    assert main(["train", "mine.gin"]) == 1
    assert "no file 'bsuite/rosmos.gin' to include" in capsys.readouterr().err


def test_a_gin_file_that_includes_itself_is_named(tmp_path, capsys):
    path = tmp_path / "mine.gin"
    path.write_text(f"include '{path}'\n")
    assert main(["train", str(path)]) == 1
    error = capsys.readouterr().err
    assert "mine.gin includes itself" in error
    assert error.count("\n") == 1


def test_a_file_outside_of_the_run_is_refused(shared, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(shared[0], run)
    settings = json.loads((run / "settings.json").read_text())
    for place in ("../outside.py", str(Path("/etc/outside.py"))):
        settings["imports"] = [{"name": "outside.py", "files": {place: "0"}}]
        (run / "settings.json").write_text(json.dumps(settings))
        assert main(["evaluate", str(run), "--trust"]) == 1
        assert "has a file outside of the run" in capsys.readouterr().err
