"""Atari games against gymnasium's own preprocessing of the same emulator."""

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing
from tensorflow_datasets.rl_unplugged import atari_utils

from rosmo import envs
from rosmo.envs.atari import emulator_seed

ale_py = pytest.importorskip("ale_py")
roms = pytest.importorskip("ale_py.roms")

QUICK = ("Pong", "Breakout", "SpaceInvaders")
LONG = ("Seaquest", "Freeway", "Boxing", "MsPacman")


def theirs(title, seed):
    """Gymnasium's environment with the settings of the data set, seeded as ours is."""
    settings = {"frameskip": 1, "repeat_action_probability": 0.25, "full_action_space": False}
    gymnasium.register_envs(ale_py)
    environment = gymnasium.make(f"ALE/{title}-v5", max_num_frames_per_episode=108_000, **settings)
    environment = AtariPreprocessing(environment, noop_max=0, frame_skip=4, screen_size=84)
    environment.ale.setInt("random_seed", emulator_seed(seed))
    environment.unwrapped.load_game()
    return environment


def play_both(title, games, seed):
    """Plays the same actions in both, and compares every frame, stack, reward and end; returns the steps."""
    ours, other = envs.make(f"atari/{title}", seed=seed), theirs(title, seed)
    assert envs.number_of_actions(ours) == other.action_space.n
    rng = np.random.default_rng(seed)
    steps = 0
    for _ in range(games):
        step, (frame, _) = ours.reset(), other.reset()
        frames = [np.zeros((84, 84), np.uint8)] * 3 + [frame]
        while True:
            np.testing.assert_array_equal(step.observation, np.stack(frames[-4:], axis=-1))
            if step.last():
                break
            action = int(rng.integers(other.action_space.n))
            step = ours.step(action)
            frame, reward, terminated, truncated, _ = other.step(action)
            frames = [*frames[-3:], frame]
            assert (step.reward, step.last()) == (reward, terminated or truncated)
            assert step.discount == (0.0 if terminated else 1.0)
            steps += 1
    return steps


@pytest.mark.parametrize("title", QUICK)
def test_every_frame_and_reward_of_full_games_is_gymnasiums(title):
    assert play_both(title, games=1, seed=3) > 100


@pytest.mark.slow
@pytest.mark.parametrize("title", QUICK + LONG)
def test_every_frame_and_reward_of_more_games_is_gymnasiums(title):
    assert play_both(title, games=3, seed=11) > 500


def test_actions_stick_on_a_quarter_of_the_frames():
    environment, obedient = envs.make("atari/Freeway", seed=5), envs.Atari("freeway", 0, sticky=0.0)
    environment.reset()
    obedient.reset()
    ale, (stay, up, *_) = environment.ale, environment.actions

    def outcome(state, action):
        obedient.ale.restoreState(state)
        obedient.ale.act(action)
        return obedient.ale.getRAM().tobytes()

    stuck = []
    for _ in range(1500):
        for _ in range(8):  # until nothing but this can stick
            ale.act(stay)
        before = ale.cloneState()
        ale.act(up)
        moved, stayed = outcome(before, up), outcome(before, stay)
        if moved != stayed:
            stuck.append(ale.getRAM().tobytes() == stayed)
            assert stuck[-1] or ale.getRAM().tobytes() == moved
    assert len(stuck) > 800
    assert np.mean(stuck) == pytest.approx(0.25, abs=0.06)  # four standard errors


def test_the_same_seed_plays_the_same_game():
    def screens(seed):
        environment = envs.make("atari/Pong", seed=seed)
        environment.reset()
        return np.stack([environment.step(2 + t % 2).observation for t in range(60)])

    np.testing.assert_array_equal(screens(1), screens(1))
    assert (screens(1) != screens(2)).any()


def test_a_game_that_is_cut_off_is_truncated_and_begins_anew():
    environment = envs.Atari("pong", 0, max_frames=80)
    environment.reset()
    steps = [environment.step(0) for _ in range(20)]
    assert steps[-1].last()
    assert steps[-1].discount == 1
    assert not any(step.last() for step in steps[:-1])
    assert environment.step(0).first()
    assert environment.render().shape == (210, 160, 3)
    assert envs.make("atari/Pong", seed=0).ale.getInt("max_num_frames_per_episode") == 27_000 * 4


def test_nothing_of_the_game_before_is_seen_in_the_next():
    environment = envs.make("atari/Breakout", seed=0)
    first = environment.reset().observation
    for _ in range(30):
        environment.step(1)
    np.testing.assert_array_equal(environment.reset().observation, first)


def test_all_games_of_the_benchmark_have_a_rom_and_scores():
    names = [name for name in envs.names() if name.startswith("atari/")]
    assert sorted(names) == sorted(f"atari/{game}" for game in atari_utils._GAMES)  # those of the data sets
    for name in names:
        assert roms.get_rom_path(envs.get(name).keywords["game"]).is_file()
        assert envs.normalised_score(name, envs.references[name].online) == 1
    assert envs.references["atari/Pong"] == (-20.3, 18.25)
    scores = np.array([envs.references[name] for name in names])
    np.testing.assert_allclose(scores.sum(axis=0), [76549.45, 1746162.47])  # of RL Unplugged's own table
    with pytest.raises(ValueError, match=r"ale-py has no game 'ponk'; it has: .*pong"):
        envs.Atari("ponk", 0)
