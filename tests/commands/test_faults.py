"""What may go wrong with a run under way, and what is then said and kept."""

import errno
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rosmo.cli import main
from rosmo.runs.folder import RunFolder
from rosmo.runs.metrics import MetricsTable
from tests.commands.test_train import BINDINGS, _checkpoints, data, finish, rosmo  # noqa: F401

# Its gradient is 0/0 once the log-probability of an action is the same as before: never at first.
SPOILED = """
import jax.numpy as jnp
from rosmo import regularizers


@regularizers.register("spoiled")
def spoiled(positions):
    '''A penalty of 0 whose gradient is nan.'''
    return jnp.sqrt(jnp.square(positions.value - jnp.asarray(positions.value)))
"""


def short(updates: int) -> list[str]:
    return [*BINDINGS, "-p", f"num_updates = {updates}"]


def test_a_state_that_is_not_finite_is_never_saved(data, tmp_path, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "spoiled.py").write_text(SPOILED)
    run = tmp_path / "run"
    spoiled = ["--import", str(tmp_path / "spoiled.py"), "-p", "regularizers = ((@spoiled, 1.0),)"]
    arguments = ["train", *short(5), *spoiled, "-p", "log_every = 1", "-p", "eval_every = 5"]
    arguments += ["--data-dir", str(data), "--run", str(run)]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert "after update 1 the state is not finite (optimizer, parameters)" in error
    assert "no checkpoint was saved yet" in error
    assert _checkpoints(run) == -1
    assert [row["step"] for row in RunFolder(run).metrics.rows()] == [0]


def test_a_kill_before_the_first_checkpoint_leaves_no_row_twice(data, tmp_path, capsys):  # noqa: F811
    run = tmp_path / "run"
    assert main(["train", *short(5), "--data-dir", str(data), "--run", str(run)]) == 0
    shutil.rmtree(run / "checkpoints")
    (run / "result.json").unlink()
    table = MetricsTable(run / "metrics.csv")
    table.truncate(0)  # as a kill after the first row leaves it
    assert main(["train", "--resume", str(run)]) == 0
    assert [row["step"] for row in table.rows()] == [0, 5]
    error = capsys.readouterr().err
    assert f"{run} has no checkpoint: the run begins anew" in error
    assert "lost" not in error


def test_rows_that_were_lost_are_mentioned(data, tmp_path, capsys):  # noqa: F811
    run = tmp_path / "run"
    assert main(["train", *short(15), "--data-dir", str(data), "--run", str(run)]) == 0
    table = MetricsTable(run / "metrics.csv")
    rows = [row for row in table.rows() if row["step"] != 5]
    table.path.unlink()
    for row in rows:
        table.append(row)
    assert main(["train", "--resume", str(run)]) == 0
    assert "metrics.csv has lost the rows of 1 updates (5): the run goes on" in capsys.readouterr().err


