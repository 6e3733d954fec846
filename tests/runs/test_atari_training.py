"""Training on frames of the emulator: mistakes are named before any work, and the whole way works."""

import json

import numpy as np
import pytest

from rosmo import cli, configs, envs
from rosmo.data import FrameStore, rlds, write_store
from rosmo.data.atari import as_recorded, single_frames
from rosmo.runs.datasets import load_or_collect
from rosmo.runs.metrics import MetricsTable
from tests import atari
from tests.runs.test_hosts import losses_of_one_and_two

pytest.importorskip("ale_py")
TINY = {"channels": 4, "representation_blocks": 1, "dynamics_blocks": 1, "prediction_blocks": 1, "bins": 11}
TINY |= {"head_size": 8, "batch_size": 2, "unroll_steps": 2, "td_steps": 1}


def bindings(**settings):
    return [word for name, value in settings.items() for word in ("-p", f"{name} = {value!r}")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A short game of Pong as an RLDS data set and as a store."""
    directory = tmp_path_factory.mktemp("pong")
    games = [atari.play(seed, game="pong", max_frames=200) for seed in range(2)]
    rlds.write(directory / "rlds", map(as_recorded, games), name="pong", metadata={})
    write_store(directory / "store", {"train": map(single_frames, games)}, stack=4, metadata={})
    return directory


def test_a_training_takes_a_store_and_refuses_what_does_not_fit(data, tmp_path):
    bind = [f"{name} = {value!r}" for name, value in TINY.items()]
    training = configs.load(["atari/bc", "atari/pong"], [*bind[:-2], "positions = 2"])
    agent = training.build_agent()
    store = load_or_collect("atari/Pong", data=str(data / "store"), root=tmp_path, fraction=0.5)
    assert isinstance(store, FrameStore)
    assert store.num_starts == 50
    training.rehearse(training.learner(agent), store)
    with pytest.raises(
        ValueError, match=r"single frames, \[84, 84, 1\], .* convert first, by rosmo data con"
    ):
        load_or_collect("atari/Pong", data=str(data / "rlds"), root=tmp_path)
    small = [single_frames(atari.play(0, max_frames=40))]
    small[0] = type(small[0])(**(vars(small[0]) | {"observation": small[0].observation[:, :50]}))
    write_store(tmp_path / "small", {"train": small}, stack=4, metadata={})
    with pytest.raises(
        ValueError, match=r"have the shape \[50, 84, 4\].* train on data of the same environment"
    ):
        training.check(agent, FrameStore(tmp_path / "small"))
    actions = configs.load(["atari/bc", "atari/breakout"], bind[:-2])  # four actions, Pong has six
    with pytest.raises(ValueError, match="has an action outside 0…3: it has 6 actions"):
        actions.check(agent, store)
    games = {"train": map(single_frames, [atari.play(0, max_frames=40)])}
    write_store(tmp_path / "other", games, stack=4, metadata={"environment": "atari/Breakout"})
    with pytest.raises(
        ValueError, match=r"other has data of 'atari/Breakout', .* environment is 'atari/Pong'"
    ):
        load_or_collect("atari/Pong", data=str(tmp_path / "other"), root=tmp_path)


def test_atari_without_data_says_how_to_get_some(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "atari/rosmo", "atari/pong"]) == 1
    message = capsys.readouterr().err
    assert (
        "there is no data of atari/Pong in data/atari/Pong-noise0-seed0: convert a data set to there"
        in message
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_store_is_read_by_each_process_for_its_own_devices(data, tmp_path):
    settings = TINY | {"num_updates": 4, "log_every": 1, "eval_every": 4, "checkpoint_every": 4}
    settings |= {"eval_episodes": 1, "final_episodes": 1, "data": str(data / "store")}
    arguments = ["atari/rosmo", "atari/pong", *bindings(**settings), "--mesh", "data=2"]
    one, two = losses_of_one_and_two(tmp_path, *arguments)
    assert len(one) == 4
    np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.slow
def test_a_run_on_a_store_stops_and_resumes_to_the_same_numbers(data, tmp_path, monkeypatch):
    make = envs.get("atari/Pong")
    monkeypatch.setitem(make.keywords, "max_frames", 80)  # games of twenty steps
    settings = TINY | {"num_updates": 4, "log_every": 1, "eval_every": 2, "checkpoint_every": 1}
    settings |= {"eval_episodes": 1, "final_episodes": 1, "data": str(data / "store")}
    command = ["train", "atari/rosmo", "atari/pong", *bindings(**settings), "--mesh", "data=1"]
    assert cli.main([*command, "--run", str(tmp_path / "whole")]) == 0
    short = bindings(**(settings | {"num_updates": 2}))
    assert cli.main([*command[:3], *short, "--mesh", "data=1", "--run", str(tmp_path / "parts")]) == 0
    for name in ("config.gin", "operative_config.gin"):
        path = tmp_path / "parts" / name
        path.write_text(path.read_text().replace("num_updates = 2", "num_updates = 4"))
    (tmp_path / "parts" / "result.json").unlink()
    assert cli.main(["train", "--resume", str(tmp_path / "parts")]) == 0
    whole, parts = (MetricsTable(tmp_path / name / "metrics.csv").rows() for name in ("whole", "parts"))
    assert [row["loss"] for row in whole[1:]] == [row["loss"] for row in parts[1:]]
    assert (
        cli.main(
            ["evaluate", str(tmp_path / "parts"), "--episodes", "1", "--record", str(tmp_path / "a.gif")]
        )
        == 0
    )
    assert (tmp_path / "a.gif").stat().st_size > 1000


@pytest.mark.slow
def test_the_papers_network_learns_from_real_frames(data, tmp_path, capsys):
    """A hundred updates at batch 8, full games in the emulator, and a video: minutes on two free cores."""
    settings = {"batch_size": 8, "num_updates": 100, "log_every": 10, "eval_every": 100, "eval_episodes": 1}
    settings |= {"checkpoint_every": 50, "final_episodes": 1, "data": str(data / "store")}
    command = ["train", "atari/rosmo", "atari/pong", *bindings(**settings), "--run", str(tmp_path / "run")]
    assert cli.main(command) == 0
    rows = MetricsTable(tmp_path / "run" / "metrics.csv").rows()[1:]
    for name in ("loss", "loss/value", "loss/reward"):
        losses = [row[name] for row in rows]
        assert np.isfinite(losses).all()
        assert losses[-1] < 0.5 * losses[0], name
    assert json.loads((tmp_path / "run" / "result.json").read_text())["step"] == 100
    assert (
        cli.main(["evaluate", str(tmp_path / "run"), "--episodes", "1", "--record", str(tmp_path / "a.gif")])
        == 0
    )
    assert (tmp_path / "a.gif").stat().st_size > 10_000
