"""The commands as a user runs them, at a size that takes seconds."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from rosmo.cli import main
from rosmo.data import rlds
from rosmo.runs.folder import RunFolder

SMALL = [
    "representation = (8, 6)",
    "dynamics = (8,)",
    "prediction = (6,)",
    "batch_size = 8",
    "num_updates = 100",
    "target_update_interval = 5",
    "log_every = 5",
    "eval_every = 50",
    "eval_episodes = 2",
    "train.final_episodes = 2",
    "checkpoint_every = 5",
]
BINDINGS = [part for binding in SMALL for part in ("-p", binding)]

EXPERIMENT = """
about = "Two seeds"
seeds = 2
[methods]
ROSMO = { configs = ["bsuite/rosmo"] }
[environments]
catch = { configs = ["bsuite/catch"] }
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A collected data set, made by the command itself."""
    root = tmp_path_factory.mktemp("data")
    assert main(["collect", "catch", "--episodes", "30", "--data-dir", str(root)]) == 0
    return root


def test_a_run_that_has_no_place_is_refused_before_data_is_collected(tmp_path, capsys):
    (tmp_path / "file").touch()
    for run in (tmp_path / "file", tmp_path / "file" / "x"):
        assert main(["train", *BINDINGS, "--run", str(run), "--data-dir", str(tmp_path / "data")]) == 1
        assert "file is no directory that can be written to: choose another" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def rosmo(*arguments, **settings) -> subprocess.Popen:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "rosmo.cli", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, **pipes, **settings)


def finish(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=1_800)
    assert process.returncode == 0, output
    return output


def parameters(run: Path) -> list[np.ndarray]:
    from rosmo.configs import open_run
    from rosmo.runs.checkpoint import Checkpoints

    training, _ = open_run(RunFolder(run))
    learner = training.learner(training.build_agent())
    checkpoints = Checkpoints(run / "checkpoints")
    state = checkpoints.restore(learner.init(jax.random.key(0)))
    checkpoints.close()
    assert int(state.step) == training.num_updates
    return jax.tree.leaves(jax.device_get((state.params, state.target_params, state.opt_state)))


def test_collected_episodes_are_catch(data):
    steps = rlds.read(data / "catch-noise0-seed0")
    assert int(steps.is_last.sum()) == 30
    assert steps.observation.shape == (30 * 10, 10, 5)
    about = rlds.read_metadata(data / "catch-noise0-seed0")
    assert (about["environment"], about["noise"], about["seed"]) == ("catch", 0.0, 0)


def test_collecting_over_a_data_set_is_refused(data, capsys):
    assert main(["collect", "catch", "--episodes", "1", "--data-dir", str(data)]) == 1
    assert "catch-noise0-seed0" in capsys.readouterr().err


def test_a_game_of_images_from_its_data_to_its_score(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recorded = ["collect", "minatar/breakout", "--policy", "random", "--episodes", "30", "--out", "recorded"]
    assert main(recorded) == 0
    steps = rlds.read(Path("recorded"))
    assert steps.observation.shape[1:] == (10, 10, 4)
    assert steps.observation.dtype == np.uint8
    small = [*BINDINGS, "-p", "channels = (2,)", "-p", "num_updates = 5", "-p", "eval_every = 5"]
    small += ["-p", "eval_episodes = 1", "-p", "data = 'recorded'", "--run", "run"]
    assert main(["train", "minatar/rosmo", "minatar/breakout", *small]) == 0
    assert "run: return" in capsys.readouterr().out
    row = RunFolder(Path("run")).metrics.rows()[-1]
    assert {"return", "greedy_return", "normalised"} <= set(row)
    assert "return_stderr" not in row  # one episode has none


def test_a_killed_run_resumes_to_the_same_bits(data, tmp_path):
    """Kills a run at a random moment and compares it with one that was left alone."""
    whole = rosmo("train", *BINDINGS, "--data-dir", data, "--run", tmp_path / "whole")
    finish(whole)
    killed = tmp_path / "killed"
    process = rosmo("train", *BINDINGS, "--data-dir", data, "--run", killed)
    while _checkpoints(killed) < 5 and process.poll() is None:
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.5))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    process = rosmo("train", "--resume", killed)
    finish(process)
    for a, b in zip(parameters(tmp_path / "whole"), parameters(killed), strict=True):
        np.testing.assert_array_equal(a, b)
    tables = [RunFolder(path).metrics.rows() for path in (tmp_path / "whole", killed)]
    for row in (row for table in tables for row in table):
        row.pop("updates_per_second", None)
        row.pop("seconds")
    assert tables[0] == tables[1]


def _checkpoints(run: Path) -> int:
    complete = [int(path.name) for path in (run / "checkpoints").glob("*") if path.name.isdigit()]
    return max(complete, default=-1)


def test_ctrl_c_saves_and_says_how_to_go_on(data, tmp_path):
    run = tmp_path / "run"
    process = rosmo("train", *BINDINGS, "-p", "num_updates = 100_000", "--data-dir", data, "--run", run)
    deadline = time.monotonic() + 1_800
    while _checkpoints(run) < 5 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=1_800)
    assert process.returncode == 130, output
    assert f"go on with: rosmo train --resume {run}" in output
    assert "Traceback" not in output
    assert int(RunFolder(run).metrics.rows()[-1]["step"]) == _checkpoints(run)


def test_a_killed_experiment_ends_with_the_table_of_one_that_was_left_alone(data, tmp_path):
    file = tmp_path / "pair.toml"
    file.write_text(EXPERIMENT)

    def begin(out: str):
        return rosmo("experiment", file, *BINDINGS, "--data-dir", data, "--out", tmp_path / out)

    finish(begin("whole"))
    process = begin("killed")
    first = tmp_path / "killed" / "pair" / "rosmo-catch" / "seed0"
    while _checkpoints(first) < 5 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    _wait_until_free(RunFolder(first))  # no run outlives the experiment
    assert not RunFolder(first).finished()
    finish(begin("killed"))
    assert _table(file, tmp_path / "killed") == _table(file, tmp_path / "whole")


def test_an_experiment_keeps_to_one_configuration_and_to_its_data(data, tmp_path, capsys):
    file, out = tmp_path / "pair.toml", tmp_path / "out"
    file.write_text(EXPERIMENT)
    short = [*BINDINGS, "-p", "num_updates = 5"]
    arguments = [str(file), *short, "--seeds", "1", "--out", str(out)]
    output = finish(rosmo("experiment", *arguments, "--data-dir", data))
    assert f"for tables and figures: rosmo report {file} --out {out}" in output
    assert "30 episodes" in RunFolder(out / "pair" / "rosmo-catch" / "seed0").read_settings()["data"]
    other = tmp_path / "data"
    assert main(["collect", "catch", "--episodes", "20", "--data-dir", str(other)]) == 0
    capsys.readouterr()
    for changed, message in (
        (["--data-dir", str(other)], "was begun on other data (30 episodes"),
        (["--data-dir", str(data), "-p", "num_updates = 10"], "was begun with another configuration"),
        (
            ["--data-dir", str(data), "--seeds", "3"],
            "--seeds must lie between 1 and the 2 of the file, got 3",
        ),
    ):
        assert main(["experiment", *arguments, *changed]) == 1
        assert message in capsys.readouterr().err


def test_an_experiment_refuses_a_method_that_cannot_work_before_it_begins(data, tmp_path, capsys):
    file, out = tmp_path / "pair.toml", tmp_path / "out"
    bad = "BC = { configs = ['bsuite/bc'], bindings = ['positions = 0'] }\n[environments]"
    file.write_text(EXPERIMENT.replace("[environments]", bad))
    assert main(["experiment", str(file), *BINDINGS, "--data-dir", str(data), "--out", str(out)]) == 1
    assert "positions must be a whole number of at least 1, got 0" in capsys.readouterr().err
    assert not out.exists()


def test_a_run_that_is_killed_is_named_with_its_signal(data, tmp_path):
    file, out = tmp_path / "pair.toml", tmp_path / "out"
    file.write_text(EXPERIMENT)
    kills = tmp_path / "kills.py"
    kills.write_text(
        "import os, signal, sys\nif 'train' in sys.argv:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    arguments = [file, *BINDINGS, "--seeds", 1, "--data-dir", data, "--out", out, "--import", kills]
    process = rosmo("experiment", *arguments)
    output, _ = process.communicate(timeout=1_800)
    assert process.returncode == 1
    assert "seed0 was killed by signal 9: " in output
    assert "1 of 1 runs failed" in output


def _wait_until_free(run: RunFolder, seconds: float = 1_800) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            with run.held():
                return
        except BlockingIOError:
            assert time.monotonic() < deadline, f"{run.path} is still in use"
            time.sleep(0.1)


def _table(file: Path, out: Path) -> list[dict]:
    """The report's cells, without the time that they took."""
    assert main(["report", str(file), "--out", str(out), "--to", str(out / "report")]) == 0
    cells = json.loads((out / "report" / "pair" / "results.json").read_text())["cells"]
    for cell in cells:
        for timed, name in ((cell, "seconds_per_update"), (cell["curve"], "seconds")):
            assert timed.pop(name) is not None
        cell["second_stage"].pop("seconds")
    return cells


