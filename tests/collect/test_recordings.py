"""Recordings of seeds and actions, and those that come with the library."""

import dataclasses
import json

import numpy as np
import pytest

from rosmo.cli import main
from rosmo.collect import SETTINGS, recordings
from rosmo.collect.recordings import Played, Recording, recorded, shipped
from rosmo.data import rlds
from rosmo.envs.minatar import GAMES
from rosmo.runs import datasets

NAMES = [f"minatar/{game}" for game in GAMES]


def few(recording: Recording, episodes: slice) -> Recording:
    ends = np.cumsum(recording.lengths)
    actions = np.split(recording.actions, ends[:-1])[episodes]
    taken = (recording.seeds[episodes], recording.lengths[episodes], np.concatenate(actions))
    return Recording(*taken, recording.checksums[episodes], recording.about)


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_recordings_play_as_they_were_recorded(name):
    recording = shipped(name)
    assert recording.lengths.sum() == len(recording.actions) <= 200_000
    played = [*few(recording, slice(0, 5)).play(name), *few(recording, slice(-2, None)).play(name)]
    assert [len(episode.action) - 1 for episode in played] == [
        *recording.lengths[:5],
        *recording.lengths[-2:],
    ]
    about = json.loads(recording.about)
    settings = json.loads(json.dumps(dataclasses.asdict(SETTINGS[name])))
    assert about == {"environment": name, "noise": 0.0, "seed": 0, **settings}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_of_a_shipped_recording_plays_as_it_was_recorded(name):
    recording = shipped(name)
    assert sum(len(episode.action) - 1 for episode in recording.play(name)) == len(recording.actions)


def test_a_recording_is_kept_and_played_again(tmp_path):
    played = [Played(seed, np.array([0, 1, 2] * 3, np.uint8), 0.0) for seed in (3, 4)]
    recording, episodes = recorded("catch", played)
    recording.save(tmp_path / "deep" / "catch.npz")
    with np.load(tmp_path / "deep" / "catch.npz") as arrays:
        np.testing.assert_array_equal(arrays["seeds"], [3, 4])
        np.testing.assert_array_equal(arrays["lengths"], [9, 9])
    for one, other in zip(recording.play("catch"), episodes, strict=True):
        np.testing.assert_array_equal(one.observation, other.observation)
        np.testing.assert_array_equal(one.action, [*[0, 1, 2] * 3, 0])


def test_an_episode_that_plays_differently_is_refused():
    recording, _ = recorded("catch", [Played(3, np.array([0, 1, 2] * 3, np.uint8), 0.0)])
    other = dataclasses.replace(recording, checksums=recording.checksums + 1)
    with pytest.raises(RuntimeError, match="episode 0 of the recording of catch plays differently here"):
        list(other.play("catch"))


@pytest.fixture
def small(monkeypatch):
    """The library with a recording of a few episodes alone."""
    recording = few(shipped("minatar/breakout"), slice(0, 6))
    monkeypatch.setattr(recordings, "shipped", {"minatar/breakout": recording}.get)
    return recording


def test_what_was_recorded_is_not_collected_again(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(datasets, "collect", lambda *args, **how: pytest.fail("trained"))
    assert main(["collect", "minatar/breakout", "--data-dir", str(tmp_path)]) in (0, None)
    assert f"6 episodes, {len(small.actions)} transitions" in capsys.readouterr().out
    directory = tmp_path / "minatar" / "breakout-noise0-seed0"
    assert rlds.read_metadata(directory)["environment"] == "minatar/breakout"
    steps = datasets.load_or_collect("minatar/breakout", data=None, root=tmp_path)
    assert steps.is_last.sum() == 6


@pytest.mark.parametrize("how", [{"anew": True}, {"seed": 1}, {"noise": 0.1}])
def test_anything_else_is_trained(small, tmp_path, monkeypatch, how):
    trained = []

    def stop(environment, **settings):
        trained.append(settings)
        raise InterruptedError

    monkeypatch.setattr(datasets, "collect", stop)
    with pytest.raises(InterruptedError):
        datasets.collect_to(tmp_path / "a", "minatar/breakout", **how)
    assert trained[0]["settings"] is SETTINGS["minatar/breakout"]


def test_a_number_of_episodes_is_refused_where_it_means_nothing(tmp_path, capsys):
    command = ["collect", "minatar/breakout", "--episodes", "3", "--out", str(tmp_path / "a")]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "the training that collects minatar/breakout is 1,500,000 transitions long" in said
    assert not (tmp_path / "a").exists()
