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
