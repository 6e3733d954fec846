"""Arrays of others as steps, against steps that were written down by hand."""

import sys

import numpy as np
import pytest

from rosmo import data
from rosmo.data import from_episodes, from_file, from_flat, from_rlds, from_transitions, rlds, window_sampler


def flat(**changes):
    """Three episodes of 3, 2 and 1 transitions: one terminated, one cut off, and one that just stops."""
    rows = {
        "observations": np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [20.0]], np.float32),
        "actions": np.array([1, 0, 1, 0, 2, 1]),
        "rewards": np.array([0.1, 0.2, 0.3, 1.1, 1.2, 2.1], np.float32),
        "terminals": np.array([0, 0, 1, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 1, 0], bool),
    }
    return rows | changes


FOLLOWING = np.array([[1.0], [2.0], [3.0], [11.0], [12.0], [21.0]], np.float32)


def test_flat_rows_with_what_followed_keep_every_transition_and_the_last_reward():
    steps = from_flat(flat(next_observations=FOLLOWING))
    assert steps.observation[:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 20, 21]
    assert steps.action.tolist() == [1, 0, 1, 0, 0, 2, 0, 1, 0]
    np.testing.assert_array_equal(steps.reward, np.float32([0.1, 0.2, 0.3, 0, 1.1, 1.2, 0, 2.1, 0]))
    assert np.flatnonzero(steps.is_first).tolist() == [0, 4, 7]
    assert np.flatnonzero(steps.is_last).tolist() == [3, 6, 8]
    assert np.flatnonzero(steps.is_terminal).tolist() == [3]
    assert steps.discount.tolist() == [1, 1, 0, 0, 1, 1, 1, 1, 1]
    assert len(window_sampler(steps, window=2, num_actions=3).starts) == 6


def test_without_what_followed_a_termination_repeats_and_a_cut_closes_with_its_last_observation():
    """The cut episode loses its last transition, and one without another is left out: nothing is made up."""
    steps = from_flat(flat())
    assert steps.observation[:, 0].tolist() == [0, 1, 2, 2, 10, 11]
    np.testing.assert_array_equal(steps.reward, np.float32([0.1, 0.2, 0.3, 0, 1.1, 0]))
    assert steps.action.tolist() == [1, 0, 1, 0, 0, 0]
    assert np.flatnonzero(steps.is_last).tolist() == [3, 5]
    assert np.flatnonzero(steps.is_terminal).tolist() == [3]


def test_other_names_shapes_and_flags_are_taken():
    rows = flat()
    other = {
        "observations": {"state": {"position": rows["observations"]}},
        "actions": rows["actions"][:, None],
        "rewards": rows["rewards"].astype(np.float64)[:, None],
        "terminations": rows["terminals"].astype(float),
        "truncations": rows["timeouts"].astype(int).tolist(),
        "infos/qpos": np.zeros(6),
    }
    ours, theirs = from_flat(rows), from_flat(other)
    for field, values in vars(ours).items():
        np.testing.assert_array_equal(getattr(theirs, field), values)


