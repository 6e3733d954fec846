"""Two processes that train one run together on this machine, as a user starts them."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from rosmo.cli import main
from rosmo.runs import hosts
from rosmo.runs.folder import RunFolder
from tests.commands.test_train import BINDINGS, _checkpoints, parameters, rosmo
from tests.learner.test_sharding import free_port

MESH = ["--mesh", "data=2,model=2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    assert main(["collect", "catch", "--episodes", "30", "--data-dir", str(root)]) == 0
    return root


def pair(*arguments):
    common = ["--coordinator", f"localhost:{free_port()}", "--num-processes", 2]
    return [rosmo("train", *arguments, *common, "--process-id", index) for index in (0, 1)]


def ended(processes, seconds: float = 1_800) -> list[tuple[int, str]]:
    outputs = [process.communicate(timeout=seconds)[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def losses_of_one_and_two(folder: Path, *arguments) -> list[list[float]]:
    """Trains in one process and in two, and returns the losses of both."""
    losses = []
    for name, start in {"one": lambda *a: [rosmo("train", *a)], "two": pair}.items():
        results = ended(start(*arguments, "--run", folder / name))
        assert {code for code, _ in results} == {0}, results
        losses.append([row["loss"] for row in RunFolder(folder / name).metrics.rows() if "loss" in row])
    return losses


def wait_for_checkpoint(run: Path, step: int, processes) -> None:
    deadline = time.monotonic() + 1_800
    while _checkpoints(run) < step and all(p.poll() is None for p in processes):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_killed_process_ends_the_other_and_all_resume_to_the_same_bits(data, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = [*BINDINGS, "--data-dir", data, *MESH]
    results = ended(pair(*arguments, "--run", whole))
    assert [code for code, _ in results] == [0, 0], results
    assert "learning curve" in results[0][1]
    assert "return" not in results[1][1]  # one process speaks for all

    processes = pair(*arguments, "-p", "num_updates = 100_000", "--run", killed)
    wait_for_checkpoint(killed, 20, processes)
    processes[1].kill()
    lost = time.monotonic()
    (code, output), _ = ended(processes)
    assert time.monotonic() - lost < 3 * hosts.HEARTBEAT_SECONDS
    assert code not in (0, None)
    assert "lost another one" in output or "another task died" in output, output
    partial = killed / "checkpoints" / "100.orbax-checkpoint-tmp-7"  # as if cut off while being written
    shutil.copytree(killed / "checkpoints" / str(_checkpoints(killed)), partial)

    text = killed.joinpath("config.gin").read_text().replace("num_updates = 100000", "num_updates = 100")
    killed.joinpath("config.gin").write_text(text)  # to the end of the other run
    results = ended(pair("--resume", killed))
    assert [code for code, _ in results] == [0, 0], results
    for a, b in zip(parameters(whole), parameters(killed), strict=True):
        np.testing.assert_array_equal(a, b)
    tables = [RunFolder(path).metrics.rows() for path in (whole, killed)]
    assert [row["step"] for row in tables[0]] == [row["step"] for row in tables[1]]


@pytest.mark.slow
def test_a_preempted_pair_saves_and_one_process_goes_on(data, tmp_path):
    run = tmp_path / "run"
    arguments = [*BINDINGS, "-p", "num_updates = 100_000", "--data-dir", data, *MESH]
    processes = pair(*arguments, "--run", run)
    wait_for_checkpoint(run, 5, processes)
    processes[1].send_signal(signal.SIGTERM)
    results = ended(processes)
    assert [code for code, _ in results] == [130, 130], results
    assert all(f"go on with: rosmo train --resume {run}" in output for _, output in results)
    saved = _checkpoints(run)
    assert int(RunFolder(run).metrics.rows()[-1]["step"]) == saved
    config = run / "config.gin"
    config.write_text(config.read_text().replace("num_updates = 100000", f"num_updates = {saved + 5}"))
    assert main(["train", "--resume", str(run), "--mesh", "data=1"]) == 0
    assert json.loads((run / "result.json").read_text())["step"] == saved + 5


@pytest.mark.slow
def test_data_in_host_memory_is_cut_by_each_process_for_its_own_devices(data, tmp_path):
    bindings = [*BINDINGS, "-p", "num_updates = 5", "-p", "train.device_bytes = 0"]
    one, two = losses_of_one_and_two(tmp_path, *bindings, "--data-dir", data, *MESH)
    np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.slow
def test_a_mistake_ends_all_processes(data, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.json").write_text("{}")
    results = ended(pair(*BINDINGS, "--data-dir", data, "--run", tmp_path / "run", *MESH))
    assert [code for code, _ in results] == [1, 1], results
    assert "holds a run already" in results[0][1]
    assert "process 0 has stopped" in results[1][1]


@pytest.mark.slow
def test_a_process_that_fails_on_its_own_ends_them_all(data, tmp_path):
    run = tmp_path / "run"
    processes = pair(*BINDINGS, "-p", "num_updates = 100_000", "--data-dir", data, "--run", run, *MESH)
    wait_for_checkpoint(run, 5, processes)
    run.joinpath("metrics.csv").unlink()
    run.joinpath("metrics.csv").mkdir()  # the first process can write no row, as on a full disk
    (code, output), (other, _) = ended(processes, 3 * hosts.HEARTBEAT_SECONDS)
    assert code == 1
    assert "Is a directory" in output
    assert other not in (0, None)


@pytest.mark.slow
def test_a_mistake_of_one_process_before_the_run_ends_them_all(data, tmp_path):
    common = ["--coordinator", f"localhost:{free_port()}", "--num-processes", 2, "--data-dir", data]
    common += ["--run", tmp_path / "run"]
    names = ("bsuite/rosmo", "bsuite/rosmoo")
    processes = [rosmo("train", name, *common, "--process-id", i) for i, name in enumerate(names)]
    (other, _), (code, output) = ended(processes, 3 * hosts.HEARTBEAT_SECONDS + 30)
    assert code == 1
    assert "there is no configuration 'bsuite/rosmoo'" in output
    assert other not in (0, None)


@pytest.mark.slow
def test_a_process_told_to_stop_before_the_run_does(data, tmp_path):
    run = tmp_path / "run"
    processes = pair(*BINDINGS, "-p", "num_updates = 100_000", "--data-dir", data, "--run", run, *MESH)
    while not run.joinpath("settings.json").exists():
        time.sleep(0.01)
    processes[1].send_signal(signal.SIGTERM)
    results = ended(processes, 3 * hosts.HEARTBEAT_SECONDS + 30)
    assert results[1][0] == 130, results
    assert results[0][0] not in (0, None)


@pytest.mark.parametrize("address", [":1234", "localhost:99999", "localhost", "localhost:x"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ValueError, match="--coordinator must be HOST:PORT or auto"):
        hosts.join(address, 1, 0)


@pytest.mark.slow
def test_without_process_0_the_other_says_what_to_type(data, tmp_path):
    run = tmp_path / "run"
    processes = pair(*BINDINGS, "-p", "num_updates = 100_000", "--data-dir", data, "--run", run, *MESH)
    wait_for_checkpoint(run, 5, processes)
    processes[0].kill()
    _, (code, output) = ended(processes)
    assert code not in (0, None)
    assert f"rosmo train --resume {run}" in output.strip().splitlines()[-1]


def test_process_0_listens_on_the_address_that_it_was_given_and_on_no_other(monkeypatch):
    asked = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda *args, **settings: asked.update(settings))
    monkeypatch.setattr(signal, "signal", lambda *args: None)
    hosts.join("localhost:1234", 2, 0)
    assert asked["coordinator_bind_address"] == "localhost:1234"
    hosts.join("localhost:1234", 2, 1)
    assert asked["coordinator_bind_address"] is None


def test_a_name_that_only_this_machine_understands_is_mentioned(monkeypatch, capsys):
    monkeypatch.setattr(jax.distributed, "initialize", lambda *args, **settings: None)
    monkeypatch.setattr(signal, "signal", lambda *args: None)
    own = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **settings: own)
    hosts.join("node7:1234", 2, 0)
    assert "node7 is 127.0.1.1 on this machine, which no other machine can reach" in capsys.readouterr().err
    hosts.join("localhost:1234", 2, 0)
    assert capsys.readouterr().err == ""


def test_process_0_refuses_the_address_of_another_machine():
    with pytest.raises(ValueError, match=r"192\.0\.2\.1:1234 is none of this machine"):
        hosts.join("192.0.2.1:1234", 2, 0)


def test_process_0_refuses_a_port_that_another_program_has():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"another program listens on 127.0.0.1:{port} already"):
            hosts.join(f"127.0.0.1:{port}", 2, 0)


@pytest.mark.parametrize("resumed", [False, True])
def test_what_to_type_is_said_of_a_process_that_ends_without_a_word(resumed):
    """As JAX ends one that lost process 0, or that never met it."""
    program = (
        "import os, sys; from rosmo.runs import hosts\n"
        "with hosts.watched('node7:1234', 2, 1) as resumed_by:\n"
        f"    if {resumed}: resumed_by('rosmo train --resume run')\n"
        "    os.abort()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=1_800)
    command = " with rosmo train --resume run" if resumed else ""
    assert ended.stderr == (
        "rosmo: process 1 of 2 was ended, or ended itself because it lost another one or never met it: start "
        f"all of them again{command}\n"
    )
