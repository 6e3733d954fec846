"""What held-out episodes say of a world, where the world is known exactly; and what it is drawn as."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo.evaluate import HeldOutWorld
from rosmo.evaluate.dreams import dream, picture
from rosmo.evaluate.windows import ChosenWindows
from rosmo.report.held_out import as_report, in_a_line
from rosmo.runs.evaluation import judge_of
from tests.worlds.tables import TabularWorld, corridor, play

STATES = 9


@dataclasses.dataclass(frozen=True)
class Knower:
    """Trains nothing: its world is a table."""

    world: TabularWorld
    window: int = 4

    def init(self, key):
        return self.world

    def loss(self, params, target_params, batch, key):
        loss = jnp.mean(jnp.where(batch.is_last, 0, batch.reward))
        return loss, {"loss": loss}


def held_out(episodes=40):
    return play(
        corridor(STATES), np.random.default_rng(0), episodes=episodes, start=lambda rng: rng.integers(2, 7)
    )


def report(world, **settings):
    agent = Knower(world)
    sizes = {"num_actions": 2, "context": 2, "depth": 3} | settings
    return HeldOutWorld(agent, held_out(), **sizes).report(world, seed=0)


def test_an_exact_world_has_no_errors_and_repeating_has():
    found = report(corridor(STATES))
    for depth in (1, 2, 3):
        assert found[f"image_error_{depth}"] == 0
        assert found[f"reward_error_{depth}"] == pytest.approx(0, abs=1e-12)
        assert found[f"mean_reward_error_{depth}"] > 0
    # A step leads to another state, which differs in two of the nine numbers.
    assert found["repeated_image_error_1"] == pytest.approx(2 / STATES, rel=1e-5)
    assert "uncertainty_taken" not in found  # a world without doubts says nothing of them


def test_errors_are_those_of_the_step_that_they_are_named_by():
    """A world whose every reward is off by 0.5, and that is wrong of state 4's right alone."""
    world = corridor(STATES)
    found = report(dataclasses.replace(world, reward=world.reward + 0.5))
    for depth in (1, 2, 3):
        assert found[f"reward_error_{depth}"] == pytest.approx(0.25, rel=1e-5)
    wrong = dataclasses.replace(world, next_state=world.next_state.at[4, 1].set(4))
    found = report(wrong, context=1, depth=1)
    steps = held_out()
    real = ~steps.is_last
    here = steps.observation.argmax(axis=-1)[real]
    share = np.mean((here == 4) & (steps.action[real] == 1))
    assert found["image_error_1"] == pytest.approx(share * 2 / STATES, rel=0.05)


def test_doubts_are_of_the_action_taken_and_of_another():
    world = corridor(STATES)
    wrong = dataclasses.replace(
        world,
        next_state=world.next_state.at[4, 1].set(4),
        doubt=jnp.zeros((STATES, 2)).at[4, 1].set(2.0).at[3, 0].set(1.0),
    )
    found = report(wrong)
    # Who doubts where it errs is told so: the last tenths have the errors.
    assert found["calibration"][-1][1] > found["calibration"][0][1] == 0
    assert found["uncertainty_correlation"] > 0.5
    assert 0 < found["uncertainty_taken"] < 2
    assert 0 <= found["uncertainty_other_larger"] <= 1
    assert "disagreement about the data's actions" in as_report(found)
    assert "observations 3 steps ahead off by" in in_a_line(found)


def test_what_is_trained_says_how_it_is_judged():
    agent = Knower(corridor(STATES))
    assert isinstance(judge_of(agent, held_out(), num_actions=2), HeldOutWorld)

    class Own(Knower):
        def held_out_judge(self, data, *, num_actions):
            return HeldOutWorld(self, data, num_actions=num_actions, depth=7)

    assert judge_of(Own(corridor(STATES)), held_out(), num_actions=2)._depth == 7

    class Neither(Knower):
        def init(self, key):
            return jnp.zeros(2)

    with pytest.raises(TypeError, match="neither acts nor trains a world"):
        judge_of(Neither(corridor(STATES)), held_out(), num_actions=2)


def test_a_dream_shows_real_beside_imagined():
    world = corridor(STATES)
    windows = ChosenWindows(held_out(), 12, 2)
    screens = list(dream(Knower(world), world, windows, 0, context=3))
    assert 3 < len(screens) <= 12
    assert {screen.shape for screen in screens} == {screens[0].shape}
    middle = screens[0].shape[1] // 2
    for number, screen in enumerate(screens):
        # An exact world imagines what was observed; what it has not seen is in a brighter frame.
        np.testing.assert_array_equal(screen[8:-8, 8 : middle - 4], screen[8:-8, middle + 4 : -8])
        assert screen[0, -1, 0] == (160 if number >= 3 else 40)


@pytest.mark.parametrize("shape", [(5,), (10, 5), (10, 10, 4), (84, 84, 4)])
def test_any_observation_has_a_picture(shape):
    drawn = picture(np.random.default_rng(0).random(shape))
    assert drawn.dtype == np.uint8
    assert drawn.ndim == 3
    assert max(drawn.shape) >= 160
    assert picture(np.zeros(shape)).max() == 0
    assert jax.tree.all(picture(np.full(shape, np.nan)).shape == drawn.shape)
