"""Screens of an episode as a moving picture: GIF anywhere, MP4 where OpenCV is."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from rosmo.data.files import refuse_unwritable, replacing_file

_RATE = 15  # pictures a second: an Atari game at its own speed, and at 14.3 in a GIF, which counts hundredths

Screen = UInt8[np.ndarray, "height width 3"]


def refuse_unknown(path: Path) -> None:
    """Raises a ValueError where `write_video` would: ask before the work that makes the screens."""
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(f"a video is a .gif or an .mp4, and not {path.name!r}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory: choose the name of a file for the video")
    refuse_unwritable(path)


def write_video(path: Path, screens: Iterable[Screen]) -> int:
    """Writes screens, and returns how many there were.

    An MP4 is written as they come. Of a GIF all are held until its end, in a byte a pixel. What was at `path`
    before stays until the new video is whole.
    """
    refuse_unknown(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0

    def counted() -> Iterable[Screen]:
        nonlocal count
        for screen in screens:
            count += 1
            yield screen

    with replacing_file(path) as incomplete:
        (_write_gif if path.suffix == ".gif" else _write_mp4)(incomplete, counted())
    return count


def _write_gif(path: Path, screens: Iterable[Screen]) -> None:
    from PIL import Image

    pictures = (Image.fromarray(screen).convert("P", palette=Image.Palette.ADAPTIVE) for screen in screens)
    first = next(pictures)
    first.save(path, save_all=True, append_images=pictures, duration=10 * round(100 / _RATE), loop=0)


def _write_mp4(path: Path, screens: Iterable[Screen]) -> None:
    try:
        import cv2
    except ImportError as error:
        raise ImportError('an MP4 needs OpenCV: pip install "rosmo[atari]", or write a .gif') from error
    writer = None
    for screen in screens:
        if writer is None:
            code = cv2.VideoWriter.fourcc(*"mp4v")
            writer = cv2.VideoWriter(str(path), code, _RATE, (screen.shape[1], screen.shape[0]))
            if not writer.isOpened():  # it would drop every screen without a word
                raise OSError(f"OpenCV cannot write {path}: choose a place that can be written to, or a .gif")
        writer.write(np.ascontiguousarray(screen[..., ::-1]))  # blue first
    if writer is not None:
        writer.release()
