import subprocess
import sys

import numpy as np
import pytest

from rosmo import envs
from rosmo.envs.minatar import GAMES, MinAtar

every_game = pytest.mark.parametrize("game", GAMES)


def walk(environment, actions):
    return [environment.reset(), *(environment.step(action) for action in actions)]


@every_game
def test_a_game_keeps_its_specs_and_its_seed(game):
    def steps(seed):
        environment = envs.make(f"minatar/{game}", seed=seed)
        count = envs.number_of_actions(environment)
        actions = np.random.default_rng(0).integers(count, size=300)
        walked = walk(environment, actions)
        for step in walked:
            environment.observation_spec().validate(step.observation)
        assert envs.observation_shape(environment) == walked[0].observation.shape
        return np.stack([step.observation for step in walked])

    np.testing.assert_array_equal(steps(5), steps(5))
    assert (steps(5) != steps(6)).any()


@every_game
def test_steps_are_the_packages_own(game):
    """The same seed and actions in the package itself: planes, rewards and ends, with its sticky actions."""
    from minatar import Environment

    ours, theirs = envs.make(f"minatar/{game}", seed=3), Environment(game)
    theirs.seed(3)
    theirs.reset()
    effective = theirs.minimal_action_set()
    step = ours.reset()
    for action in np.random.default_rng(1).integers(len(effective), size=400):
        np.testing.assert_array_equal(step.observation, theirs.state())
        if step.last():
            step = ours.step(0)  # begins the next episode, whatever the action
            theirs.reset()
            continue
        step = ours.step(action)
        reward, ended = theirs.act(effective[action])
        assert (step.reward, step.last()) == (reward, ended)
        assert step.discount == 1 - ended


def test_actions_stick_and_the_game_gets_harder():
    game = envs.make("minatar/space_invaders", seed=0)._game
    assert game.sticky_action_prob == 0.1
    assert game.env.ramping


@pytest.mark.parametrize(("limit", "discount"), [(5, 1), (6, 0), (7, 0)])
def test_the_step_limit_is_a_truncation_and_a_death_is_not(limit, discount):
    """A paddle that stands still misses its first ball with the sixth step."""
    environment = MinAtar("breakout", 0, max_steps=limit)
    steps = walk(environment, [0] * min(limit, 6))
    assert [step.last() for step in steps] == [False] * min(limit, 6) + [True]
    assert steps[-1].discount == discount
    assert environment.step(0).first()


def test_freeways_own_clock_is_never_reached():
    environment = envs.make("minatar/freeway", seed=0)
    steps = walk(environment, [0] * 2500)
    assert steps[-1].last()
    assert steps[-1].discount == 1
    _, ended = environment._game.act(0)
    assert ended


def test_a_random_policy_scores_as_the_reference_says():
    rng, environment = np.random.default_rng(1), envs.make("minatar/breakout", seed=1)
    returns = np.zeros(1000)
    for i in range(1000):
        step = environment.reset()
        while not step.last():
            step = environment.step(rng.integers(3))
            returns[i] += step.reward
    error = 4 * returns.std() / np.sqrt(1000 / 2)  # the reference is a sample of as many
    assert returns.mean() == pytest.approx(envs.references["minatar/breakout"].random, abs=error)


def test_the_screen_shows_every_plane():
    environment = envs.make("minatar/breakout", seed=0)
    step = environment.reset()
    screen = environment.render()
    assert screen.shape == (160, 160, 3)
    lit = screen[8::16, 8::16].any(axis=-1)
    np.testing.assert_array_equal(lit, step.observation.any(axis=-1))


def test_the_module_loads_without_minatar_and_says_what_to_install():
    code = (
        "import sys; sys.modules['minatar'] = None; import rosmo.envs as e\n"
        "try: e.make('minatar/breakout', seed=0)\n"
        "except ImportError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = "environment 'minatar/breakout' needs minatar: pip install \"rosmo[minatar]\""
    assert result.stdout.strip() == expected
