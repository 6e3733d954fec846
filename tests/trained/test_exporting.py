"""Agents that are given away: whole, from nowhere, and opened wherever they lie."""

import json
import shutil
import struct
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

import rosmo
from rosmo.cli import main
from rosmo.trained.exporting import export
from tests.evaluate.test_playing import Counts

OBSERVATION = np.eye(10, 5, dtype=np.float32)
FILES = ["README.md", "config.gin", "learning_curve.png", "metrics.csv", "model.safetensors", "result.json"]
FILES += ["settings.json", "versions.json"]


@pytest.fixture(scope="module")
def given(runs, tmp_path_factory):
    """What was exported of copies that are gone by now, and with them their data."""
    home, away = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("away")
    for name in ("rosmo", "walks"):
        shutil.copytree(runs / name, home / name)
        assert main(["export", str(home / name), str(away / name)]) == 0
    shutil.rmtree(home)
    return away


def same(params, others):
    return all(map(np.array_equal, jax.tree.leaves(params), jax.tree.leaves(others)))


def test_it_is_opened_elsewhere_with_the_same_parameters_and_acts_alike(given, runs):
    trained, before = rosmo.load(given / "rosmo"), rosmo.load(runs / "rosmo")
    assert same(trained.params, before.params)
    shown = np.random.default_rng(0).normal(size=(20, 10, 5)).astype(np.float32)
    np.testing.assert_array_equal(trained.act(shown, seed=1), before.act(shown, seed=1))
    assert trained.settings == before.settings


def test_it_is_opened_without_its_data_where_there_is_no_environment(given, runs, capsys):
    trained = rosmo.load(given / "walks")
    assert trained.observation_shape == (3,)
    assert trained.act(np.zeros(3, np.float32)) in (0, 1)
    assert trained.settings["train.data"] == "walks.npz"
    assert same(trained.params, rosmo.load(runs / "walks").params)
    assert main(["evaluate", str(given / "walks")]) == 1
    error = capsys.readouterr().err
    assert "walks was trained on data alone, which did not come with it" in error
    assert error.count("\n") == 1
    assert "held-out episodes say" in (given / "walks" / "README.md").read_text()


def test_all_files_are_there_and_name_no_place(given, runs):
    assert sorted(path.name for path in (given / "rosmo").iterdir()) == FILES
    for path in given.rglob("*"):
        if path.is_file():
            found = path.read_bytes()
            for place in (runs, given, Path.home(), Path.cwd(), Path("/tmp")):
                assert str(place).encode() not in found, path


