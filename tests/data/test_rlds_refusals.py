"""What cannot be written as a data set."""

import dataclasses
import sys

import equinox as eqx
import numpy as np
import pytest

from tests.recorded import write


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"name": "a-b"}, ValueError, "name must be letters, digits and underscores"),
        ({"metadata": {"steps": 1}}, ValueError, "metadata key 'steps'"),
        ({"metadata": {"a/b": 1}}, ValueError, "metadata key 'a/b'"),
    ],
)
def test_bad_names_are_refused(tmp_path, episodes, settings, error, message):
    with pytest.raises(error, match=message):
        write(tmp_path / "d", episodes, **settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("field", "change", "error", "message"),
    [
        ("action", lambda x: x + 2**32, ValueError, "step 0 has an action that does not fit into 32 bits"),
        ("action", lambda x: x + 0.9, TypeError, "actions must be integers, got float64"),
        ("reward", lambda x: x + 1j, TypeError, "rewards must be real numbers, got complex"),
        ("reward", lambda x: 1e300 * x, ValueError, "step 0 has a reward that does not fit into float32"),
        ("discount", lambda x: x.astype(object), TypeError, "discounts must be real numbers, got object"),
        ("is_last", lambda x: 2 * x, TypeError, "is_last must be an array of bool, got int64"),
    ],
)
def test_values_that_would_change_are_not_written(tmp_path, episodes, field, change, error, message):
    wide = getattr(episodes[1], field).astype(np.float64 if field == "reward" else np.int64)
    episodes[1] = eqx.tree_at(lambda e: getattr(e, field), episodes[1], change(wide))
    with pytest.raises(error, match=f"episode 1: {message}"):
        write(tmp_path / "d", episodes)
    assert not list(tmp_path.iterdir())


def one_step_short(e):
    return dataclasses.replace(e, observation=e.observation[1:])


def rewards_in_a_column(e):
    changed = dataclasses.replace(e)
    object.__setattr__(changed, "reward", e.reward[:, None])  # which types are checked of in tests alone
    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda e: dataclasses.replace(e, is_last=e.is_first),
            "episode 1: is_last must be set on its last step",
        ),
        (
            lambda e: dataclasses.replace(e, is_first=e.is_last),
            "episode 1: is_first must be set on its first step",
        ),
        (
            lambda e: dataclasses.replace(e, is_terminal=e.is_first),
            "episode 1: is_terminal can be set on its last",
        ),
        (one_step_short, r"episode 1: every field must have the same steps \[L\+1\]"),
        (
            rewards_in_a_column,
            r"episode 1: reward must have the shape \[2\], got \[2, 1\]",
        ),
        (lambda e: dataclasses.replace(e, invalid_actions=None), "episode 1 has steps unlike the first"),
        (
            lambda e: dataclasses.replace(e, observation=e.observation.astype(np.float64)),
            "episode 1 has steps unlike the first: .*float64.* instead of",
        ),
        (
            lambda e: dataclasses.replace(e, observation=e.observation.astype(np.complex64)),
            "episode 1: observations of complex64 cannot be stored",
        ),
        (
            lambda e: dataclasses.replace(e, observation=e.observation.astype(np.uint64)),
            "episode 1: observations of uint64 cannot be stored",
        ),
    ],
)
def test_bad_episodes_are_refused_and_leave_nothing(tmp_path, episodes, change, message):
    episodes[1] = change(episodes[1])
    with pytest.raises((ValueError, TypeError), match=message):
        write(tmp_path / "d", episodes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("package", "file_format"), [("tensorflow_datasets", "array_record"), ("google_crc32c", "tfrecord")]
)
def test_a_missing_package_names_its_extra(tmp_path, episodes, package, file_format, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r'pip install "rosmo\[run\]"'):
        write(tmp_path / "d", episodes, file_format=file_format)
    assert not list(tmp_path.iterdir())


def test_no_episodes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no episode to write"):
        write(tmp_path / "d", [])
    assert not list(tmp_path.iterdir())