def test_seeds_train_side_by_side_and_are_evaluated_together(data, tmp_path, capsys):
    run = tmp_path / "run"
    bindings = [*BINDINGS, "-p", "num_updates = 5"]
    output = finish(rosmo("train", *bindings, "--seeds", 2, "--data-dir", data, "--run", run))
    assert "seed1: return" in output
    assert (run / "learning_curve.png").exists()
    assert main(["evaluate", str(run), "--episodes", "3", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in scores["scores"]] == ["sampled", "greedy"]
    assert (scores["seeds"], scores["scores"][0]["episodes"]) == (2, 6)
    first, second = (RunFolder(run / f"seed{seed}").metrics.rows()[-1]["loss"] for seed in (0, 1))
    assert first != second


def test_a_run_writes_down_what_it_was(data, tmp_path, capsys):
    run = tmp_path / "run"
    arguments = ["train", *BINDINGS, "-p", "num_updates = 5", "--data-dir", str(data), "--run", str(run)]
    assert main([*arguments, "--mesh", "data=2"]) == 0
    assert "operator = @operators.one_step" in (run / "operative_config.gin").read_text()
    assert json.loads((run / "versions.json").read_text())["jax"]
    assert list((run / "tensorboard").iterdir())
    assert [row["step"] for row in RunFolder(run).metrics.rows()] == [0, 5]
    result = json.loads((run / "result.json").read_text())
    assert next(iter(result)) == "mean"
    assert result["mean"] == {name: np.mean(result[name]) for name in ("sampled", "greedy")}
    described = set(re.findall(r"^\| `([^`]+?)/?` ", (run / "README.md").read_text(), re.MULTILINE))
    assert {path.name for path in run.iterdir()} - described == {"README.md", ".lock"}
    assert described - {path.name for path in run.iterdir()} == {"imports"}
    assert main(arguments) == 1  # the folder is taken
    assert "--resume" in capsys.readouterr().err


def test_every_agent_trains(data, tmp_path):
    for agent in ("bc", "mzu_q"):  # the learner's own tests train all of them
        run = str(tmp_path / agent)
        bindings = [*BINDINGS, "-p", "num_updates = 5"]
        assert main(["train", f"bsuite/{agent}", *bindings, "--data-dir", str(data), "--run", run]) == 0


def test_data_larger_than_the_device_trains_to_the_same_numbers(data, tmp_path):
    losses = {}
    for place, size in (("device", 2**31), ("host", 0)):
        run = tmp_path / place
        bindings = [*BINDINGS, "-p", "num_updates = 5", "-p", "cache_targets = False"]
        bindings += ["-p", f"train.device_bytes = {size}"]
        assert main(["train", *bindings, "--data-dir", str(data), "--run", str(run)]) == 0
        losses[place] = [row["loss"] for row in RunFolder(run).metrics.rows() if "loss" in row]
    np.testing.assert_allclose(losses["host"], losses["device"], rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "-p", "operater = @mcts"], "Did you mean 'operator'"),
        (["train", "bsuite/rosmoo"], "Did you mean 'bsuite/rosmo'"),
        (["train", "-p", "environment = 'catchy'"], "there is no environment 'catchy'"),
        (["train", "-p", "batch_size = 9", "--mesh", "data=2"], "does not divide over the 2 devices"),
        (["train", "-p", "train.data = '/nowhere'"], "/nowhere"),
        (["train", "--resume", "/nowhere"], "/nowhere is no run"),
        (["train", "--seeds", "0"], "--seeds must lie between 1 and 10,000"),
        (["train", "--seed", "5000000000"], "--seed must lie between"),
        (["train", "--mesh", "data=33,model=3"], "a mesh of 99 devices is not possible here"),
        (["train", "--mesh", "rows=2"], "a mesh is written as data=8"),
        (["train", "--process-id", "1"], "go with --coordinator"),
        (["train", "--coordinator", "localhost:1"], "needs --num-processes N"),
        (["train", "-p", "train.final_episodes = 0"], "final_episodes must be a whole number"),
        (["train", "-p", "behavior_weight = -1"], "the weight of the regularizer behavior must be a finite"),
        (["train", "-p", "policy_weight = -0.5"], "policy_weight must be a finite number of at least 0"),
        (["train", "-p", "operator = mcts"], "write @name for a part"),
        (["train", "bsuite/catch"], "say which agent to train first"),
        (["evaluate", "/nowhere"], "/nowhere is no run"),
        (["collect", "catchy"], "there is no environment 'catchy'"),
        (["collect", "catch", "--noise", "2"], "noise"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(arguments, message, tmp_path, monkeypatch, capsys):
    assert len(jax.devices()) == 8  # which wakes JAX: asleep, it would simulate as many as are asked for
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*.*"))


def test_a_wrong_type_is_one_sentence(tmp_path):
    """In a process of its own: the tests' type checker would speak first."""
    sentences = {
        "num_updates = 20.5": "num_updates must be a whole number, got 20.5",
        "batch_size = 8.0": "batch_size must be a whole number, got 8.0",
        "noise = '0.3'": "noise must be a number, got '0.3'",
        "noise = True": "noise must be a finite number of at least 0 and at most 1, got True",
        "dynamics = 64": "dynamics must be whole numbers in parentheses, as in (64,), got 64",
        "learning_rate = 'a'": "learning_rate must be a number, got 'a'",
        "learning_rate = 1e400": "learning_rate must be finite, got inf",
        "behavior_weight = 'x'": "regularizers must be entries of the form (a part, as in @name, a number) "
        "in parentheses, as in (…,), got ((@behavior, 'x'),), where behavior_weight is 'x'",
        "behavior_weight = 1e400": "regularizers must be finite, got ((@behavior, inf),), where "
        "behavior_weight is inf",
        "data = 5": "data must be a text in quotes or None, got 5",
    }
    program = "import sys; from rosmo.cli import main\nfor b in sys.argv[1:]: main(['train', '-p', b])"
    command = [sys.executable, "-c", program, *sentences]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=1_800, check=True)
    for line, sentence in zip(result.stderr.splitlines(), sentences.values(), strict=True):
        assert line.startswith("rosmo: ")
        assert line.endswith(sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("binding", ["operator = @behavior", "learning_rate = 'fast'"])
def test_what_cannot_be_traced_is_refused_before_a_folder_is_made(binding, data, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", *BINDINGS, "-p", binding, "--data-dir", str(data), "--run", str(run)]) == 1
    assert "rosmo: " in capsys.readouterr().err
    assert not run.exists()


def test_a_run_goes_on_as_it_was_begun_and_on_the_same_data(data, tmp_path, capsys):
    run, copy = tmp_path / "run", tmp_path / "copy"
    shutil.copytree(data / "catch-noise0-seed0", copy)
    bindings = [*BINDINGS, "-p", "num_updates = 5", "-p", "regularizers = ()", "-p", f"data = '{copy}'"]
    assert main(["train", *bindings, "--run", str(run)]) == 0
    assert main(["train", "--resume", str(run), "-p", "num_updates = 4"]) == 1
    assert "leave out bind" in capsys.readouterr().err
    shutil.rmtree(copy)
    assert main(["collect", "catch", "--episodes", "5", "--out", str(copy)]) == 0
    assert main(["train", "--resume", str(run)]) == 1
    assert "the data has changed since" in capsys.readouterr().err


@pytest.mark.parametrize("field", ["reward", "action", "observation"])
def test_bad_data_is_refused_before_training(field, data, tmp_path, capsys):
    steps = rlds.read(data / "catch-noise0-seed0")
    ends = np.flatnonzero(steps.is_last) + 1
    bad = {"reward": np.nan, "action": 7, "observation": np.inf}[field]
    getattr(steps, field)[3] = bad
    episodes = [
        jax.tree.map(lambda x, a=a, b=b: x[a:b], steps) for a, b in zip([0, *ends[:-1]], ends, strict=True)
    ]
    rlds.write(tmp_path / "bad", episodes, name="bad", metadata={})
    run = tmp_path / "run"
    bindings = [*BINDINGS, "-p", f"train.data = '{tmp_path / 'bad'}'", "-p", "environment = 'catch'"]
    assert main(["train", *bindings, "--run", str(run)]) == 1
    assert "step 3 has a" in capsys.readouterr().err
    assert not run.exists()


def test_bench_times_variants_beside_the_product(monkeypatch, capsys):
    monkeypatch.setattr("rosmo.costs.speed._PRODUCT_SIZE", 64)
    variant = ["--against", "regularizers = ()", "--mesh", "data=1", "--updates", "2", "--rounds", "1"]
    assert main(["bench", *BINDINGS, *variant]) == 0
    *_, first, second = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    assert (first[0], first[2]) == ("| bsuite/rosmo", "1.00")
    assert second[0] == "| bsuite/rosmo regularizers = ()"
    assert float(first[1]) > 0
    assert first[3] == second[3]  # the penalty is of what the loss has anyway
    assert main(["bench", "--rounds", "0"]) == 1
    assert "--rounds must be at least 1, got 0" in capsys.readouterr().err


def test_list_names_every_part_with_its_settings(capsys):
    assert main(["list"]) == 0
    output = capsys.readouterr().out
    for expected in (
        "sampled_one_step",
        "num_samples=4",
        "behavior_exp",
        "resnet",
        "mountain_car",
        "bsuite/mzu",
    ):
        assert expected in output
