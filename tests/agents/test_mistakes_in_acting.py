"""What is shown to a trained agent by mistake is refused in a sentence, and never answered by an action."""

import numpy as np
import pytest

from tests.agents.test_trained_agent import SHAPE, build, observations


@pytest.fixture(scope="module")
def trained():
    return build()


@pytest.mark.parametrize(
    ("shown", "kind"),
    [
        ((np.zeros(SHAPE, np.float32), {}), "tuple"),
        ([[1.0], [1.0, 2.0]], "list"),
        ("left", "str"),
        (None, "NoneType"),
        ({"image": np.zeros(SHAPE), "mission": "go"}, "dict"),
        (np.zeros(SHAPE, complex), "ndarray"),
    ],
)
def test_what_is_no_array_of_numbers(trained, shown, kind):
    with pytest.raises(TypeError, match=rf"an array of real numbers, and this {kind} is none"):
        trained.act(shown)


def test_numbers_that_are_not_finite(trained):
    for wrong in (np.nan, np.inf):
        shown = observations(3)
        shown[1, 0] = wrong
        for ask in (trained.act, trained.improve, trained.start(3).act):
            with pytest.raises(ValueError, match="numbers that are not finite"):
                ask(shown)


def test_a_dictionary_with_one_entry_is_that_entry_as_it_is_in_data(trained):
    (shown,) = observations(1)
    assert trained.act({"state": shown}, seed=1) == trained.act(shown, seed=1)


def test_masks_that_are_none(trained):
    (shown,) = observations(1)
    for mask in ([0, 2, 1], [0, np.nan, 1], ["a", "b", "c"]):
        with pytest.raises(ValueError, match="invalid_actions are booleans, or 0 and 1: true where"):
            trained.act(shown, invalid_actions=mask)
    with pytest.raises(ValueError, match="forbid every action"):
        trained.act(observations(2), invalid_actions=[[0, 0, 1], [1, 1, 1]])


def test_players_of_other_episodes(trained):
    with pytest.raises(ValueError, match=r"plays one episode, and was shown 2 of them: say how"):
        trained.start().act(observations(2))
    with pytest.raises(ValueError, match=r"first is one flag, or one for each of 2 episodes: got the"):
        trained.start(2).act(observations(2), first=[True] * 3)


def test_it_says_what_it_is(trained):
    assert repr(trained) == "TrainedAgent(LatentAgent, observation_shape=(4, 2))"
