"""Written policies: they play what they were written for, and are recorded as RL Unplugged is."""

import numpy as np
import pytest

from rosmo import cli, envs
from rosmo.collect import policies, record
from rosmo.data import rlds
from rosmo.runs.datasets import collect_to, load_or_collect

pytest.importorskip("ale_py")


def pong_frame(ball, paddle):
    frame = np.full((84, 84), 87, np.uint8)
    frame[:14] = frame[77:] = 236
    frame[paddle - 4 : paddle + 4, 73:76] = 147
    frame[ball[0] - 1 : ball[0] + 1, ball[1]] = 236
    return frame


@pytest.mark.parametrize(
    ("before", "now", "action"),
    [
        ((40, 40), (40, 44), 0),  # comes straight at the paddle
        ((40, 40), (43, 44), 3),  # comes in below it
        ((40, 40), (37, 44), 2),  # comes in above it
        ((70, 60), (75, 64), 3),  # bounces off the bottom, and still arrives below it
        ((40, 44), (30, 40), 3),  # flies away: to the middle, a little below
    ],
)
def test_the_paddle_goes_where_the_ball_arrives(before, now, action):
    dark = np.zeros((84, 84), np.uint8)
    stack = np.stack([dark, dark, pong_frame(before, 40), pong_frame(now, 40)], axis=-1)
    assert policies.follow(stack) == action
    assert policies.follow(np.full((84, 84, 4), 87, np.uint8)) == 0  # nothing to be seen


def test_a_paddle_that_left_the_field_comes_back():
    frame = pong_frame((40, 40), 80)
    frame[77:] = 236  # the edge hides it
    assert policies.follow(np.stack([frame] * 4, axis=-1)) == 2


@pytest.mark.slow
def test_the_written_policy_keeps_up_with_the_machine():
    environment, points = envs.make("atari/Pong", seed=1), 0.0
    step = environment.reset()
    for _ in range(2_500):
        step = environment.step(policies.follow(step.observation))
        points += step.reward or 0
    assert points > -8  # standing still, or stuck at an edge, loses 21 to 0 in a third of the time


@pytest.fixture
def short_pong():
    """A game that its user has registered, under a name that says nothing of Atari."""
    envs.register("short_pong")(lambda seed: envs.Atari("pong", seed, max_frames=60))
    yield "short_pong"
    del envs.registry._parts["short_pong"]


def test_recorded_episodes_are_the_same_for_the_same_seed(short_pong):
    policies.register("up_and_down")(lambda num_actions, rng: lambda observation: int(2 + rng.integers(2)))
    try:
        first, again = (list(record("short_pong", "up_and_down", episodes=2, seed=7)) for _ in range(2))
    finally:
        del policies.registry._parts["up_and_down"]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.observation, other.observation)
        np.testing.assert_array_equal(one.action, other.action)
    assert {len(episode.action) for episode in first} == {16}
    assert not first[0].is_terminal.any()
    assert (first[0].action != first[1].action).any()


@pytest.mark.parametrize("action", [-1, 3, 2.7, None, np.array([1])])
def test_what_is_no_action_is_refused(action):
    policies.register("wrong")(lambda num_actions, rng: lambda observation: action)
    try:
        with pytest.raises(
            ValueError, match=r"policy 'wrong' chose .*: actions are whole numbers from 0 to 2"
        ):
            list(record("catch", "wrong", episodes=1))
    finally:
        del policies.registry._parts["wrong"]


def test_an_error_of_a_policy_is_said_to_be_its_own():
    policies.register("broken")(lambda num_actions, rng: {}.__getitem__)
    try:
        with pytest.raises(RuntimeError, match=r"the policy 'broken' failed \(TypeError: unhashable"):
            list(record("catch", "broken", episodes=1))
    finally:
        del policies.registry._parts["broken"]


def test_a_training_does_not_take_a_policys_data_for_its_own(tmp_path):
    arguments = ["collect", "catch", "--policy", "random", "--episodes", "3", "--data-dir", str(tmp_path)]
    assert cli.main(arguments) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["catch-random-noise0-seed0"]


def test_a_policy_is_recorded_from_the_command_line(tmp_path, capsys):
    arguments = ["collect", "catch", "--policy", "random", "--out", str(tmp_path / "d")]
    assert cli.main(arguments) == 1
    assert "--policy needs --episodes" in capsys.readouterr().err
    assert cli.main([*arguments, "--episodes", "-3"]) == 1
    assert "at least one episode to record, got -3" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main([*arguments, "--episodes", "3", "--seed", "-1"])
    assert "a seed is a whole number of at least 0, and not '-1'" in capsys.readouterr().err
    assert cli.main([*arguments, "--episodes", "3"]) == 0
    assert "3 episodes, 27 transitions" in capsys.readouterr().out
    assert rlds.read_metadata(tmp_path / "d")["policy"] == "random"
    assert cli.main(["collect", "catch", "--policy", "randon", "--episodes", "1", "--out", "x"]) == 1
    assert "there is no policy 'randon'. Did you mean 'random'?" in capsys.readouterr().err


def test_a_game_of_ones_own_is_treated_as_those_of_the_benchmark_are(short_pong, tmp_path, capsys):
    arguments = ["collect", short_pong, "--episodes", "1", "--out"]
    assert cli.main([*arguments, str(tmp_path / "a"), "--policy", "random", "--noise", "0.1"]) == 0
    assert cli.main([*arguments, str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out.count("of clipped rewards") == 2
    for name in ("a", "b"):
        assert rlds.read(tmp_path / name).observation.shape[1:] == (84, 84, 1)
    settings = rlds.read_metadata(tmp_path / "b")
    assert (settings["hidden"], settings["observation_scale"]) == ("[64]", 1 / 255)  # a DQN fit for screens
    with pytest.raises(FileNotFoundError, match=r"there is no data of short_pong in .*: convert a data set"):
        load_or_collect(short_pong, data=None, root=tmp_path)


@pytest.mark.slow
def test_a_dqn_and_a_policy_record_atari_as_rl_unplugged_has_it(tmp_path):
    arguments = [
        "collect",
        "atari/Pong",
        "--policy",
        "random",
        "--episodes",
        "1",
        "--out",
        str(tmp_path / "a"),
    ]
    assert cli.main(arguments) == 0
    collect_to(tmp_path / "b", "atari/Pong", episodes=1)
    for name in ("a", "b"):
        steps = rlds.read(tmp_path / name)
        assert steps.observation.shape[1:] == (84, 84, 1)
        assert set(np.unique(steps.reward)) <= {-1.0, 0.0, 1.0}
        assert cli.main(["data", "convert", str(tmp_path / name), str(tmp_path / f"store-{name}")]) == 0
