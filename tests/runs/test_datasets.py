import pytest

from rosmo.collect import record
from rosmo.data import rlds
from rosmo.runs import datasets


def test_two_runs_that_collect_the_same_missing_data_both_train_on_it(tmp_path, monkeypatch):
    """The first to finish writes it; the other, which was collecting meanwhile, reads it."""
    collect, theirs = datasets.collect, tmp_path / "theirs"

    def slower(*args, **kwargs):
        ours = collect(*args, **kwargs | {"episodes": 3})
        rlds.write(theirs, ours.episodes, name="catch_dqn", metadata={})
        theirs.rename(datasets.default_directory(tmp_path, "catch", noise=0.0, seed=0))
        return ours

    monkeypatch.setattr(datasets, "collect", slower)
    steps = datasets.load_or_collect("catch", data=None, root=tmp_path)
    assert int(steps.is_last.sum()) == 3


def test_data_of_another_environment_is_refused_though_its_observations_fit(tmp_path):
    episodes = list(record("catch", "random", episodes=1))
    rlds.write(tmp_path / "d", episodes, name="d", metadata={"environment": "catch_of_mine"})
    with pytest.raises(ValueError, match=r"d has data of 'catch_of_mine', .* what metadata.json says"):
        datasets.load_or_collect("catch", data=str(tmp_path / "d"), root=tmp_path)


def test_a_changed_label_does_not_pass_data_of_another_environment(tmp_path):
    """The episodes name their environment too, under checksums that the label beside them does not have."""
    rlds.write(
        tmp_path / "d",
        record("catch", "random", episodes=1),
        name="d",
        metadata={"environment": "catch_of_mine"},
    )
    label = tmp_path / "d" / "metadata.json"
    label.write_text(label.read_text().replace("catch_of_mine", "catch"))
    with pytest.raises(
        ValueError, match=r"metadata.json says .* 'catch', .* that it is 'catch_of_mine': one"
    ):
        datasets.load_or_collect("catch", data=str(tmp_path / "d"), root=tmp_path)


def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(datasets, "collect", None)
    with pytest.raises(NotADirectoryError, match=r"x cannot be made, as .*file is no directory"):
        datasets.collect_to(tmp_path / "file" / "x", "catch")
