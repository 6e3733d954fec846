import numpy as np

from rosmo.commands.evaluate import score


def test_the_error_of_several_seeds_is_that_of_their_means():
    row = score("catch", "sampled", [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert (row["episodes"], row["mean"]) == (8, 0.5)
    np.testing.assert_allclose(row["stderr"], np.std([1, 0], ddof=1) / np.sqrt(2))
    np.testing.assert_allclose(row["normalised"], (0.5 + 0.66) / 1.66)
    assert score("catch", "greedy", [[1.0]])["stderr"] is None
