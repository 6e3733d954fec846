"""Names for parts, so that a configuration can choose among them and a user can add to them."""

import difflib
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

Part = TypeVar("Part")
_MANY = 10  # names of one family, that are not listed one by one


class UnknownPartError(KeyError):
    """A name that no part has. (A plain KeyError prints its message in quotes.)"""

    def __str__(self) -> str:
        return str(self.args[0])


class Registry:
    """The parts of one kind by name.

    Every part is a callable; `requires` names the parameters that the contract of its kind passes, so that a
    regularizer registered as an operator is refused where it is registered and not deep inside a trace.
    """

    def __init__(self, kind: str, *, requires: tuple[str, ...] = ()):
        self.kind = kind
        self._requires = requires
        self._parts: dict[str, Callable[..., Any]] = {}

    def register(self, name: str) -> Callable[[Part], Part]:
        """Returns a decorator that files a part under `name` and hands it back unchanged."""
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split("/")):
            rule = f'by a name of letters, digits, _ and /, as in register("my_{self.kind}")'
            raise TypeError(f"register {self.kind}s {rule}; got {name!r}")

        def decorate(part: Part) -> Part:
            self._refuse_wrong_kind(name, part)
            if name in self._parts:
                raise ValueError(f"there is already {self.kind} {name!r} ({_where(self._parts[name])})")
            self._parts[name] = part  # pyright: ignore[reportArgumentType]
            return part

        return decorate

    def get(self, name: str) -> Callable[..., Any]:
        """Returns the part called `name`; the error for an unknown name lists the nearest ones and all."""
        if name in self._parts:
            return self._parts[name]
        raise UnknownPartError(
            f"there is no {self.kind} {name!r}.{hint(str(name), self._parts)} There are: "
            f"{_listed(self.names()) or 'none'}."
        )

    def names(self) -> tuple[str, ...]:
        """Returns the registered names in alphabetical order."""
        return tuple(sorted(self._parts))

    def _refuse_wrong_kind(self, name: str, part: Any) -> None:
        if not callable(part):
            raise TypeError(f"{self.kind} {name!r} must be callable, got {type(part).__name__}")
        parameters = inspect.signature(part).parameters
        kinds = {parameter.kind for parameter in parameters.values()}
        wrapper = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
        missing = [] if wrapper else [name for name in self._requires if name not in parameters]
        if missing:
            raise TypeError(
                f"{name!r} is not of the kind {self.kind!r}: it takes no {', '.join(map(repr, missing))} "
                f"(every {self.kind} takes {', '.join(self._requires)})"
            )


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns the names that someone who wrote `name` may have meant, as a text; an empty one for none."""
    return " or ".join(map(repr, difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)))


def hint(name: str, names: Iterable[str]) -> str:
    """Returns a question for a name that is not there, or nothing where no other is near."""
    return f" Did you mean {near}?" if (near := nearest(name, names)) else ""


def _listed(names: Sequence[str]) -> str:
    """Names one after the other; families of many, as atari/…, in one word each."""
    sizes = Counter(name.rpartition("/")[0] for name in names)

    def shown(name: str) -> str:
        family = name.rpartition("/")[0]
        return f"{family}/… ({sizes[family]})" if family and sizes[family] > _MANY else name

    return ", ".join(dict.fromkeys(map(shown, names)))


def _where(part: Callable[..., Any]) -> str:
    return f"{part.__module__}.{part.__qualname__}" if hasattr(part, "__qualname__") else repr(part)
