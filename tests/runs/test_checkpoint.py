import dataclasses
import threading

import jax
import numpy as np
import pytest

from rosmo import Learner
from rosmo.runs.checkpoint import Checkpoints
from tests.learner.test_learner import KEY, assert_close, make_agent, make_source


@pytest.fixture(scope="module")
def trained():
    learner = Learner(make_agent(), batch_size=8)
    state, _ = learner.update_many(learner.init(KEY), make_source(make_agent()), 3)
    return learner, state


def test_a_state_comes_back_bit_for_bit(trained, tmp_path):
    learner, state = trained
    checkpoints = Checkpoints(tmp_path / "ck")
    assert checkpoints.latest is None
    checkpoints.save(state)
    checkpoints.close()
    again = Checkpoints(tmp_path / "ck")
    assert again.latest == 3
    restored = again.restore(learner.init(jax.random.key(9)))
    assert_close(restored, state)
    assert restored.params.networks.dynamics.from_action.dtype == np.float32
    again.close()


def test_what_was_cut_off_is_not_seen_and_what_is_damaged_is_named(trained, tmp_path):
    learner, state = trained
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state)
    checkpoints.close()
    (tmp_path / "7.orbax-checkpoint-tmp-1").mkdir()
    damaged = max(
        (path for path in (tmp_path / "3").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )
    damaged.write_bytes(damaged.read_bytes()[:-200])
    again = Checkpoints(tmp_path)
    assert again.latest == 3
    with pytest.raises(ValueError, match=r"/3 cannot be restored"):
        again.restore(learner.init(KEY))
    again.close()


def test_a_checkpoint_by_another_name_is_refused(trained, tmp_path):
    learner, state = trained
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state)
    checkpoints.close()
    (tmp_path / "3").rename(tmp_path / "4")
    again = Checkpoints(tmp_path)
    with pytest.raises(ValueError, match=r"/4 holds the state after update 3: .* name 3 again"):
        again.restore(learner.init(KEY))
    again.close()


def test_a_state_that_is_not_finite_is_refused_when_it_comes_back(trained, tmp_path):
    """Earlier versions saved them, and a run that went on from one failed at its first row each time."""
    learner, state = trained
    spoiled = jax.tree.map(lambda x: x * np.float32("nan") if x.dtype == np.float32 else x, state.opt_state)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(dataclasses.replace(state, opt_state=spoiled))
    checkpoints.close()
    again = Checkpoints(tmp_path)
    with pytest.raises(ValueError, match=r"/3 holds a state that is not finite \(optimizer\): .* delete it"):
        again.restore(learner.init(KEY))
    again.close()


def test_a_file_in_the_place_of_the_checkpoints_is_named(tmp_path):
    (tmp_path / "checkpoints").touch()
    with pytest.raises(NotADirectoryError, match="checkpoints is no directory of checkpoints: move it away"):
        Checkpoints(tmp_path / "checkpoints")


def test_an_empty_folder_has_nothing_to_restore(trained, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(FileNotFoundError, match="no complete checkpoint"):
        checkpoints.restore(trained[0].init(KEY))
    checkpoints.close()


def test_an_update_that_was_not_saved_is_said_to_be_none(trained, tmp_path):
    learner, state = trained
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state)
    checkpoints.close()
    again = Checkpoints(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of update 77 in .*; there are: 3$"):
        again.restore(learner.init(KEY), 77)
    again.close()


def test_no_thread_is_left_where_a_save_has_failed(trained, tmp_path, monkeypatch):
    _, state = trained
    before = set(threading.enumerate())
    checkpoints = Checkpoints(tmp_path / "ck")
    checkpoints.save(state)
    wait = checkpoints._manager.wait_until_finished
    failures = [OSError("the disk is gone")]

    def fail_once():
        wait()
        if failures:
            raise failures.pop()

    monkeypatch.setattr(checkpoints._manager, "wait_until_finished", fail_once)
    with pytest.raises(OSError, match="the disk is gone"):
        checkpoints.close()
    assert [thread.name for thread in set(threading.enumerate()) - before] == []
