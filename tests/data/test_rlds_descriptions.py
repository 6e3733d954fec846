"""What the descriptions of someone else's data set may not do."""

import contextlib
import json
import sys

import pytest
import tensorflow_datasets as tfds

from rosmo.data import rlds
from tests.recorded import FORMATS, write


def changed(directory, name, change):
    content = json.loads((directory / name).read_text())
    change(content)
    (directory / name).write_text(json.dumps(content))


def evil_class(features):
    features["featuresDict"]["features"]["episode_id"]["pythonClassName"] = "evilfeat.Evil"


def evil_snake(features):
    evil = features["featuresDict"]["features"]["episode_id"]
    del evil["pythonClassName"]
    evil["python_class_name"] = "evilfeat.Evil"


def evil_legacy(features):
    """The whole in the format that TFDS wrote before 2022."""
    features.clear()
    features |= {"type": "evilfeat.Evil", "content": {}}


def evil_text(features):
    """A description in a text in a description."""
    inside = json.dumps({"a": {"type": "evilfeat.Evil", "content": {}}})
    name = features["pythonClassName"]
    features.clear()
    features |= {"pythonClassName": name, "jsonFeature": {"json": inside}}


@pytest.mark.parametrize("change", [evil_class, evil_snake, evil_legacy, evil_text])
@pytest.mark.parametrize("name", ["features.json", "dataset_info.json"])
def test_code_that_a_description_names_is_not_imported(tmp_path, episodes, change, name, monkeypatch):
    write(tmp_path / "d", episodes)
    (tmp_path / "evilfeat.py").write_text(f"import os; os.mkdir({str(tmp_path / 'imported')!r})")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "evilfeat", raising=False)
    if name == "features.json":
        changed(tmp_path / "d", name, change)
    else:  # where TFDS looks first
        features = json.loads((tmp_path / "d" / "features.json").read_text())
        change(features)
        changed(tmp_path / "d", name, lambda about: about.update(features=features))
    with pytest.raises(ValueError, match=rf"{name} names 'evilfeat.Evil' .* that is not TFDS's own: write"):
        rlds.read(tmp_path / "d")
    assert not (tmp_path / "imported").exists()
    with contextlib.suppress(Exception):
        tfds.builder_from_directory(str(tmp_path / "d"))
    assert (tmp_path / "imported").exists() or (name, change) == ("dataset_info.json", evil_legacy)


def outside_template(about):
    about["splits"][0]["filepathTemplate"] = "../outside"


def outside_absolute(about):
    about["splits"][0]["filepath_template"] = "/etc/passwd"
    del about["splits"][0]["filepathTemplate"]


def outside_split(about):
    about["splits"][0]["name"] = "../train"


def outside_name(about):
    about["name"] = "../../tiny"


@pytest.mark.parametrize("change", [outside_template, outside_absolute, outside_split, outside_name])
def test_a_description_that_leads_out_of_its_directory_is_refused(tmp_path, episodes, change):
    write(tmp_path / "d", episodes)
    changed(tmp_path / "d", "dataset_info.json", change)
    with pytest.raises(ValueError, match=r"dataset_info.json leads out of its directory \(.* is '.*/.*'\)"):
        rlds.read(tmp_path / "d")


@pytest.mark.parametrize("content", ["", "{", "[1]", "7", "\udcff", '{"environment":' + 100_000 * "["])
def test_metadata_that_is_damaged_is_named(tmp_path, episodes, content):
    write(tmp_path / "d", episodes)
    (tmp_path / "d" / "metadata.json").write_text(content, errors="surrogateescape")
    for read in (rlds.read, rlds.read_metadata):
        with pytest.raises(
            ValueError, match=r"d/metadata.json is damaged \(.*: restore it, or write the data"
        ):
            read(tmp_path / "d")


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_environment_that_the_episodes_do_not_name_is_refused(tmp_path, episodes, file_format):
    write(tmp_path / "d", episodes, file_format=file_format)
    changed(tmp_path / "d", "metadata.json", lambda metadata: metadata.update(environment="cartpole"))
    with pytest.raises(
        ValueError,
        match=r"metadata.json says .* is 'cartpole', and the first episode, in .*, that it is 'catch'",
    ):
        rlds.read_metadata(tmp_path / "d")


def test_an_environment_that_only_the_metadata_names_is_taken(tmp_path, episodes):
    write(tmp_path / "d", episodes, metadata={})
    (tmp_path / "d" / "metadata.json").write_text('{"environment": "catch"}')
    assert rlds.read_metadata(tmp_path / "d") == {"environment": "catch"}
