"""Every setting of a configuration: its value, what it is, and where it was said."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rosmo.configs.bindings import INCLUDED, exposed, find, find_included, load
from rosmo.configs.checks import reached, told
from rosmo.configs.kinds import as_written

_ROOT = Path(__file__).parents[1]
_SAID = re.compile(r"^([\w./]+)\s*=")
_COMMENT = re.compile(r"""^(?:[^#'"]|'[^']*'|"[^"]*")*#\s*(.*)$""")


class Setting(NamedTuple):
    """A setting as it would stand in a configuration, with its comment and origin."""

    name: str
    value: str
    comment: str
    origin: str


def settings(
    configs: Sequence[str], bindings: Sequence[str] = (), imports: Sequence[str] = ()
) -> list[Setting]:
    """Returns the settings of all that a configuration trains with, in the order that they are said in.

    After what it says come the settings of its parts that it leaves as they are, each named by its part.
    """
    load(configs, bindings, imports)
    comments, origins = _read([find(config) for config in configs])
    origins |= {said[1]: "-p" for said in (_SAID.match(binding.strip()) for binding in bindings) if said}
    values, used = _values(), reached()
    said = [
        Setting(name, values[name], comments.get(name, ""), origin)
        for name, origin in origins.items()
        if name in values and name.partition(".")[0] in used
    ]
    return said + [default for name in sorted(used & exposed().keys()) for default in _defaults(name)]


def _read(files: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the comments and the origins of what files say: of each setting the last that there is."""
    comments: dict[str, str] = {}
    origins: dict[str, str] = {}
    for file, line in (found for each in files for found in _lines(each)):
        if named := _SAID.match(line):
            origins[named[1]] = _shown(Path(file)).removeprefix("configs/")
            if comment := _COMMENT.match(line):
                comments[named[1]] = comment[1]
    return comments, origins


def _lines(file: str) -> Iterator[tuple[str, str]]:
    """Yields the lines of a file, with those of the files that it includes in their places."""
    for line in Path(file).read_text().splitlines():
        if included := INCLUDED.fullmatch(line):
            yield from _lines(find_included(included[2]))
        else:
            yield file, line


def _values() -> dict[str, str]:
    """What gin was told of macros and parts, but not which macro a part takes a setting from."""
    found = {}
    for (scope, selector), said in told().items():
        if selector == "gin.macro":
            found[scope] = as_written(said["value"])
            continue
        part = selector.rpartition(".")[2]
        for setting, value in said.items():
            if not as_written(value).startswith("%"):
                found["/".join(filter(None, [scope, f"{part}.{setting}"]))] = as_written(value)
    return found


def _defaults(name: str) -> Iterator[Setting]:
    """Yields the settings of a part that no one has said anything of."""
    part = exposed()[name]
    bound = {setting for (_, selector), said in told().items() if _last(selector) == name for setting in said}
    for parameter in inspect.signature(part).parameters.values():
        if parameter.default is parameter.empty or parameter.name in {*bound, "invalid_actions"}:
            continue
        file = inspect.getsourcefile(inspect.unwrap(part))
        origin = _shown(Path(file)) if file else ""
        comment = _documented(part, parameter.name)
        yield Setting(f"{name}.{parameter.name}", as_written(parameter.default), comment, origin)


def _documented(part: Callable[..., Any], setting: str) -> str:
    """What a part's docstring says of a setting."""
    text = "\n".join(inspect.getdoc(each) or "" for each in (part, getattr(part, "__init__", None)) if each)
    found = re.search(rf"^ {{4}}{setting}: (.+(?:\n {{5,}}.+)*)", text, re.MULTILINE)
    return re.sub(r"\s+", " ", found[1]) if found else ""


def _last(selector: str) -> str:
    return selector.rpartition(".")[2]


def _shown(path: Path) -> str:
    inside = path.resolve().is_relative_to(_ROOT)
    return str(path.resolve().relative_to(_ROOT) if inside else path)
