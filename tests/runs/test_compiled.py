"""What is compiled once is kept for later processes, and a part of an entry is never seen by one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from rosmo.runs import compiled

PROGRAM = """
import sys, time
import jax, jax.numpy as jnp
from rosmo.runs import compiled
compiled._LEAST_SECONDS = 0.0
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
with compiled.kept():
    print(jax.jit(lambda x: jnp.sin(x) @ x.T)(jnp.ones((3, 3))).sum() > 0, flush=True)
    if sys.argv[1:]:
        time.sleep(1_000)
hits = sum(event.endswith("/cache_hits") for event in events)
print(hits, bool(jax.config.jax_compilation_cache_dir))
"""


def start(place: str, *arguments: str) -> subprocess.Popen:
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {compiled.SWITCH: place, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> tuple[int, bool]:
    output, _ = process.communicate(timeout=1_800)
    assert process.returncode == 0
    hits, still = output.splitlines()[-1].split()
    return int(hits), still == "True"


def directories(root: Path) -> list[Path]:
    return [path for path in root.glob("*/process-*") if path.is_dir()]


def test_a_second_process_finds_what_the_first_compiled_also_after_a_kill(tmp_path):
    killed = start(str(tmp_path), "stay")
    assert killed.stdout.readline() == "True\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=1_800)
    assert len(directories(tmp_path)) == 1
    assert finish(start(str(tmp_path))) == (0, False), "what the killed one compiled is not trusted"
    assert directories(tmp_path) == [], "and is cleared away"
    entries = list(tmp_path.glob("*/*-cache"))
    assert entries
    assert finish(start(str(tmp_path)))[0] > 0
    assert sorted(tmp_path.glob("*/*-cache")) == sorted(entries)


def test_processes_at_once_do_not_clear_each_other_away(tmp_path):
    staying = start(str(tmp_path), "stay")
    assert staying.stdout.readline() == "True\n"
    finish(start(str(tmp_path)))
    assert len(directories(tmp_path)) == 1
    staying.kill()
    staying.communicate(timeout=1_800)


@pytest.fixture
def nowhere_yet(monkeypatch):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.usefixtures("nowhere_yet")
def test_it_is_bounded_and_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setenv(compiled.SWITCH, str(tmp_path))
    monkeypatch.setattr(compiled, "LARGEST", 2_500)
    with compiled.kept():
        place = Path(jax.config.jax_compilation_cache_dir).parent
    for age, name in enumerate(("new", "middle", "old")):
        entry = place / f"{name}-cache"
        entry.write_bytes(bytes(1_000))
        os.utime(entry, (time.time() - age, time.time() - age))
    with compiled.kept():
        own = Path(jax.config.jax_compilation_cache_dir)
        assert {path.name for path in own.glob("*-cache")} == {"new-cache", "middle-cache"}
    assert {path.name for path in place.glob("*-cache")} == {"new-cache", "middle-cache"}


@pytest.mark.usefixtures("nowhere_yet")
@pytest.mark.parametrize("place", ["off", "/proc/nowhere"])
def test_it_can_be_switched_off_and_no_place_is_no_error(place, monkeypatch):
    monkeypatch.setenv(compiled.SWITCH, place)
    with compiled.kept():
        assert jax.config.jax_compilation_cache_dir is None


def test_a_place_that_jax_was_told_of_stays(tmp_path, monkeypatch):
    monkeypatch.setenv(compiled.SWITCH, str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    assert before, "the tests have one"
    with compiled.kept():
        assert jax.config.jax_compilation_cache_dir == before
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_links_has_copies(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    (tmp_path / "a").write_bytes(b"entry")
    monkeypatch.setattr(os, "link", refuse)
    compiled._link(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"entry"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
