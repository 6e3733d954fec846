"""Gymnasium's environments against gymnasium itself, and one of its Atari games against ours."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, FrameStackObservation, TransformObservation

from rosmo import envs
from rosmo.registry import UnknownPartError
from tests.envs.test_atari import theirs


class Scripted(gymnasium.Env):
    """Gives the observations and ends that it is told to, one a step."""

    def __init__(self, observation_space, action_space=None, ends=()):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.ends, self.actions = ends, []

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.actions.append(action)
        self.time += 1
        ended = self.ends[self.time - 1] if self.time <= len(self.ends) else (False, False)
        return self.observation_space.sample(), 1, *ended, {}


def plays_as(ours, other, seed, steps, read=lambda observation: observation):
    """Plays the same actions in both, through several episodes; returns how many episodes ended."""
    rng, ends = np.random.default_rng(seed), 0
    step, (observation, _) = ours.reset(), other.reset(seed=seed)
    for _ in range(steps):
        np.testing.assert_array_equal(step.observation, read(observation))
        ours.observation_spec().validate(step.observation)
        if step.last():
            ends += 1
            step, (observation, _) = ours.step(0), other.reset()  # any action begins the next episode
            assert step.first()
            continue
        action = rng.integers(envs.number_of_actions(ours))
        step = ours.step(action)
        observation, reward, terminated, truncated, _ = other.step(action)
        assert step.reward == reward
        assert step.last() == (terminated or truncated)
        assert step.discount == (0.0 if terminated else 1.0)
    return ends


@pytest.mark.parametrize(("identity", "steps"), [("CartPole-v1", 300), ("LunarLander-v3", 400)])
def test_steps_are_gymnasiums_own(identity, steps):
    ours = envs.make(f"gym/{identity}", seed=3)
    assert plays_as(ours, gymnasium.make(identity), 3, steps) >= 2


def test_minigrid_is_flattened_without_its_mission_and_an_image_by_its_own_wrapper():
    from minigrid.wrappers import ImgObsWrapper

    def read(observation):
        one_hot = np.eye(4)[observation["direction"]]
        return np.concatenate([one_hot, observation["image"].reshape(-1)])

    with pytest.warns(UserWarning, match="'mission' of the observations is text and is left out"):
        ours = envs.make("gym/MiniGrid-Empty-5x5-v0", seed=4)
    assert envs.observation_shape(ours) == (151,)
    assert plays_as(ours, gymnasium.make("MiniGrid-Empty-5x5-v0", max_steps=100), 4, 300, read) >= 1
    images = envs.from_gymnasium(ImgObsWrapper(gymnasium.make("MiniGrid-Empty-5x5-v0")), seed=4)
    assert envs.observation_shape(images) == (7, 7, 3)
    assert images.reset().observation.dtype == np.uint8
    assert plays_as(images, ImgObsWrapper(gymnasium.make("MiniGrid-Empty-5x5-v0")), 4, 120) >= 1


def test_an_atari_game_through_gymnasium_is_ours_frame_by_frame():
    pytest.importorskip("ale_py")
    stacked = FrameStackObservation(theirs("Breakout", 3), 4, padding_type="zero")
    box = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    through = envs.from_gymnasium(TransformObservation(stacked, lambda x: np.moveaxis(x, 0, -1), box))
    ours, rng, steps = envs.make("atari/Breakout", seed=3), np.random.default_rng(0), 0
    for _ in range(2):
        left, right = ours.reset(), through.reset()
        while True:
            np.testing.assert_array_equal(left.observation, right.observation)
            assert left.step_type == right.step_type
            assert (left.reward, left.discount) == (right.reward, right.discount)
            if left.last():
                break
            action = int(rng.integers(envs.number_of_actions(ours)))
            left, right, steps = ours.step(action), through.step(action), steps + 1
    assert steps > 200


def test_atari_by_gymnasiums_id_is_not_the_protocol_of_ours():
    pytest.importorskip("ale_py")
    environment = envs.make("gym/ALE/Pong-v5", seed=2**32 - 1)
    assert environment.reset().observation.shape == (210, 160, 3)
    assert not envs.is_atari("gym/ALE/Pong-v5")
    assert envs.is_atari("atari/Pong")


def test_a_time_limit_is_a_truncation():
    environment = envs.from_gymnasium(gymnasium.make("CartPole-v1", max_episode_steps=5), seed=0)
    steps = [environment.reset(), *(environment.step(t % 2) for t in range(5))]
    assert [step.last() for step in steps] == [False] * 5 + [True]
    assert [step.discount for step in steps[1:]] == [1.0] * 5


@pytest.mark.parametrize(("end", "discount"), [((True, False), 0), ((False, True), 1), ((True, True), 0)])
def test_an_end_of_both_kinds_is_a_termination(end, discount):
    environment = envs.from_gymnasium(Scripted(spaces.Box(-1, 1, (2,)), ends=[(False, False), end]))
    environment.reset()
    assert environment.step(0).discount == 1
    last = environment.step(0)
    assert (last.last(), last.discount) == (True, discount)
    assert environment.step(0).first()


def test_episodes_of_one_seed_differ_and_come_again():
    def beginnings(seed):
        environment = envs.make("gym/CartPole-v1", seed=seed)
        return np.stack([environment.reset().observation for _ in range(3)])

    np.testing.assert_array_equal(beginnings(1), beginnings(1))
    assert len({row.tobytes() for row in np.concatenate([beginnings(1), beginnings(2)])}) == 6


def test_noise_replaces_actions():
    def heard(noise):
        environment = envs.make("gym/CartPole-v1", seed=0, noise=noise)
        environment.reset()
        return [environment.step(1).observation[1] for _ in range(6)]

    assert heard(0.0) == sorted(heard(0.0))  # pushed to the right each time, a cart only gets faster
    assert heard(0.9) != heard(0.0)


def test_actions_may_count_from_another_number():
    inner = Scripted(spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=-1))
    environment = envs.from_gymnasium(inner)
    environment.reset()
    for action in range(envs.number_of_actions(environment)):
        environment.step(np.int32(action))
    assert inner.actions == [-1, 0, 1]


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), (4, 4, 3), np.uint8),
        (spaces.Box(-np.inf, np.inf, (3,), np.float64), (3,), np.float32),
        (spaces.Box(-(2**20), 2**20, (2,), np.int64), (2,), np.int32),
        (spaces.Box(0, 2**60, (2,), np.int64), (2,), np.float32),
        (spaces.Dict(pixels=spaces.Box(0, 255, (4, 4), np.uint8)), (4, 4), np.uint8),
        (spaces.Dict(inner=spaces.Dict(x=spaces.Box(-1, 1, (2,)))), (2,), np.float32),
    ],
    ids=str,
)
def test_a_box_is_taken_as_it_is(space, shape, dtype):
    environment = envs.from_gymnasium(Scripted(space), seed=1)
    observation = environment.reset().observation
    assert envs.observation_shape(environment) == observation.shape == shape
    assert environment.observation_spec().dtype == observation.dtype == dtype
    space.seed(1)
    sample = space.sample()
    while isinstance(sample, dict):
        [sample] = sample.values()
    np.testing.assert_array_equal(observation, sample.astype(dtype))


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (spaces.Discrete(5, start=2), np.uint8),
        (spaces.MultiBinary(4), np.uint8),
        (spaces.Dict(a=spaces.Box(-1, 1, (2, 2)), b=spaces.Discrete(3)), np.float32),
        (spaces.Tuple((spaces.Discrete(3), spaces.MultiDiscrete([2, 3]))), np.uint8),
    ],
    ids=str,
)
def test_anything_else_is_flattened_as_gymnasium_does(space, dtype):
    ours, other = envs.from_gymnasium(Scripted(space), seed=2), FlattenObservation(Scripted(space))
    expected, _ = other.reset(seed=2)
    observation = ours.reset().observation
    np.testing.assert_array_equal(observation, expected)
    assert observation.dtype == ours.observation_spec().dtype == dtype


def test_an_observation_is_not_written_over():
    class Reusing(Scripted):
        def step(self, action):
            _, *rest = super().step(action)
            self.shown += 1
            return self.shown, *rest

        def reset(self, **how):
            self.shown = np.zeros(2, np.float32)
            return self.shown, {}

    inner = Reusing(spaces.Box(-9, 9, (2,)))
    environment = envs.from_gymnasium(inner)
    inner.time = 0
    first = environment.reset().observation
    environment.step(0)
    np.testing.assert_array_equal(first, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: envs.make("gym/Pendulum-v1", seed=0), "Pendulum-v1 has continuous actions"),
        (lambda: envs.from_gymnasium(Scripted(spaces.Box(0, 1), spaces.MultiBinary(2))), "MultiBinary"),
        (
            lambda: envs.from_gymnasium(Scripted(spaces.Sequence(spaces.Box(0, 1)))),
            "Scripted has observations of the kind Sequence .* no fixed size",
        ),
        (lambda: envs.from_gymnasium(envs.make("catch", seed=0)), "takes a gymnasium.Env, and not Catch"),
        (lambda: envs.from_gymnasium(Scripted(spaces.Box(0, 1))).render(), "make it with render_mode"),
    ],
)
def test_what_will_not_do_is_one_sentence(make, message):
    with pytest.raises(TypeError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_an_unknown_id_is_told_the_nearest_and_a_module_is_not_imported():
    with pytest.raises(
        UnknownPartError, match=r"no environment 'CartPole-v9'. Did you mean 'gym/CartPole-v1'"
    ):
        envs.make("gym/CartPole-v9", seed=0)
    with pytest.raises(
        ValueError, match=r"names a module, which is not imported unasked: name it by --import"
    ):
        envs.get("gym/nowhere:CartPole-v1")


def test_the_screen_is_drawn():
    environment = envs.make("gym/CartPole-v1", seed=0)
    environment.reset()
    screen = environment.render()
    assert screen.shape == (400, 600, 3)
    assert len(np.unique(screen)) > 2


@pytest.mark.parametrize(
    ("absent", "name", "message"),
    [
        ("gymnasium", "gym/CartPole-v1", 'gym/CartPole-v1 needs gymnasium: pip install "rosmo[gym]"'),
        ("Box2D", "gym/LunarLander-v3", "gym/LunarLander-v3 needs another package: "),
        ("minigrid", "gym/MiniGrid-Empty-5x5-v0", "needs minigrid: pip install minigrid"),
    ],
)
def test_a_package_that_is_missing_is_named(absent, name, message):
    code = (
        f"import sys; sys.modules[{absent!r}] = None; import rosmo.envs as e\n"
        f"try: e.make({name!r}, seed=0)\n"
        "except ImportError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert message in result.stdout
    assert result.stdout.count("\n") == 1