def test_masks_are_kept_and_those_of_closing_steps_forbid_nothing_that_is_not_known():
    masks = np.zeros((6, 4), bool)
    masks[:, 3] = True
    with_next = from_flat(flat(next_observations=FOLLOWING, invalid_actions=masks))
    assert with_next.invalid_actions[:, 3].tolist() == [1, 1, 1, 0, 1, 1, 0, 1, 0]
    # A cut episode closes with a row of its own, whose mask is known.
    assert from_flat(flat(invalid_actions=masks)).invalid_actions[:, 3].tolist() == [1, 1, 1, 1, 1, 1]
    masks[1, 0] = True
    with pytest.raises(ValueError, match=r"step 1 has an action that its invalid_actions forbid"):
        from_flat(flat(invalid_actions=masks))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.zeros((6, 2), np.float32)}, "got float32: continuous actions are not supported"),
        ({"actions": np.zeros((6, 2), int)}, r"one whole number a row, got the shape \[6, 2\]"),
        ({"rewards": np.zeros(5)}, "differ in length"),
        ({"terminals": np.zeros(5)}, "differ in length"),
        ({"terminals": np.full(6, 0.5)}, "terminals must be booleans, or 0 and 1"),
        ({"terminals": True}, r"terminals must be one flag a row, got the shape \[\]"),
        ({"observations": {"a": np.zeros(6), "b": np.zeros(6)}}, r"several parts \(a, b\): combine them"),
        ({"rewards": np.array([0, 0, 0, np.nan, 0, 0])}, "step 3 has a reward that is not finite"),
        ({"next_observations": FOLLOWING[:5]}, "differ in length"),
        ({"next_observations": np.zeros((6, 2), np.float32)}, r"the shape \[2\], and observations \[1\]"),
        ({"next_observations": FOLLOWING + (FOLLOWING == 1)}, "next observation of row 0 is not .* of row 1"),
        ({name: np.zeros((0,)) for name in ("observations", "rewards", "terminals", "timeouts")}
         | {"actions": np.zeros(0, int)}, "the data has no rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_flat_rows_is_said_of_the_row(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        from_flat(flat(**changes))


def test_a_field_that_is_missing_is_named_and_done_says_too_little():
    rows = flat(dones=np.zeros(6))
    del rows["terminals"]
    with pytest.raises(
        ValueError, match=r"no 'terminals' \(it has: .*'timeouts', 'dones'\); a `done` does not"
    ):
        from_flat(rows)


def transitions(count=40, length=10):
    step = np.arange(count)
    observations = np.stack([step, step // length], axis=1).astype(np.float32)
    following = observations + np.float32([1, 0])
    return observations, step % 3, np.ones(count, np.float32), following, step % length == length - 1


def test_transitions_in_order_are_steps_and_shuffled_ones_are_refused_with_the_reason():
    steps = from_transitions(*transitions())
    assert int(steps.is_last.sum()) == 4
    assert len(steps.action) == 44
    assert (steps.reward[~steps.is_last] == 1).all()
    order = np.random.default_rng(0).permutation(40)
    with pytest.raises(
        ValueError, match=r"transitions in no order: .*trained on several steps in a row of one"
    ):
        from_transitions(*(x[order] for x in transitions()))


def test_a_cut_that_is_not_marked_is_named_and_taken_where_it_is():
    parts = transitions()
    terminals = parts[4] & (np.arange(40) != 19)
    with pytest.raises(ValueError, match=r"row 19 is not .* row 20 \(1 of 37 rows\): .* set its timeouts"):
        from_transitions(*parts[:4], terminals)
    steps = from_transitions(*parts[:4], terminals, np.arange(40) == 19)
    assert steps.is_terminal[steps.is_last].tolist() == [True, False, True, True]


class Played:
    """An episode with attributes, as Minari has it."""

    observations = np.arange(4.0)[:, None]
    actions = np.array([0, 1, 0])
    rewards = (1.0, 2.0, 3.0)
    terminations = np.array([False, False, True])


def test_episodes_with_what_followed_the_last_action_and_without():
    whole = {"observations": Played.observations, "actions": [0, 1, 0], "rewards": [1, 2, 3]}
    short = whole | {"observations": [{"state": row} for row in Played.observations[:3]]}
    steps = from_episodes([Played, whole | {"terminated": False}, short | {"terminated": True},
                           short | {"terminated": np.array([False] * 3)}])  # fmt: skip
    shown = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 2, 0, 1, 2]
    assert steps.observation[:, 0].tolist() == shown
    assert steps.reward.tolist() == [1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 0]
    assert np.flatnonzero(steps.is_last).tolist() == [3, 7, 11, 14]
    assert np.flatnonzero(steps.is_terminal).tolist() == [3, 11]


def test_masks_of_episodes_close_them_too_where_they_are_given():
    episode = vars(Played) | {"invalid_actions": np.array([[0, 0, 1]] * 4, bool)}
    assert from_episodes([episode]).invalid_actions[:, 2].tolist() == [1, 1, 1, 1]
    short = episode | {"invalid_actions": episode["invalid_actions"][:3]}
    assert from_episodes([short]).invalid_actions[:, 2].tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": np.zeros((2, 1))}, "episode 1: it has 3 actions and 2 observations"),
        ({"terminations": [False, True, False]}, "episode 1: it is terminated at step 1 and goes on"),
        ({"rewards": [1.0, np.inf, 0.0]}, "episode 1: step 1 has a reward that is not finite"),
        ({"observations": np.zeros((4, 2))}, "episode 1 has steps unlike the first"),
        ({"actions": [0.5, 1.0, 0.0]}, "episode 1: actions must be integers, .*continuous"),
        ({"terminations": "False"}, "episode 1: terminated must be booleans, or 0 and 1"),
        ({"terminations": float("nan")}, "episode 1: terminated must be booleans, or 0 and 1"),
        ({"terminations": [False, True]}, "episode 1: it has 3 actions and 2 flags in terminated"),
        ({"terminations": []}, "episode 1: it has 3 actions and 0 flags in terminated"),
        ({"observations": [[0.0], [1.0, 2.0]]}, "episode 1: observations are not all of one shape"),
    ],
)
def test_what_is_wrong_with_an_episode_is_said_of_it(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        from_episodes([Played, vars(Played) | changes])
    with pytest.raises(ValueError, match="episode 0: the data has no 'terminated'"):
        from_episodes([{k: v for k, v in vars(Played).items() if k != "terminations"}])


def write_npz(path, rows):
    np.savez(path, **rows, notes=np.array(["made", "by", "hand"]))


def write_hdf5(path, rows):
    import h5py

    with h5py.File(path, "w") as file:
        for name, values in rows.items():
            file[f"{name}/state" if name == "observations" else name] = values
        file["infos/goal"] = np.zeros((6, 2))


def write_parquet(path, rows):
    import pyarrow
    from pyarrow import parquet

    columns = {name: list(values) if values.ndim > 1 else values for name, values in rows.items()}
    parquet.write_table(pyarrow.table(columns), path)


def write_numbered(path, rows):
    import pyarrow
    from pyarrow import parquet

    columns = {name: values for name, values in rows.items() if values.ndim == 1}
    columns |= {"observations_0": rows["observations"][:, 0]}
    parquet.write_table(pyarrow.table(columns), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("d.npz", write_npz),
        ("d.hdf5", write_hdf5),
        ("d.parquet", write_parquet),
        ("e.parquet", write_numbered),
    ],
)
def test_files_give_the_steps_of_their_rows(tmp_path, name, write):
    write(tmp_path / name, flat())
    ours, theirs = from_flat(flat()), from_file(tmp_path / name)
    np.testing.assert_array_equal(theirs.observation.reshape(6, 1), ours.observation)
    for field in ("action", "reward", "discount", "is_first", "is_last", "is_terminal"):
        np.testing.assert_array_equal(getattr(theirs, field), getattr(ours, field))
    assert int(from_file(tmp_path / name, fraction=0.5).is_last.sum()) == 1


