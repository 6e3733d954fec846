"""What a configuration may not say, though gin would pass over it in silence."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence

import gin

from rosmo.configs.errors import ConfigError
from rosmo.registry import hint


def told() -> dict[tuple[str, str], dict]:
    """Returns what gin has been told, by scope and part."""
    return gin.config._CONFIG  # pyright: ignore[reportAttributeAccessIssue]


def refuse_unused(texts: Sequence[str], parts: Mapping[str, Callable]) -> None:
    """Refuses macros and scopes that no text ever refers to.

    Args:
        texts: all that was said.
        parts: what gin knows, by name: a setting of one that is trained here may have been meant.
    """
    used = {name for text in texts for name in re.findall(r"%(\w+)", text)}
    scopes = {name for text in texts for name in re.findall(r"@(\w+)/", text)}
    for scope, selector in told():
        if selector == "gin.macro" and scope not in used:
            meant = [
                f"{part}.{scope}" for part in sorted(reached() & parts.keys()) if _takes(parts[part], scope)
            ]
            question = hint(scope, used) if not meant else f" Did you mean {' or '.join(map(repr, meant))}?"
            raise ConfigError(f"nothing uses {scope!r}.{question} There are: {', '.join(sorted(used))}.")
        if selector != "gin.macro" and scope and scope not in scopes:
            raise ConfigError(f"nothing refers to the scope of {scope}/{selector}: write it without {scope}/")


def _takes(part: Callable, setting: str) -> bool:
    parameter = inspect.signature(part).parameters.get(setting)
    return parameter is not None and parameter.default is not parameter.empty


def refuse_idle(bindings: Sequence[str], reached: set[str]) -> None:
    """Refuses what would change nothing, such as an operator for an agent that has none."""
    for binding in bindings:
        if match := re.match(r"\s*(?:\w+/)*([\w.]+)\s*=", binding):
            part, _, setting = match.group(1).rpartition(".")
            name = part.rpartition(".")[2] or setting
            if name not in reached:
                raise ConfigError(
                    f"{binding!r} would change nothing: nothing that is trained here uses {name!r}"
                )


def reached() -> set[str]:
    """Returns the names of the parts and macros that the training refers to, directly or through others."""
    todo, found = ["train"], set()
    while todo:
        name = todo.pop()
        found.add(name)
        settings = [values for key, values in told().items() if _short(*key) == name]
        references = gin.config.iterate_references(settings)  # pyright: ignore[reportAttributeAccessIssue]
        todo += {_short(*reference.config_key) for reference in references} - found
    return found


def _short(scope: str, selector: str) -> str:
    return scope if selector == "gin.macro" else selector.rpartition(".")[2]
