"""Policies that are written and not learned, to record data with; register one of your own from anywhere.

A registered builder takes the number of actions and a random generator, and returns a function of an
observation. It is called anew for every episode, so that episodes may differ in skill.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import UInt8

from rosmo.registry import Registry

Policy = Callable[[np.ndarray], int]

registry = Registry("policy", requires=("num_actions", "rng"))
register, get, names = registry.register, registry.get, registry.names


@registry.register("random")
def random(num_actions: int, rng: np.random.Generator) -> Policy:
    """Every action alike."""
    return lambda observation: int(rng.integers(num_actions))


_TOP, _BOTTOM = 14, 76  # rows of the field of Pong in an observation
_BALL, _PADDLE = slice(12, 73), slice(74, 75)  # columns: of the ball, and of the player's own paddle
_FIELD = 87  # its grey
_STAY, _UP, _DOWN = 0, 2, 3


@registry.register("pong")
def pong(num_actions: int, rng: np.random.Generator) -> Policy:
    """Plays Pong by following the ball, with a share of random actions that is drawn for each game."""
    carelessness = rng.uniform(0, 0.8)

    def act(observation: UInt8[np.ndarray, "84 84 4"]) -> int:
        if rng.uniform() < carelessness:
            return int(rng.integers(num_actions))
        return follow(observation)

    return act


def follow(observation: UInt8[np.ndarray, "84 84 4"]) -> int:
    """Moves the paddle of Pong to where the ball will arrive, or to the middle while the ball flies away."""
    before, now = observation[..., -2], observation[..., -1]
    paddle, ball = _centre(now, _PADDLE), _centre(now, _BALL)
    if ball is None:
        return _STAY
    if paddle is None:  # it has slid out of the field, below
        return _UP
    last_paddle, last_ball = _centre(before, _PADDLE), _centre(before, _BALL)
    goal = _goal(ball, ball if last_ball is None else last_ball)
    # A paddle that is let go slides on by about as much again, and one push takes it 8 rows: it cannot be
    # placed more finely than that, and would swing about a goal that it was to meet.
    place = paddle[0] + (0 if last_paddle is None else 0.8 * (paddle[0] - last_paddle[0]))
    if abs(goal - place) < 3.5:
        return _STAY
    return _UP if goal < place else _DOWN


def _goal(ball: np.ndarray, last: np.ndarray) -> float:
    """The row that the paddle should be at, for a ball at `ball` that was at `last` one step before."""
    height, speed = _BOTTOM - _TOP, ball - last
    if speed[1] < -0.5:
        return height / 2
    if speed[1] <= 0.5:
        return float(ball[0])
    steps = (_PADDLE.start - _BALL.start - ball[1]) / speed[1]
    unfolded = (ball[0] + steps * speed[0]) % (2 * height)  # on the field and its mirror image below
    return float(min(unfolded, 2 * height - unfolded))


def _centre(frame: np.ndarray, columns: slice) -> np.ndarray | None:
    """The mean row and column of what stands out from the field."""
    rows, places = np.nonzero(frame[_TOP:_BOTTOM, columns] > _FIELD + 10)
    return np.array([rows.mean(), places.mean()]) if len(rows) else None
