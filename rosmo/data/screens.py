"""Screens of Atari games as others record them, in the form that agents see them: grey, 84×84, stacked."""

import numpy as np
from jaxtyping import UInt8

from rosmo.data.atari import STACK

_SIZE = 84
_WIDTH, _HEIGHTS = 160, (210, 250)  # of the emulator's screens


def as_stacks(observations: np.ndarray) -> np.ndarray:
    """Returns the observations `[T]` of one episode as stacks `[T, 84, 84, 4]`, the newest frame last.

    Screens of the emulator, in colour or grey, are made grey and 84×84; frames of 84×84 are stacked on the
    three before them, and nothing was before the first. Frames that are stacked along the first axis have it
    moved to the end. All else is returned as it is.
    """
    if observations.dtype != np.uint8:
        return observations
    shape = observations.shape[1:]
    if len(shape) >= 3 and _is_stack(observations) and (_is_screen(shape[1:]) or _is_small(shape[1:])):
        if shape == (STACK, _SIZE, _SIZE):
            return np.ascontiguousarray(np.moveaxis(observations, 1, -1))
        return as_stacks(observations[:, -1])
    if _is_screen(shape):
        return _stacked(_small(observations))
    if _is_small(shape):
        return _stacked(observations.reshape(-1, _SIZE, _SIZE))
    return observations


def _is_screen(shape: tuple[int, ...]) -> bool:
    return (
        len(shape) in (2, 3) and shape[0] in _HEIGHTS and shape[1] == _WIDTH and shape[2:] in ((), (1,), (3,))
    )


def _is_small(shape: tuple[int, ...]) -> bool:
    return shape in ((_SIZE, _SIZE), (_SIZE, _SIZE, 1), (1, _SIZE, _SIZE))


def _is_stack(observations: np.ndarray) -> bool:
    """Whether in each observation but the first stand the frames of the one before."""
    return observations.shape[1] > 1 and np.array_equal(observations[1:, :-1], observations[:-1, 1:])


def _small(screens: UInt8[np.ndarray, "time height width *channels"]) -> UInt8[np.ndarray, "time 84 84"]:
    try:
        import cv2
    except ImportError as error:
        raise ImportError(
            f"Atari screens of {list(screens.shape[1:])} are made grey and {_SIZE}×{_SIZE} by OpenCV: pip "
            'install "rosmo[atari]"'
        ) from error
    frames = np.empty((len(screens), _SIZE, _SIZE), np.uint8)
    for frame, screen in zip(frames, screens, strict=True):
        grey = cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY) if screen.shape[2:] == (3,) else screen
        frame[:] = cv2.resize(grey, (_SIZE, _SIZE), interpolation=cv2.INTER_AREA).reshape(_SIZE, _SIZE)
    return frames


def _stacked(frames: UInt8[np.ndarray, "time 84 84"]) -> UInt8[np.ndarray, "time 84 84 4"]:
    stacks = np.zeros((*frames.shape, STACK), np.uint8)
    for age in range(min(STACK, len(frames))):
        stacks[age:, ..., STACK - 1 - age] = frames[: len(frames) - age]
    return stacks
