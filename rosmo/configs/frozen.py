"""A configuration made into parts that no longer ask gin, which knows one configuration at a time."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import gin
from gin.config import ConfigurableReference

from rosmo.configs.bindings import exposed
from rosmo.configs.checks import told
from rosmo.runs.training import Training


@contextlib.contextmanager
def gin_kept() -> Iterator[None]:
    """Leaves what a program has told gin for purposes of its own as it was."""
    before, locked = gin.config_str(), gin.config_is_locked()
    try:
        yield
    finally:
        gin.clear_config()
        gin.parse_config(before)
        if locked:
            gin.finalize()


def frozen() -> Training:
    """Returns the training that gin has been told of, whatever gin is told afterwards.

    What `load` returns reads its settings when it is called, which may be when a program is compiled.
    """
    return _part("train", "")()


def said() -> dict[str, Any]:
    """Returns what gin has been told, by the names that `-p` has for it; parts as they are written, @name."""
    found: dict[str, Any] = {}
    for (scope, selector), settings in told().items():
        for setting, written in settings.items():
            name = f"{scope}/" * bool(scope) + f"{selector.rpartition('.')[2]}.{setting}"
            if selector == "gin.macro":
                found[scope] = _plain(written)
            elif not repr(written).startswith("%"):  # a macro, which stands there by its own name
                found[name] = _plain(written)
    return found


def _plain(written: Any) -> Any:
    if isinstance(written, ConfigurableReference):
        return repr(written)
    if isinstance(written, tuple | list):
        return type(written)(map(_plain, written))
    return {key: _plain(value) for key, value in written.items()} if isinstance(written, dict) else written


def _part(name: str, scope: str) -> Callable[..., Any]:
    """A part with its settings: those of a scope come on top of those of the scopes around it."""
    names = scope.split("/") if scope else []
    settings: dict[str, Any] = {}
    for place in ("/".join(names[:depth]) for depth in range(len(names) + 1)):
        for (within, selector), written in told().items():
            if within == place and selector.rpartition(".")[2] == name:
                settings |= {setting: _value(each, scope) for setting, each in written.items()}
    return functools.partial(exposed()[name], **settings)


def _value(written: Any, scope: str) -> Any:
    """What a setting stands for: macros followed, parts named by @ with their own settings.

    A part that is built at once, as `@codec()`, is built in the scope of the part that it is for.
    """
    if isinstance(written, ConfigurableReference):
        own, selector = written.config_key
        if selector == "gin.macro":
            return _value(told()[own, selector]["value"], scope)
        part = _part(selector.rpartition(".")[2], own or (scope if written.evaluate else ""))
        return part() if written.evaluate else part
    if isinstance(written, tuple | list):
        return type(written)(_value(each, scope) for each in written)
    if isinstance(written, dict):
        return {key: _value(value, scope) for key, value in written.items()}
    return written
