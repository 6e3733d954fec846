"""Episodes that the tests of this folder share."""

import numpy as np
import pytest

from tests.recorded import episode


@pytest.fixture
def episodes():
    rng = np.random.default_rng(0)
    return [episode(rng, length, terminal=length % 2 == 0, masks=True) for length in (4, 1, 7, 3, 6)]
