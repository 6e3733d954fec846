"""The commands on data, and training on data alone, as a user runs them."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import minari
import numpy as np
import pytest
from PIL import Image

from rosmo.cli import main
from rosmo.collect import record
from rosmo.commands.shared import load_configuration
from rosmo.configs import open_run
from rosmo.data import from_file, from_minari, from_rlds, rlds, write_store
from rosmo.data import minari as rosmo_minari
from rosmo.data.opening import open_data
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.folder import RunFolder
from tests.commands.test_train import BINDINGS
from tests.data.test_data_page import write_walks


@pytest.fixture
def walks(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.chdir(tmp_path)
    write_walks(tmp_path / "walks.npz")
    return "walks.npz"


def width_of(picture):
    with Image.open(picture) as image:
        return image.size[0]


def equal(ours, theirs):
    for field, values in vars(ours).items():
        np.testing.assert_array_equal(getattr(theirs, field), values)


def test_a_file_is_shown_imported_and_exported(walks, capsys):
    assert main(["data", "show", walks]) == 0
    out = capsys.readouterr().out
    assert "40, of which 20 terminated (50%) and 20 were cut off" in out
    assert "observations  float32 [4]" in out
    assert width_of("walks-data.png") > 600
    assert main(["data", "import", walks, "rlds", "--environment", "gym/CartPole-v1"]) == 0
    assert "40 episodes, 200 transitions" in capsys.readouterr().out
    equal(from_file(walks), from_rlds("rlds"))
    assert rlds.read_metadata("rlds") == {"source": "walks.npz", "environment": "gym/CartPole-v1"}
    assert main(["data", "import", walks, "rlds"]) == 1
    assert "there is a data set in" in capsys.readouterr().err
    assert main(["data", "export", "rlds", "minari:walks/tiny-v0"]) == 0
    equal(from_file(walks), from_minari("walks/tiny-v0"))
    episode = minari.load_dataset("walks/tiny-v0")[3]  # by Minari's own loader
    for other in ("rlds", "minari:walks/tiny-v0"):
        assert main(["data", "show", other, "--picture", "other.png"]) == 0
        assert "40, of which 20 terminated" in capsys.readouterr().out
    first = 3 * 6
    steps = from_file(walks)
    np.testing.assert_array_equal(episode.observations, steps.observation[first : first + 6])
    np.testing.assert_array_equal(episode.rewards, steps.reward[first : first + 5])
    assert episode.terminations.tolist() == [False] * 4 + [True]
    assert main(["data", "export", "rlds", "minari:walks/tiny-v0"]) == 1
    assert "there is a Minari data set 'walks/tiny-v0' already" in capsys.readouterr().err
    assert main(["data", "export", "rlds", "minari:tiny"]) == 1
    assert "is no name of a Minari data set" in capsys.readouterr().err


def test_a_file_of_another_kind_and_a_folder_of_another_name_are_said(walks, capsys):
    Path("walks.csv").write_text("observations,actions")
    for command in (["train", "-p", "data = 'walks.csv'"], ["data", "show", "walks.csv"]):
        assert main(command) == 1
        assert "walks.csv is none of the files that are read: .npz" in capsys.readouterr().err
    Path("minari/x/walks-v0").mkdir(
        parents=True
    )  # Minari takes no name of one letter, and lists nothing then
    assert main(["data", "show", "minari:mine/walks-v0"]) == 1
    assert "there is no Minari data set 'mine/walks-v0' on this machine" in capsys.readouterr().err
    assert main(["data", "show", walks, "--picture", "new/folder/walks.png"]) == 0
    assert width_of("new/folder/walks.png") > 600


def test_a_picture_has_the_whole_name_of_a_directory(walks, monkeypatch):
    assert main(["data", "import", walks, "walks-0.1"]) == 0
    assert main(["data", "show", "walks-0.1/"]) == 0
    monkeypatch.chdir("walks-0.1")
    assert main(["data", "show", "."]) == 0
    for folder in ("..", "."):
        assert width_of(f"{folder}/walks-0.1-data.png") > 600


def test_a_store_of_frames_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    episodes = list(record("catch", "random", episodes=3))
    frames = [
        dataclasses.replace(episode, observation=np.asarray(episode.observation, np.uint8))
        for episode in episodes
    ]
    write_store("store", {"train": frames}, stack=4, metadata={})
    assert main(["data", "show", "store"]) == 0
    out = capsys.readouterr().out
    assert "uint8 [10, 5, 4]" in out
    assert "the frames stay on disk" in out
    assert width_of("store-data.png") > 600


def test_masks_and_pixels_come_back_from_minari(walks):
    episodes = list(record("catch", "random", episodes=3))
    length = len(episodes[0].action)
    masks = np.zeros((3 * length, 4), bool)
    masks[:, 3] = True
    steps = type(episodes[0])(
        observation=np.random.default_rng(0).integers(0, 255, (3 * length, 12, 12, 3)).astype(np.uint8),
        **{
            field: np.concatenate([np.asarray(getattr(episode, field)) for episode in episodes])
            for field in ("action", "reward", "discount", "is_first", "is_last", "is_terminal")
        },
        invalid_actions=masks,
    )
    steps.action[steps.is_last] = 0
    steps.reward[steps.is_last] = 0
    steps.discount[steps.is_last] = 1 - steps.is_terminal[steps.is_last]
    rosmo_minari.write("walks/masks-v0", steps, num_actions=4, description="masks")
    equal(steps, open_data("minari:walks/masks-v0"))


@pytest.mark.parametrize("name", ["catch", "cartpole"])
def test_data_is_not_said_to_be_of_an_environment_that_it_does_not_fit(walks, name, capsys):
    assert main(["data", "import", walks, "there", "--environment", name]) == 1
    assert (
        f"the data was not recorded in {name}: it has observations of the shape [4] and"
        in capsys.readouterr().err
    )
    assert not Path("there").exists()


def test_a_single_episode_is_refused_before_there_is_a_folder(walks, capsys):
    np.savez("one.npz", **{name: values[:5] for name, values in np.load(walks).items()})  # pyright: ignore
    assert main(["train", "-p", "data = 'one.npz'", "--run", "run"]) == 1
    assert "there is 1 episode, and some are to be held out" in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.zeros((200, 2), np.float32)}, "continuous actions are not supported"),
        ({"rewards": np.full(200, np.nan)}, "walks.npz: step 0 has a reward that is not finite"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_a_sentence(walks, changes, message, capsys):
    np.savez(walks, **dict(np.load(walks)) | changes)
    for command in (["train", "-p", f"data = '{walks}'", "--run", "run"], ["data", "import", walks, "there"]):
        assert main(command) == 1
        assert message in capsys.readouterr().err


def test_data_is_evaluated_where_it_says_it_was_recorded_or_by_itself(walks, tmp_path):
    for name, metadata in (("ours", {"environment": "catch"}), ("other", {"environment": "nowhere/known"})):
        rlds.write(tmp_path / name, record("catch", "random", episodes=2), name=name, metadata=metadata)

    def environment(data, *bindings, configs=("bsuite/rosmo",)):
        return load_configuration(configs, [f"data = '{data}'", *bindings], []).environment

    assert environment("ours") == "catch"
    assert environment("other") is None
    assert environment(walks) is None
    assert environment(walks, "environment = 'cartpole'") == "cartpole"
    assert environment("ours", "environment = None") is None
    assert environment(walks, configs=("bsuite/rosmo", "bsuite/mountain_car")) == "mountain_car"
    assert load_configuration(["bsuite/rosmo"], [], []).environment == "catch"
    with pytest.raises(ValueError, match="nothing to collect data in: name a data set by data"):
        load_configuration(["bsuite/rosmo"], ["environment = None"], [])


def test_an_agent_is_trained_on_a_file_alone_and_acts(walks, capsys):
    settings = ["-p", f"data = '{walks}'", "-p", "num_updates = 10", "-p", "eval_every = 5"]
    assert main(["train", *BINDINGS, *settings, "--mesh", "data=1", "--run", "run"]) == 0
    folder = RunFolder(Path("run"))
    said = capsys.readouterr()
    assert "held-out loss" in said.out
    result = json.loads(folder.result.read_text())["held_out"]
    assert 0 <= result["accuracy"] <= 1
    assert len(result["calibration"]) == 10
    assert {f"reward_error_{k}" for k in range(1, 6)} <= result.keys()
    rows = folder.metrics.rows()
    assert [row["step"] for row in rows if "held_out/loss" in row] == [0, 5, 10]
    assert all("return" not in row for row in rows)
    assert width_of(folder.curve) > 600
    assert main(["evaluate", "run"]) == 0
    report = capsys.readouterr()
    assert "walks, held-out episodes, checkpoint of update 10" in report.out
    assert "error of the imagined reward after k steps" in report.out
    assert main(["evaluate", "run", "--record", "film.gif"]) == 1
    refused = capsys.readouterr()
    assert "without an environment: there is none to play in" in refused.err
    assert "catch" not in said.out + said.err + report.out + report.err + refused.err
    training, _ = open_run(folder)
    assert training.spaces() == ((4,), 2)
    agent = training.build_agent()
    checkpoints = Checkpoints(folder.checkpoints)
    state = checkpoints.restore(training.learner(agent).init(jax.random.key(0)))
    checkpoints.close()
    shown = jnp.asarray(np.load(walks)["observations"][:3])
    assert agent.act(state.params, jax.random.key(1), shown).shape == (3,)
