"""A configuration without the places of the machine that it ran on."""

import sys
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import gin

from rosmo.configs.checks import told


def portable() -> str:
    """Returns the configuration that gin has been told of, with file names in place of absolute paths.

    Of a path it is said that whoever takes the configuration needs such a file, unless it is that of the
    data or of a world, which the agent's own arrays hold.
    """
    for (scope, selector), said in told().items():
        for setting, written in said.items():
            name = scope if selector == "gin.macro" else f"{selector.rpartition('.')[2]}.{setting}"
            said[setting] = _shortened(name, written)
    return gin.config_str()


def _shortened(name: str, written: Any) -> Any:
    if isinstance(written, tuple | list):
        return type(written)(_shortened(name, each) for each in written)
    if isinstance(written, dict):
        return {key: _shortened(name, value) for key, value in written.items()}
    if not isinstance(written, str) or not (file := _name_of(written)):
        return written
    if name not in ("data", "train.data", "world", "train.world"):
        print(
            f"rosmo: {name} = {written!r} becomes {file!r}: whoever loads this needs such a file",
            file=sys.stderr,
        )
    return file


def _name_of(text: str) -> str:
    """The last part of an absolute path, or nothing if a text is none."""
    posix, windows = PurePosixPath(text), PureWindowsPath(text)
    if posix.is_absolute() or text.startswith("~"):
        return posix.name
    return windows.name if windows.is_absolute() else ""
