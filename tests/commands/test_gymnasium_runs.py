"""Gymnasium's environments through the commands, and the code of their page."""

import json
import re
from pathlib import Path

import pytest

from rosmo import envs
from rosmo.cli import main
from rosmo.data import rlds
from rosmo.envs.base import registry

PAGE = Path(__file__).parents[2] / "docs" / "gymnasium.md"
SHORT = ["num_updates = 4", "log_every = 4", "eval_every = 4", "checkpoint_every = 4", "eval_episodes = 2"]
SHORT += ["batch_size = 8", "train.final_episodes = 2"]
BINDINGS = [word for binding in SHORT for word in ("-p", binding)]


@pytest.fixture
def blocks(tmp_path, monkeypatch):
    """The code of the page, in an empty directory; what it registers is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_parts", dict(registry._parts))
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_a_run_from_its_data_to_a_film(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["collect", "gym/CartPole-v1", "--noise", "0.1", "--episodes", "8"]) == 0
    steps = rlds.read(Path("data/gym/CartPole-v1-noise0.1-seed0"))
    assert (steps.observation.shape[1:], steps.is_last.sum()) == ((4,), 8)
    arguments = ["train", "-p", "environment = 'gym/CartPole-v1'", "-p", "noise = 0.1"]
    run = "runs/noisy"
    assert main([*arguments, *BINDINGS, "--run", run]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, "--episodes", "2", "--record", "a.gif", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["environment"] == "gym/CartPole-v1"
    assert all(8 <= row["mean"] <= 500 for row in scores["scores"])
    assert Path("a.gif").stat().st_size > 1_000
    assert json.loads(Path(run, "versions.json").read_text())["gymnasium"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym/CartPole-v9", "Did you mean 'gym/CartPole-v1'"),
        ("gym/Pendulum-v1", "Pendulum-v1 has continuous actions"),
        ("gym/os:CartPole-v1", "is not imported unasked"),
    ],
)
@pytest.mark.parametrize("command", ["collect", "train"])
def test_what_will_not_do_is_one_sentence_and_leaves_nothing(
    command, name, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main([command, name] if command == "collect" else ["train", "-p", f"environment = '{name}'"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*.*"))


def test_the_pages_environments_are_collected_and_trained(blocks, capsys):
    Path("my_tasks.py").write_text(blocks[0])
    for name, shape in (("empty_room", (7, 7, 3)), ("pushed_pendulum", (3,))):
        assert (
            main(["collect", name, "--policy", "random", "--episodes", "2", "--import", "my_tasks.py"]) == 0
        )
        steps = rlds.read(Path(f"data/{name}-random-noise0-seed0"))
        assert steps.observation.shape[1:] == shape
        assert not steps.is_terminal[steps.is_last].all()  # most end by their time limits
    data = "data = 'data/pushed_pendulum-random-noise0-seed0'"
    chosen = ["-p", "environment = 'pushed_pendulum'", "-p", data, "--import", "my_tasks.py"]
    assert main(["train", *chosen, *BINDINGS]) == 0
    assert envs.number_of_actions(envs.make("pushed_pendulum", seed=0)) == 5


def test_the_pages_policy_is_recorded_and_trained_on(blocks):
    exec(blocks[1], {})
    steps = rlds.read(Path("data/mine"))
    assert steps.is_last.sum() == 100
    assert steps.reward.sum() / 100 > 50  # a random policy has 22
    chosen = ["-p", "environment = 'gym/CartPole-v1'", "-p", "data = 'data/mine'"]
    assert main(["train", *chosen, *BINDINGS]) == 0