def test_files_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"none of the files that are read: \.npz, \.hdf5"):
        from_file(tmp_path / "d.csv")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*d\.npz"):
        from_file(tmp_path / "d.npz")
    for name in ("d.npz", "d.hdf5", "d.parquet"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(ValueError, match=rf"{name}: it cannot be read"):
            from_file(tmp_path / name)
    np.savez(tmp_path / "o.npz", actions=np.array([None]))
    with pytest.raises(ValueError, match=r"o\.npz: it cannot be read as arrays of numbers"):
        from_file(tmp_path / "o.npz")
    for module, name in (("h5py", "d.hdf5"), ("pyarrow", "d.parquet")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=r'pip install "rosmo\[files\]"'):
            from_file(tmp_path / name)


def test_rlds_directories_are_checked(tmp_path):
    steps = from_flat(flat(next_observations=FOLLOWING))
    parts = [slice(0, 4), slice(4, 7)]
    episodes = [
        type(steps)(**{k: v[part] for k, v in vars(steps).items() if v is not None}) for part in parts
    ]
    rlds.write(tmp_path / "d", episodes, name="d", metadata={})
    assert from_rlds(tmp_path / "d").action.tolist() == steps.action[:7].tolist()
    episodes[1].reward[0] = np.nan
    rlds.write(tmp_path / "d", episodes, name="d", metadata={}, overwrite=True)
    with pytest.raises(ValueError, match="step 4 has a reward that is not finite"):
        from_rlds(tmp_path / "d")


def test_every_way_in_is_there_by_name():
    assert {"from_flat", "from_episodes", "from_minari", "from_rlds", "from_transitions"} <= set(data.__all__)
