"""What is no environment of gymnasium's, by its name or by what it returns, is told so."""

import gymnasium
import numpy as np
import pytest

from rosmo import envs
from rosmo.registry import UnknownPartError


@pytest.mark.parametrize("name", ["CartPole-v1", "Gym/CartPole-v1", "gymnasium/CartPole-v1"])
def test_an_id_without_its_prefix_is_answered_with_the_name_it_has_here(name):
    with pytest.raises(UnknownPartError, match=r"called gym/ID, this one gym/CartPole-v1\.$") as error:
        envs.make(name, seed=0)
    assert "atari/… (46), cartpole, catch" in str(error.value)


class Formerly(gymnasium.Env):
    """What environments returned before gymnasium, or what does not fit their own space."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, begun, stepped):
        self.begun, self.stepped = begun, stepped

    def reset(self, *, seed=None, options=None):
        return self.begun

    def step(self, action):
        return self.stepped


def test_environments_of_the_former_gym_are_known_by_what_they_return():
    seen = np.zeros(2, np.float32)
    with pytest.raises(
        TypeError, match=r"reset\(\) .* 2 values, and this one's a single ndarray: .*former gym"
    ):
        envs.from_gymnasium(Formerly(seen, None)).reset()
    former = envs.from_gymnasium(Formerly((seen, {}), (seen, 0.0, True, {})))
    former.reset()
    with pytest.raises(
        TypeError, match=r"step\(\) of .* returns 5 values, and this one's 4: .*GymV26Environment"
    ):
        former.step(0)
    with pytest.raises(
        ValueError, match=r"shows an observation of the shape \[3\], and its observation_space"
    ):
        envs.from_gymnasium(Formerly((np.zeros(3), {}), None)).reset()