def test_a_folder_that_was_deleted_ends_the_run_at_its_next_row(data, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    process = rosmo("train", *short(1_000_000), "--data-dir", data, "--run", run)
    while _checkpoints(run) < 5 and process.poll() is None:
        time.sleep(0.05)
    run.rename(tmp_path / "elsewhere")
    output, _ = process.communicate(timeout=1_800)
    assert process.returncode == 1, output
    # Last, as threads of tensorstore may still say that the checkpoint which they were writing is gone.
    assert output.strip().splitlines()[-1].startswith(f"rosmo: {run} was deleted or moved while the run")
    assert not (run / "metrics.csv").exists()


def test_a_full_disk_says_how_to_go_on(data, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    finish(rosmo("train", *short(5), "--data-dir", data, "--run", run))
    config = run / "config.gin"
    config.write_text(config.read_text().replace("num_updates = 5", "num_updates = 1000000"))
    (run / "result.json").unlink()
    program = "import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))\n"
    program += "from rosmo.cli import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "train", "--resume", str(run)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_800, check=False)
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"rosmo: there is no room left to write to {run} (")
    assert last.endswith(f"with: rosmo train --resume {run}")
    assert "Traceback" not in done.stderr


def test_a_disk_without_room_for_the_picture_says_so(data, tmp_path, capsys, monkeypatch):  # noqa: F811
    def full(*arguments, **settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    run = tmp_path / "run"
    monkeypatch.setattr("rosmo.commands.train.learning_curve", full)
    assert main(["train", *short(5), "--data-dir", str(data), "--run", str(run)]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"rosmo: there is no room left to write to {run} (")
    assert last.endswith(f"with: rosmo train --resume {run}")
    with pytest.raises(KeyboardInterrupt, match="which are saved; go on with: rosmo train --resume"):
        stopped_without_room(RunFolder(run))


def stopped_without_room(run):
    from rosmo.commands.train import _explained
    from rosmo.configs import open_run
    from rosmo.runs.train import Interrupted

    with _explained(run, open_run(run)[0]):
        raise Interrupted("stopped after 5 of 10 updates, which are saved")


def test_ctrl_c_in_the_first_second_is_one_word(tmp_path):
    process = rosmo("train", "--data-dir", tmp_path / "d", "--run", tmp_path / "r", start_new_session=True)
    maps = Path(f"/proc/{process.pid}/maps")
    while "libjax" not in maps.read_text():  # in the middle of the imports, seconds before any work
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=1_800)
    assert process.returncode == 130, output
    assert output.strip() == "rosmo: stopped"


def test_a_class_that_is_made_anew_for_each_network_is_refused(data, tmp_path, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "inner.py").write_text(
        "import rosmo.networks as n\n"
        "from rosmo.networks.mlp import MLPPrediction\n\n"
        "@n.register('inner')\n"
        "def inner(key, *, observation_shape, num_actions, num_value_bins, num_reward_bins):\n"
        "    '''An MLP of a class of its own.'''\n"
        "    parts = n.get('mlp')(key, observation_shape=observation_shape, num_actions=num_actions,\n"
        "        num_value_bins=num_value_bins, num_reward_bins=num_reward_bins)\n"
        "    class Own(type(parts.prediction).__mro__[1]):\n"
        "        inner: MLPPrediction\n"
        "        def __call__(self, state):\n"
        "            return self.inner(state)\n"
        "    return parts._replace(prediction=Own(parts.prediction))\n"
    )
    network = ["--import", str(tmp_path / "inner.py"), "-p", "network = @networks.inner"]
    arguments = ["train", "-p", "num_updates = 5", *network, "--data-dir", str(data)]
    assert main([*arguments, "--run", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert "inner.<locals>.Own): define the class at the top of its file" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("binding", "name"),
    [
        ([], "rosmo-catch"),
        (["operator = @mcts"], "rosmo-catch-operator=mcts"),
        (["num_updates = 10", "train.log_every = 5"], "rosmo-catch-num_updates=10,log_every=5"),
        (["regularizers = ((@behavior, 0.5),)"], "rosmo-catch-regularizers=behavior_0.5"),
        (["noise = 0.5"], "rosmo-catch-noise0.5"),
    ],
)
def test_each_configuration_has_a_folder_that_names_what_differs(binding, name):
    from rosmo import configs
    from rosmo.runs.naming import default_name

    training = configs.load(["bsuite/rosmo"], binding)
    assert default_name(["bsuite/rosmo"], binding, training, 0) == name
    assert default_name(["bsuite/rosmo", "bsuite/catch"], binding, training, 3) == f"{name}-seed3"
    training = configs.load(["bsuite/rosmo", "gym/cartpole"], binding)
    name = name.replace("catch", "gym-CartPole-v1")
    assert default_name(["bsuite/rosmo", "gym/cartpole"], binding, training, 0) == name


def test_several_seeds_have_a_folder_beside_that_of_one():
    from rosmo import configs
    from rosmo.runs.naming import default_name

    training = configs.load(["bsuite/rosmo"])
    assert default_name(["bsuite/rosmo"], [], training, 0, 5) == "rosmo-catch-seeds5"
    assert default_name(["bsuite/rosmo"], [], training, 3, 1) == "rosmo-catch-seed3-seeds1"


def test_long_bindings_differ_in_a_checksum():
    from rosmo import configs
    from rosmo.runs.naming import default_name

    bindings = [f"representation = ({', '.join(['64'] * count)})" for count in (50, 51)]
    training = configs.load(["bsuite/rosmo"])
    names = {default_name(["bsuite/rosmo"], [binding], training, 0) for binding in bindings}
    assert len(names) == 2
    assert max(map(len, names)) < 130


def test_a_variant_trains_beside_the_first_run(data, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    arguments = ["train", *short(5), "--data-dir", str(data)]
    assert main(arguments) == 0
    assert main([*arguments, "-p", "regularizers = ()"]) == 0

    def stop(*arguments):  # once they are begun
        raise KeyboardInterrupt

    monkeypatch.setattr("rosmo.experiments.pool.train_all", stop)
    assert main([*arguments, "--seeds", "2"]) == 130
    assert [path.name[-7:] for path in sorted(Path("runs").iterdir())].count("-seeds2") == 1
    assert len(list(Path("runs").iterdir())) == 3
    assert main(arguments) == 1
    assert "holds a run already" in capsys.readouterr().err


def test_a_run_is_stopped_before_a_file_in_place_of_its_checkpoints(data, tmp_path, capsys):  # noqa: F811
    run = tmp_path / "run"
    assert main(["train", *short(5), "--data-dir", str(data), "--run", str(run)]) == 0
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").touch()
    capsys.readouterr()
    for command in (["train", "--resume", str(run)], ["evaluate", str(run)]):
        assert main(command) == 1
        error = capsys.readouterr().err
        assert "checkpoints is no directory of checkpoints: move it away" in error
        assert error.count("rosmo: ") == error.count("\n") == 1


def test_a_learner_of_ones_own_can_ask_whether_a_state_is_finite():
    import dataclasses

    import jax

    from rosmo import Learner
    from tests.learner.test_learner import make_agent

    learner = Learner(make_agent(), batch_size=8)
    state = learner.init(jax.random.key(0))
    learner.refuse_not_finite(state)
    leaves, structure = jax.tree.flatten(state.target_params)
    place = next(i for i, x in enumerate(leaves) if getattr(x, "dtype", None) == np.float32)
    leaves[place] = leaves[place].at[(0,) * leaves[place].ndim].set(np.nan)
    state = dataclasses.replace(state, target_params=jax.tree.unflatten(structure, leaves))
    with pytest.raises(FloatingPointError, match=r"after update 0 .* \(target parameters\)"):
        learner.refuse_not_finite(state)
