"""Runs that the tests of this room share."""

import numpy as np
import pytest

from rosmo.cli import main
from tests.commands.test_train import BINDINGS

SHORT = [*BINDINGS, "-p", "num_updates = 10"]


def write_walks(path):
    """Forty walks of five steps, as a file of flat arrays."""
    step, rng = np.arange(200), np.random.default_rng(0)
    shown = np.stack([step % 5, (step % 5) ** 2, step // 100], axis=1).astype(np.float32)
    ends = step % 5 == 4
    rows = {"observations": shown, "actions": rng.integers(0, 2, 200), "rewards": rng.normal(size=200)}
    np.savez(path, **rows, terminals=ends & (step < 100), timeouts=ends & (step >= 100))


@pytest.fixture(scope="package")
def runs(tmp_path_factory):
    """Two runs on catch that differ in operator and sizes, and one on a file of arrays alone."""
    root = tmp_path_factory.mktemp("runs")
    assert main(["collect", "catch", "--episodes", "30", "--data-dir", str(root / "data")]) == 0
    write_walks(root / "walks.npz")
    for name, more in {
        "rosmo": [],
        "prior": ["-p", "representation = (5, 4)", "-p", "operator = @prior"],
        "walks": ["-p", f"data = '{root / 'walks.npz'}'"],
    }.items():
        begun = ["train", *SHORT, *more, "--data-dir", str(root / "data"), "--run", str(root / name)]
        assert main(begun) == 0
    return root