def test_a_run_that_was_deleted_is_not_needed_for_its_scores(given, capsys):
    assert main(["evaluate", str(given / "rosmo"), "--episodes", "2", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["environment"], scores["step"]) == ("catch", "10")


def test_the_page_opens_with_what_hubs_read(given):
    result = json.loads((given / "rosmo" / "result.json").read_text())
    _, matter, page = (given / "rosmo" / "README.md").read_text().split("---\n", 2)
    front = yaml.safe_load(matter)
    assert (front["library_name"], front["pipeline_tag"]) == ("rosmo", "reinforcement-learning")
    (model,) = front["model-index"]
    (found,) = model["results"]
    assert model["name"] == "rosmo"
    assert found["dataset"] == {"type": "catch", "name": "catch"}
    (sampled, greedy) = found["metrics"]
    assert sampled["type"] == "mean_reward"
    for metric, policy in ((sampled, "sampled"), (greedy, "greedy")):
        mean, _, error = metric["value"].partition(" +/- ")
        assert float(mean) == np.mean(result[policy])
        assert float(error) == round(np.std(result[policy], ddof=1) / np.sqrt(2), 2)
    assert "2 of its" not in page
    assert "| data | 30 episodes, 300 steps, crc32" in page
    for file in FILES[1:]:
        assert f"`{file}`" in page or file in ("README.md",)


def test_the_lines_of_the_page_open_it(given, monkeypatch, capsys):
    monkeypatch.chdir(given)
    page = (given / "rosmo" / "README.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0].replace("episodes=100", "episodes=2")
    exec(code, {"observation": OBSERVATION})
    assert "Scores(episodes=2" in capsys.readouterr().out


def test_an_earlier_update_has_the_scores_of_its_row(runs, tmp_path):
    export(runs / "rosmo", tmp_path / "early", step=5)
    trained = rosmo.load(tmp_path / "early")
    assert trained.settings["step"] == 5
    assert same(trained.params, rosmo.load(runs / "rosmo", step=5).params)
    assert not (tmp_path / "early" / "result.json").exists()
    assert "It was not scored." in (tmp_path / "early" / "README.md").read_text()
    with pytest.raises(ValueError, match="holds the agent after update 5 alone: leave out 10"):
        rosmo.load(tmp_path / "early", step=10)


def test_it_is_there_whole_or_not_at_all(runs, tmp_path, monkeypatch, capsys):
    target = tmp_path / "deep" / "agent"
    with monkeypatch.context() as broken:
        broken.setattr("rosmo.trained.exporting.card", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(runs / "rosmo", target)
    assert not list((tmp_path / "deep").iterdir())
    export(runs / "rosmo", target)
    (target / "mine").write_text("of value")
    for form in ("rosmo", "stablehlo"):
        assert main(["export", str(runs / "rosmo"), str(target), "--format", form]) == 1
        assert "agent is there already: choose another folder, or move it away" in capsys.readouterr().err
    assert (target / "mine").read_text() == "of value"


def test_it_is_no_run_to_go_on_with(given, capsys):
    assert main(["train", "--resume", str(given / "rosmo")]) == 1
    assert "holds an agent that was exported, without the state" in capsys.readouterr().err
    assert sorted(path.name for path in (given / "rosmo").iterdir()) == FILES


def test_weights_that_do_not_fit_or_are_damaged_are_refused_in_a_sentence(given, tmp_path):
    def changed(change):
        folder = tmp_path / change.__name__
        shutil.copytree(given / "rosmo", folder)
        change(folder / "model.safetensors")
        with pytest.raises(ValueError, match=r"model\.safetensors") as error:
            rosmo.load(folder)
        assert str(error.value).count("\n") == 0
        return str(error.value)

    def cut_off(path):
        path.write_bytes(path.read_bytes()[:-10])

    def empty(path):
        path.write_bytes(b"")

    def too_long(path):
        path.write_bytes(struct.pack("<Q", 2**60) + b"{}")

    about = {"step": "10", "observation_shape": "[10, 5]"}

    def without_one(path):
        arrays = load_file(path)
        del arrays[min(arrays)]
        save_file(arrays, path, metadata=about)

    def reshaped(path):
        save_file({name: x[None] for name, x in load_file(path).items()}, path, metadata=about)

    def spoiled(path):
        save_file({name: x * np.nan for name, x in load_file(path).items()}, path, metadata=about)

    def without_a_step(path):
        save_file(load_file(path), path)

    for change in (cut_off, empty, too_long, without_a_step):
        assert "is damaged" in changed(change)
    assert "missing there" in changed(without_one)
    assert "does not fit the agent that it is for" in changed(reshaped)
    assert "is not finite" in changed(spoiled)


def test_a_folder_that_came_without_its_parameters_says_so(given, tmp_path):
    shutil.copytree(given / "rosmo", tmp_path / "part")
    (tmp_path / "part" / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"part has no model\.safetensors: fetch it again"):
        rosmo.load(tmp_path / "part")


def test_what_was_trained_in_code_is_kept_in_a_file(tmp_path):
    counts = rosmo.TrainedAgent(Counts(), jax.numpy.int32(1), observation_shape=(2,))
    rosmo.save(counts, tmp_path / "counts.safetensors")
    loaded = rosmo.load(tmp_path / "counts.safetensors", agent=Counts())
    player = loaded.start()
    assert [player.act(np.zeros(2)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match=r"is a file: of a run name its folder, .* agent=… that they are of"):
        rosmo.load(tmp_path / "counts.safetensors")
    with pytest.raises(IsADirectoryError, match=r"is a folder: name a file in it, as .*mine\.safetensors"):
        rosmo.save(counts, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*/other\.safetensors"):
        rosmo.load(tmp_path / "other.safetensors", agent=Counts())
