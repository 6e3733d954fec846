"""A world and an agent in it by one command: kept, reused, pinned, killed and gone on with, and judged."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import rosmo
from rosmo import experiments
from rosmo.cli import main
from rosmo.commands.report import gather
from rosmo.configs import open_run
from rosmo.experiments import pool
from rosmo.report import write
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.folder import RunFolder
from rosmo.runs.worlds import FILE, load_world, world_checksum

SIZES = ["deterministic = 8", "groups = 2", "classes = 3", "hidden = 6", "layers = (6,)", "heads = (4,)"]
SIZES += ["members = 2"]
RUN = ["num_updates = 6", "log_every = 2", "eval_every = 6", "checkpoint_every = 2", "batch_size = 4"]
PLAY = ["eval_episodes = 1", "train.final_episodes = 2"]


def bound(*bindings: str) -> list[str]:
    return [part for binding in bindings for part in ("-p", binding)]


WORLD = f"world_bindings = {(*RUN, 'window = 6')!r}"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("worlds")
    assert main(["collect", "catch", "--episodes", "40", "--data-dir", str(root / "data")]) == 0
    return root


def train(root: Path, name: str, run: Path, *bindings: str) -> int:
    settings = bound(*SIZES, *RUN, *PLAY, WORLD, *bindings)
    places = ["--data-dir", str(root / "data"), "--run", str(run), "--mesh", "data=1"]
    return main(["train", f"bsuite/{name}", "bsuite/catch", *settings, *places])


@pytest.fixture(scope="module")
def morel(root) -> Path:
    """A run that trained its world first."""
    assert train(root, "morel", root / "morel") == 0
    return root / "morel"


def state_of(run: Path):
    training, _ = open_run(RunFolder(run))
    learner = training.learner(training.build_agent())
    checkpoints = Checkpoints(RunFolder(run).checkpoints)
    state = checkpoints.restore(learner.init(jax.random.key(0)))
    checkpoints.close()
    return jax.tree.map(lambda x: x, jax.device_get(state.params))


def assert_same(one: Path, other: Path) -> None:
    for a, b in zip(*(jax.tree.leaves(state_of(run)) for run in (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_one_command_trains_both_stages_and_keeps_the_world(root, morel, capsys):
    [world] = (root / "data" / "worlds").iterdir()
    folder = RunFolder(world)
    assert folder.finished()
    assert "held_out" in json.loads(folder.result.read_text())
    assert RunFolder(morel).read_settings()["world"] == world_checksum(world)
    training, _ = open_run(RunFolder(morel))
    assert training.world == str(world.resolve())
    # What the agent acts in is what the world's run ended with.
    kept = load_world(world, jax.eval_shape(training.build_model(), jax.random.key(0)))
    inside = state_of(morel).world.thaw().world
    for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(inside), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(json.loads((morel / "result.json").read_text())["sampled"]) == 2


def test_the_world_is_reused_and_a_run_needs_it_no_more(root, morel, monkeypatch, tmp_path, capsys):
    def never(*args, **kwargs):
        raise AssertionError("the world is there")

    monkeypatch.setattr(pool, "train_all", never)
    assert train(root, "combo", tmp_path / "combo") == 0
    assert main(["evaluate", str(tmp_path / "combo"), "--episodes", "1"]) == 0
    moved = tmp_path / "elsewhere"
    shutil.copytree(morel, moved)
    settings = json.loads((moved / "settings.json").read_text())
    assert settings["world"].startswith("crc32 ")
    assert main(["evaluate", str(moved), "--episodes", "1"]) == 0
    capsys.readouterr()
    assert main(["export", str(morel), str(tmp_path / "given")]) == 0
    assert "needs such a file" not in capsys.readouterr().err  # it has the world
    player = rosmo.load(tmp_path / "given").start(greedy=True)
    assert {player.act(np.zeros((10, 5))) for _ in range(3)} <= {0, 1, 2}


MINE = """
from rosmo import worlds


@worlds.register("my_world")
def my_world(key, *, observation_shape, num_actions, members=2):
    sizes = dict(deterministic=7, groups=2, classes=3, hidden=6, layers=(6,), heads=(4,), coder="vector")
    return worlds.rssm(
        key, observation_shape=observation_shape, num_actions=num_actions, members=members, **sizes
    )
