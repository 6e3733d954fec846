"""Whether each setting is of the kind that the part takes it as, seen before anything is built."""

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from beartype import BeartypeConf
from beartype.door import is_bearable
from gin.config import ConfigurableReference

from rosmo.configs.errors import ConfigError
from rosmo.types import Number

_WHOLE_FOR_REAL = BeartypeConf(is_pep484_tower=True)  # 1 may stand for 1.0
_WORDS = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "True or False"}
_WORDS[Number] = _WORDS[float]
_BUILT = object()  # stands for what a reference such as @adamw() will be


def refuse_wrong_kinds(
    settings: Mapping[tuple[str, str], Mapping[str, Any]], parts: Mapping[str, Callable[..., Any]]
) -> None:
    """Refuses settings of another kind than the part takes, and numbers that are not finite.

    Args:
        settings: what gin has been told, by scope and part.
        parts: what gin knows, by name.
    """
    macros = {scope: said["value"] for (scope, part), said in settings.items() if part == "gin.macro"}
    for (scope, selector), said in settings.items():
        part = selector.rpartition(".")[2]
        hints = _hints(parts[part]) if part in parts else {}
        for setting, written in said.items():
            name = scope if selector == "gin.macro" else _macro(written) or f"{part}.{setting}"
            value = resolved(written, macros)
            got = f"got {as_written(value)}{_where(written, macros)}"
            if any(not math.isfinite(number) for number in _floats(value)):
                raise ConfigError(f"{name} must be finite, {got}")
            if setting in hints and not _fits(value, hints[setting]):
                raise ConfigError(f"{name} must be {_in_words(hints[setting])}, {got}")


def _hints(part: Callable[..., Any]) -> dict[str, Any]:
    function = part.__init__ if inspect.isclass(part) else part
    try:
        return typing.get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):  # a user's own annotations may be anything
        return {}


def _macro(written: Any) -> str | None:
    """The name of the macro that a setting is taken from, if it is."""
    text = repr(written) if isinstance(written, ConfigurableReference) else ""
    return text[1:] if text.startswith("%") else None


def _where(written: Any, macros: Mapping[str, Any]) -> str:
    """Says what the macros inside of a tuple or a list are: they are what their author has written."""
    while (macro := _macro(written)) is not None and macro in macros:
        written = macros[macro]
    inside = _inside(written) if isinstance(written, tuple | list) else ()
    said = [f"{name} is {as_written(resolved(macros[name], macros))}" for name in inside if name in macros]
    return f", where {' and '.join(said)}" if said else ""


def _inside(written: Any) -> Iterator[str]:
    if isinstance(written, tuple | list):
        for each in written:
            yield from _inside(each)
    elif macro := _macro(written):
        yield macro


def resolved(written: Any, macros: Mapping[str, Any]) -> Any:
    """What a setting will be: macros followed, parts named by @ in their places."""
    if isinstance(written, ConfigurableReference):
        if (macro := _macro(written)) is not None:
            return resolved(macros[macro], macros) if macro in macros else _BUILT
        return _BUILT if written.evaluate else written.scoped_configurable_fn
    if isinstance(written, tuple | list):
        return type(written)(resolved(each, macros) for each in written)
    if isinstance(written, dict):
        return {key: resolved(value, macros) for key, value in written.items()}
    return written


def _fits(value: Any, hint: Any) -> bool:
    return _holds_built(value) or is_bearable(value, hint, conf=_WHOLE_FOR_REAL)


def _holds_built(value: Any) -> bool:
    return value is _BUILT or (isinstance(value, tuple | list) and any(map(_holds_built, value)))


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _floats(each)


def as_written(value: Any) -> str:
    """A value as it would stand in a configuration."""
    if isinstance(value, tuple):
        return f"({', '.join(map(as_written, value))}{',' * (len(value) == 1)})"
    return f"@{value.__name__}" if callable(value) and hasattr(value, "__name__") else repr(value)


def _in_words(hint: Any) -> str:
    """Says what a setting may be as its author would write it."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if hint is type(None):
        return "None"
    if origin in (typing.Union, types.UnionType):
        said = [each for each in inner if not (each is int and float in inner)]  # which is a number too
        return " or ".join(map(_in_words, said))
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin in (tuple, list, Sequence) and inner:
        if inner[-1] is not Ellipsis and origin is tuple:
            return f"({', '.join(map(_in_words, inner))})"
        each = _WORDS.get(inner[0])
        each = f"{each.removeprefix('a ')}s" if each else f"entries of the form {_in_words(inner[0])}"
        return f"{each} in parentheses, as in {'(64,)' if inner[0] is int else '(…,)'}"
    if origin is Callable or inspect.isclass(hint):
        return "a part, as in @name"
    return str(hint)
