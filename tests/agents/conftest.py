"""A batch that the tests of the baselines share."""

import numpy as np
import pytest

from tests.windows import every_ending


@pytest.fixture(scope="module")
def batch():
    return every_ending(np.random.default_rng(0), 6)
