"""Records that others wrote: what they leave out is added, and what cannot be meant is refused."""

import io
import json

import numpy as np
import PIL.Image
import pytest
import tensorflow_datasets as tfds

from rosmo.data import rlds
from tests.recorded import EXACT, STEP, episode, foreign, step_of, write


def test_missing_fields_are_derived(tmp_path):
    terminated = [step_of(t, is_terminal=t == 3) for t in range(4)]
    cut = [step_of(t) for t in range(3)]
    steps = rlds.read(foreign(tmp_path / "d", [terminated, cut, terminated]))
    assert steps.is_first.tolist() == [
        True,
        False,
        False,
        False,
        True,
        False,
        False,
        True,
        False,
        False,
        False,
    ]
    assert steps.is_last.tolist() == [
        False,
        False,
        False,
        True,
        False,
        False,
        True,
        False,
        False,
        False,
        True,
    ]
    assert steps.discount.tolist() == [1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0]
    assert (steps.action.dtype, steps.reward.dtype, steps.discount.dtype) == (
        np.int32,
        np.float32,
        np.float32,
    )
    assert steps.reward[:4].tolist() == [0, 0.5, 1, 1.5]
    assert steps.invalid_actions is None


def test_an_episode_that_does_not_end_is_cut_at_its_last_step(tmp_path):
    step = STEP | {"is_first": np.bool_, "is_last": np.bool_}
    steps = [step_of(t, is_first=t == 0, is_last=False) for t in range(3)]
    found = rlds.read(foreign(tmp_path / "d", [steps], step))
    assert found.is_last.tolist() == [False, False, True]
    assert not found.is_terminal.any()


@pytest.mark.parametrize(
    ("field", "steps", "message"),
    [
        ("is_last", (2, 5), "step 2 is_last, and more steps follow: a record is one episode"),
        ("is_first", (), "is_first is wrong on step 0: a record is one episode"),
        ("is_first", (0, 3), "is_first is wrong on step 3: a record is one episode"),
    ],
)
@pytest.mark.parametrize("kind", [np.bool_, np.int64])
def test_ends_in_the_middle_of_a_record_are_named(tmp_path, field, steps, message, kind):
    right = [step_of(t, **{field: t == (5 if field == "is_last" else 0)}) for t in range(6)]
    wrong = [step_of(t, **{field: t in steps}) for t in range(6)]
    directory = foreign(tmp_path / "d", [right, wrong], STEP | {field: kind})
    with pytest.raises(ValueError, match=rf"episode 1 of .*foreign-train\S*: {message}"):
        rlds.read(directory)
    whole = rlds.read(directory, split="train[:1]")
    assert np.flatnonzero(whole.is_first).tolist() == [0]
    assert np.flatnonzero(whole.is_last).tolist() == [5]


@pytest.mark.parametrize(
    ("field", "value", "kind", "error", "message"),
    [
        ("action", 2**32, np.int64, ValueError, "step 1 has an action that does not fit into 32 bits"),
        ("reward", 1e300, EXACT, ValueError, "step 1 has a reward that does not fit into float32"),
        ("is_terminal", 2, np.int64, TypeError, "is_terminal must be an array of bool, got int64"),
    ],
)
def test_values_that_would_change_are_named(tmp_path, field, value, kind, error, message):
    steps = [step_of(t, **({field: value} if t == 1 else {})) for t in range(3)]
    directory = foreign(tmp_path / "d", [steps], STEP | {field: kind})
    with pytest.raises(error, match=rf"episode 0 of .*foreign-train\S*: {message}"):
        rlds.read(directory)


def test_extra_fields_are_ignored_and_one_entry_is_unwrapped(tmp_path):
    step = STEP | {
        "observation": {"camera": {"front": tfds.features.Image(shape=(4, 4, 3), encoding_format="png")}},
        "info": {"lives": np.int64, "note": tfds.features.Text()},
    }
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)

    def png(image):
        file = io.BytesIO()
        PIL.Image.fromarray(image).save(file, "png")
        file.seek(0)
        return file

    steps = [
        step_of(t, observation={"camera": {"front": png(images[t])}}, info={"lives": 3, "note": "ok"})
        for t in range(3)
    ]
    found = rlds.read(foreign(tmp_path / "d", [steps], step))
    assert found.observation.dtype == np.uint8
    np.testing.assert_array_equal(found.observation, images)


@pytest.mark.parametrize(
    ("changed", "values", "message"),
    [
        (
            {"observation": {"a": np.float32, "b": np.float32}},
            {"observation": {"a": 0, "b": 0}},
            "entries a, b: combine",
        ),
        (
            {"observation": tfds.features.Text()},
            {"observation": "x"},
            "observation in .* is Text, and must be an array of numbers",
        ),
        ({"action": np.float32}, {"action": 0.0}, r"float32 of shape \[\]: only discrete actions"),
        (
            {"action": tfds.features.Tensor(shape=(2,), dtype=np.int64)},
            {"action": np.zeros(2, int)},
            r"int64 of shape \[2\]: only discrete actions",
        ),
        (
            {"action": {"x": np.int64}},
            {"action": {"x": 0}},
            "action in .* is FeaturesDict, and must be an array of numbers",
        ),
        (
            {"reward": tfds.features.Tensor(shape=(1,), dtype=np.float32)},
            {"reward": np.zeros(1, np.float32)},
            r"reward in .* is float32 of shape \[1\], and must be one number a step",
        ),
    ],
)
def test_steps_that_do_not_fit_are_refused(tmp_path, changed, values, message):
    directory = foreign(tmp_path / "d", [[step_of(0, **values)]], STEP | changed)
    with pytest.raises(ValueError, match=message):
        rlds.read(directory)


def test_steps_that_lack_a_field_are_refused(tmp_path):
    step = {field: feature for field, feature in STEP.items() if field != "reward"}
    steps = [{field: value for field, value in step_of(0).items() if field != "reward"}]
    with pytest.raises(ValueError, match="have no reward"):
        rlds.read(foreign(tmp_path / "d", [steps], step))


def test_a_data_set_without_steps_is_refused(tmp_path):
    write(tmp_path / "d", [episode(np.random.default_rng(0), 2)])
    features = json.loads((tmp_path / "d" / "features.json").read_text())
    features["featuresDict"]["features"].pop("steps")
    (tmp_path / "d" / "features.json").write_text(json.dumps(features))
    with pytest.raises(ValueError, match="not in the RLDS format"):
        rlds.read(tmp_path / "d")
