"""The lines of docs/agents.md, and of the README's tour of loading, run as a user would."""

import re
import shutil
from pathlib import Path

from rosmo.cli import main

ROOT = Path(__file__).parents[2]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_page_runs_from_a_run_to_a_function_that_is_given_away(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs / "rosmo", tmp_path / "runs" / "rosmo-catch")
    page = (ROOT / "docs" / "agents.md").read_text()
    commands = [line.split()[1:] for line in re.findall(r"^ {4}(rosmo .*)$", page, re.MULTILINE)]
    assert [command[0] for command in commands] == ["export", "export"]
    for command in commands:
        assert main(command) == 0
    found: dict = {}
    for code in blocks("docs/agents.md"):
        exec(code, found)
    assert found["action"] in (0, 1, 2)
    assert found["actions"].shape == (5,)
    assert found["improvement"].action_weights.shape == (3,)
    assert len(found["played"].returns) == 20
    assert capsys.readouterr().out.count("Scores(") == 3


def test_the_readmes_five_lines_run(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs / "rosmo", tmp_path / "runs" / "rosmo-catch")
    (code,) = (block for block in blocks("README.md") if "rosmo.load" in block)
    assert len([line for line in code.splitlines() if line.strip()]) == 5
    from rosmo import envs

    found = {"observation": envs.make("catch", seed=0).reset().observation}
    exec(code.replace("episodes=100", "episodes=2"), found)
    assert found["why"].action_weights.shape == (3,)
    assert "Scores(episodes=2" in capsys.readouterr().out
