"""`rosmo select` and `rosmo diagnose` as a user runs them, on runs of seconds."""

import json
from pathlib import Path

import pytest

from rosmo.cli import main
from rosmo.evaluate import selection
from tests.commands.test_train import BINDINGS, data  # noqa: F401

QUICK = ["--updates", "20", "--steps", "200"]


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory) -> list[str]:  # noqa: F811
    """A run with a model, with two checkpoints, and one without a model."""
    root = tmp_path_factory.mktemp("runs")
    places = ["--data-dir", str(data)]
    for agent in ("rosmo", "bc"):
        bindings = [*BINDINGS, "-p", "num_updates = 10"]
        assert main(["train", f"bsuite/{agent}", *bindings, *places, "--run", str(root / agent)]) == 0
    return [str(root / "rosmo"), str(root / "bc")]


def test_policies_are_ranked_and_held_against_what_is_played(runs, capsys):
    capsys.readouterr()
    every = ["--checkpoints", "all", "--truth", "--episodes", "3", "--json"]
    assert main(["select", *runs, *QUICK, *every]) == 0
    found = json.loads(capsys.readouterr().out)
    policies = found["policies"]
    assert [Path(p["policy"].split(" at ")[0]).name for p in policies].count("rosmo") == 2
    assert len(policies) == 4
    assert [p["fqe"] for p in policies] == sorted((p["fqe"] for p in policies), reverse=True)
    for policy in policies:
        low, high = policy["fqe_interval"]
        assert low <= policy["fqe"] <= high
        assert policy["return"] in (-1.0, -1 / 3, 1 / 3, 1.0)  # the mean of three episodes of catch
        assert abs(policy["discounted"]) <= abs(policy["return"]) + 1e-6
        assert (policy["model"] is None) == ("bc" in Path(policy["policy"].split(" at ")[0]).name)
    assert set(found["ranks"]) == {"fqe", "dr", "wis", "model", "td_error"}
    assert found["ranks"]["fqe"]["regret@3"] <= found["ranks"]["fqe"]["regret@1"]


def test_a_table_says_what_cannot_be_told(runs, capsys, monkeypatch):
    monkeypatch.setattr(selection, "_FEW", 1e6)  # episodes, which no data set here has
    assert main(["select", *runs, *QUICK, "--greedy"]) == 0
    text = capsys.readouterr().out
    assert "90% interval" in text
    assert "regret" not in text  # nothing was played
    assert ": importance sampling rests on " in text


def test_what_cannot_be_selected_from_is_refused_in_a_sentence(runs, tmp_path, capsys):
    assert main(["select", *runs, "--updates", "0"]) == 1
    assert "--updates must be at least 1" in capsys.readouterr().err
    assert main(["select", str(tmp_path)]) == 1
    assert "is no run" in capsys.readouterr().err


def test_a_run_is_diagnosed_in_tables_and_a_picture(runs, tmp_path, capsys):
    picture = tmp_path / "why.png"
    some = ["--windows", "64", "--depth", "3", "--operators", "one_step", "mcts"]
    assert main(["diagnose", runs[0], runs[0], *some, "--picture", str(picture)]) == 0
    text = capsys.readouterr().out
    assert picture.exists()
    for title in (
        "error of the reward",
        "error of the value",
        "log loss",
        "operator one_step",
        "operator mcts",
    ):
        assert title in text
    assert main(["diagnose", runs[0], *some, "--picture", str(picture), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out).values()
    assert found["data"] == "the run's own data"
    assert len(found["depth"]["value"]) == 4


def test_what_cannot_be_diagnosed_is_refused_in_a_sentence(runs, tmp_path, capsys):
    assert main(["diagnose", runs[1], "--picture", str(tmp_path / "x.png")]) == 1
    assert "BC has no model" in capsys.readouterr().err
    assert main(["diagnose", runs[0], "--operators", "one_stop"]) == 1
    assert "one_step" in capsys.readouterr().err
