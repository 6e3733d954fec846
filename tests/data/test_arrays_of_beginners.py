"""What goes wrong with arrays at the first try: each mistake is told in the words of who made it."""

import re
import shutil

import numpy as np
import pytest

from rosmo.data import from_episodes, from_file, from_flat, from_minari, from_rlds, from_transitions
from tests.data.test_arrays import FOLLOWING, Played, flat


def test_a_single_row_is_a_data_set():
    first = {name: values[:1] for name, values in flat(next_observations=FOLLOWING).items()}
    assert from_flat(first).observation[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.array([1.0, 0, 1, 0, 2, 1])}, "they are whole numbers, so make integers"),
        ({"actions": np.array([1, 10**9, 1, 0, 2, 1])}, "the largest action is 1,000,000,000, .* without"),
        ({"next_observations": np.where(np.arange(6)[:, None] == 2, np.nan, FOLLOWING)},
         "next_observations: step 2 has an observation that is not finite"),
        ({"invalid_action": np.ones((6, 3), bool)}, "step 0 has invalid_actions that forbid every action"),
    ],
)  # fmt: skip
def test_mistakes_in_rows(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        from_flat(flat(**changes))


@pytest.mark.parametrize("count", [0, -1])
def test_a_number_of_actions_is_one(count):
    with pytest.raises(ValueError, match="num_actions must be a whole number of at least 1"):
        from_flat(flat(), num_actions=count)
    with pytest.raises(ValueError, match="num_actions must be a whole number of at least 1"):
        from_episodes([Played], num_actions=count)


def test_rows_episodes_and_transitions_are_not_taken_for_each_other():
    with pytest.raises(TypeError, match="a dictionary of arrays, and not as list: from_episodes takes lists"):
        from_flat([vars(Played)])
    with pytest.raises(TypeError, match=r"a list of them, and not as a dictionary: \[episode\] for one"):
        from_episodes(vars(Played))
    with pytest.raises(TypeError, match="episode 1 is a tuple: an episode is a dictionary of observations"):
        from_episodes([Played, ([0.0], 1, 0.5)])
    rows = flat()
    with pytest.raises(ValueError, match=r"next_observations are missing, .* in order; from_flat takes rows"):
        from_transitions(rows["observations"], rows["actions"], rows["rewards"], None, rows["terminals"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"truncations": [False, True, False]}, "episode 1: it is truncated at step 1 and goes on"),
        ({"truncated": [False, True]}, "episode 1: it has 3 actions and 2 flags in truncated"),
        ({"invalid_actions": np.zeros((9, 3), bool)}, r"3 actions and invalid_actions of .*\[9, 3\]"),
        ({"invalid_actions": np.zeros((3, 3), bool)}, r"episode 1 .*: invalid_actions is bool \[3\], and mi"),
        ({"observations": [{"a": 0.0}] * 3 + [{"b": 0.0}]}, "episode 1: observations do not all have"),
        ({"actions": 3}, "episode 1: it has 1 actions and 3 flags"),
        ({"observations": np.zeros((4, 1), int)}, r"unlike .*: observation is int64 \[1\], and float"),
    ],
)  # fmt: skip
def test_mistakes_in_episodes(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        from_episodes([Played, vars(Played) | changes])


def test_an_end_is_known_by_the_names_that_rows_have_for_it():
    named = {k: v for k, v in vars(Played).items() if k != "terminations"}
    ended = {"terminals": [False, False, True], "timeouts": [False, False, False]}
    assert from_episodes([named | ended]).is_terminal.tolist() == [False, False, False, True]


def test_of_a_file_without_what_is_needed_it_says_what_is_there(tmp_path):
    import h5py
    import pyarrow
    from pyarrow import parquet

    there = {"obs": np.zeros(3), "rewards": np.zeros(3)}
    np.savez(tmp_path / "d.npz", obs=there["obs"], rewards=there["rewards"])
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        file["obs"], file["rewards"] = there.values()
    parquet.write_table(pyarrow.table(there), tmp_path / "d.parquet")
    for name in ("d.npz", "d.hdf5", "d.parquet"):
        with pytest.raises(ValueError, match="has no 'observations'") as error:
            from_file(tmp_path / name)
        assert set(re.findall(r"'(\w+)'", str(error.value).split("it has: ")[1])) == {"obs", "rewards"}


def test_masks_in_a_file_are_kept_by_either_name_and_endings_are_of_any_case(tmp_path):
    np.savez(tmp_path / "d.npz", **flat(invalid_action=np.zeros((6, 5), bool)))
    shutil.copy(tmp_path / "d.npz", tmp_path / "D.NPZ")
    masks = from_file(tmp_path / "D.NPZ").invalid_actions
    assert masks is not None
    assert masks.shape == (6, 5)
    # A file that is cut, or none, is not explained by what NumPy takes it for.
    (tmp_path / "e.npz").write_bytes((tmp_path / "d.npz").read_bytes()[:900])
    with pytest.raises(
        ValueError, match=r"e\.npz: it cannot be read as \.npz \(it is none, or not all of one\)"
    ):
        from_file(tmp_path / "e.npz")


def test_seeds_and_names_of_data_sets(tmp_path, monkeypatch):
    np.savez(tmp_path / "d.npz", **flat())
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0, got -1"):
        from_file(tmp_path / "d.npz", fraction=0.5, seed=-1)
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        from_rlds(tmp_path / "nowhere")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    from rosmo.data import minari

    minari.write("mine/walks-v0", from_flat(flat()), num_actions=3, description="walks")
    with pytest.raises(
        FileNotFoundError, match="'mine/walk-v0' on this machine: did you mean 'mine/walks-v0'"
    ):
        from_minari("mine/walk-v0")
    assert from_minari("minari:mine/walks-v0").is_last.sum() == 2