"""


def test_the_world_that_an_agent_names_is_the_one_that_is_trained_for_it(root, monkeypatch, tmp_path):
    begun = []

    def none(updates, *args):
        begun.extend(updates)
        raise RuntimeError("trained elsewhere")

    monkeypatch.setattr(pool, "train_all", none)
    (tmp_path / "mine.py").write_text(MINE)
    arguments = [*bound(*RUN, WORLD, "train.model = @my_world", "my_world.members = 3")]
    arguments += ["--import", str(tmp_path / "mine.py"), "--data-dir", str(root / "data"), "--mesh", "data=1"]
    assert main(["train", "bsuite/morel", "bsuite/catch", *arguments, "--run", str(tmp_path / "run")]) == 1
    [folder] = begun
    try:
        text = folder.config.read_text()
        assert "train.model = @my_world" in text
        assert "my_world.members = 3" in text
    finally:
        shutil.rmtree(folder.path)


def test_an_agents_settings_are_refused_before_its_world_is_trained(root, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(pool, "train_all", None)
    assert train(root, "morel", tmp_path / "run", "deterministic = 9", "horizon = 0") == 1
    assert "horizon must be a whole number" in capsys.readouterr().err


def test_data_without_an_environment_has_a_world_too(root, monkeypatch, tmp_path):
    begun = []
    monkeypatch.setattr(pool, "train_all", lambda updates, *args: begun.extend(updates))
    [data] = (path for path in (root / "data").iterdir() if path.name != "worlds")
    train(root, "morel", tmp_path / "run", f"data = {str(data)!r}", "environment = None")
    [folder] = begun
    assert "train.num_actions = 3" in folder.config.read_text()
    shutil.rmtree(folder.path)


def test_another_world_is_refused(root, morel, tmp_path, capsys):
    [world] = (root / "data" / "worlds").iterdir()
    other = tmp_path / "world"
    shutil.copytree(world, other)
    named = f"world = {str(other)!r}"
    assert train(root, "mopo", tmp_path / "wider", named, "deterministic = 9") == 1
    assert "is built otherwise than this configuration says" in capsys.readouterr().err
    assert train(root, "mopo", tmp_path / "run", named) == 0
    arrays = dict(np.load(other / FILE))
    np.savez(other / FILE, **{name: x + 1 if x.dtype == np.float32 else x for name, x in arrays.items()})
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "result.json").unlink()
    assert main(["train", "--resume", str(tmp_path / "run")]) == 1
    assert "has changed since the run was begun" in capsys.readouterr().err
    whole = (other / FILE).read_bytes()
    flipped = bytes([*whole[:100], whole[100] ^ 255, *whole[101:]])
    for damaged in (b"", whole[: len(whole) // 2], flipped):
        (other / FILE).write_bytes(damaged)
        with pytest.raises(ValueError, match=r"cannot be read .* train the world again"):
            world_checksum(other)
    (other / FILE).unlink()
    assert train(root, "mopo", tmp_path / "again", named) == 1
    assert f"has no {FILE}" in capsys.readouterr().err


def stopped_after(run: Path, updates: int) -> None:
    """Leaves of a run what it had on disk when it was killed soon after an update."""
    (run / "result.json").unlink()
    (run / FILE).unlink(missing_ok=True)
    for checkpoint in (run / "checkpoints").iterdir():
        if checkpoint.name.isdecimal() and int(checkpoint.name) > updates:
            shutil.rmtree(checkpoint)


@pytest.mark.slow
def test_either_stage_goes_on_to_the_same_bits(root, morel, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(root / "data", data)
    [world] = (data / "worlds").iterdir()
    before = world_checksum(world)
    stopped_after(world, 4)
    elsewhere = tmp_path / "run"
    assert train(tmp_path, "morel", elsewhere) == 0  # goes on with the world first
    assert world_checksum(world) == before
    assert_same(elsewhere, morel)
    stopped_after(elsewhere, 4)
    assert main(["train", "--resume", str(elsewhere)]) == 0
    assert_same(elsewhere, morel)
    shutil.rmtree(elsewhere / "checkpoints")  # killed before its first checkpoint
    (elsewhere / "result.json").unlink()
    assert main(["train", "--resume", str(elsewhere)]) == 0
    assert_same(elsewhere, morel)


def test_a_world_is_judged_and_dreams(root, morel, tmp_path, capsys):
    [world] = (root / "data" / "worlds").iterdir()
    capsys.readouterr()
    film = tmp_path / "dream.gif"
    assert main(["evaluate", str(world), "--record", str(film), "--json"]) == 0
    [scores] = json.loads(capsys.readouterr().out)["seeds"]
    found = scores["held_out"]
    assert {"likelihood/image", "likelihood/reward", "likelihood/discount"} <= found.keys()
    assert {
        "image_error_1",
        "repeated_image_error_1",
        "reward_error_1",
        "mean_reward_error_1",
    } <= found.keys()
    assert film.stat().st_size > 0
    assert (world / "learning_curve.png").exists() or not (world / "metrics.csv").exists()


def test_a_report_counts_both_stages(root, morel, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'about = "One"\nseeds = 1\n[methods]\nMOReL = { configs = ["bsuite/morel"] }\n'
        '[environments]\ncatch = { configs = ["bsuite/catch"] }\n'
    )
    experiment = experiments.load(str(file))
    [cell] = experiment.cells()
    shutil.copytree(morel, tmp_path / cell.folder)
    results = gather(experiment, tmp_path)
    [first] = results.worlds.values()
    [world] = (root / "data" / "worlds").iterdir()
    assert first.updates == 6
    assert first.seconds == max(float(row["seconds"]) for row in RunFolder(world).metrics.rows())
    # A world's update is of windows of 6 steps, all encoded and decoded, with its gradient.
    assert first.flops > 6 * 4 * 6 * 2 * 50 * 6 * 3
    text = write(results, tmp_path / "report").read_text()
    row = text.split("## Both stages")[1].splitlines()[-1]
    assert row.startswith(f"| MOReL | catch | 6 | {first.seconds:,.0f} | {first.flops / 1e12:,.3g} | 6 |")
    away = world.rename(tmp_path / "world")
    try:
        assert gather(experiment, tmp_path).worlds == {}
    finally:
        away.rename(world)
