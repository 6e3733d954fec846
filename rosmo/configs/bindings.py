"""What tells gin about the registries, reads files and bindings, and explains mistakes in them."""

import contextlib
import importlib
import importlib.util
import inspect
import logging
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gin

from rosmo import agents, networks, operators, regularizers
from rosmo.agents import LatentAgent
from rosmo.codec import Codec
from rosmo.learner import Learner, adamw
from rosmo.model import latent_model
from rosmo.registry import nearest
from rosmo.runs.train import Training

_HERE = Path(__file__).parent
_ENGINE = {
    "adamw": adamw,
    "codec": Codec,
    "latent_agent": LatentAgent,
    "latent_model": latent_model,
    "learner": Learner,
    "train": Training,
}
_exposed: dict[str, Callable[..., Any]] = {}


class ConfigError(ValueError):
    """A configuration that cannot be what its author meant."""


def packaged() -> list[str]:
    """Returns the names of the configurations that come with the library."""
    return sorted(str(path.relative_to(_HERE).with_suffix("")) for path in _HERE.glob("*/*.gin"))


def exposed() -> dict[str, Callable[..., Any]]:
    """Tells gin about every registered part, those registered since the last call too, and returns them.

    Operators, regularizers and networks go by their own names; an agent called `mzu` is `mzu_agent`, as an
    operator may have the same name.
    """
    parts = {name: ("rosmo", part) for name, part in _ENGINE.items()}
    for room in (operators, regularizers, networks):
        kind = room.__name__.rpartition(".")[2]
        parts |= {name: (kind, room.get(name)) for name in room.names()}
    parts |= {f"{name}_agent": ("agents", agents.get(name)) for name in agents.names()}
    for name, (module, part) in parts.items():
        if name not in _exposed:
            gin.register(name, module=module)(part)
            _exposed[name] = part
    return _exposed


def load(
    configs: Sequence[str] = (), bindings: Sequence[str] = (), imports: Sequence[str] = (), *, text: str = ""
) -> Training:
    """Returns the training that configurations describe; later ones and bindings override earlier ones.

    Args:
        configs: packaged names such as "bsuite/rosmo", or paths of gin files.
        bindings: gin bindings such as "operator = @mcts".
        imports: modules or files to import first, which register parts of their own.
        text: a whole configuration, as an earlier run wrote it down.
    """
    gin.clear_config()
    for module in imports:
        import_module(module)
    exposed()
    gin.add_config_file_search_path(str(_HERE))
    files = [_find(config) for config in configs]
    with _explained("the configuration of the run"):
        gin.parse_config(text)
    for file in files:
        with _explained(file), _quiet():
            gin.parse_config_file(file, print_includes_and_imports=False)
    reached = _reached()  # also what a binding takes the place of: another one may have said it
    for binding in bindings:
        with _explained(f"binding {binding!r}"):
            gin.parse_config(binding)
    with _explained("the configuration"):
        gin.finalize()
        if ("", "rosmo.train") not in _config():
            raise ConfigError("say which agent to train first, as in: rosmo train bsuite/rosmo bsuite/catch")
        if not text:  # what a run wrote down has been checked, and says no more of what was overridden
            _refuse_unused([*bindings, *(raw for file in files for raw in _texts(file))])
            _refuse_idle(bindings, reached | _reached())
        return gin.get_configurable("train")()


def _find(config: str) -> str:
    for path in (_HERE / f"{config}.gin", Path(config), Path(f"{config}.gin")):
        if path.is_file():
            return str(path)
    near = _nearest(config, packaged())
    raise ConfigError(
        f"there is no configuration {config!r}, neither packaged nor as a file.{near} Packaged are: "
        f"{', '.join(packaged())}."
    )


def import_module(module: str) -> None:
    """Imports a module by name, or a file by its path, whatever else is called like it; each once."""
    if not module.endswith(".py"):
        sys.path.insert(0, "")
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError(f"cannot import {module!r}: {error}") from error
        return
    path = Path(module).resolve()
    name = f"rosmo_import_{path.stem}_{zlib.crc32(str(path).encode()):x}"
    if name in sys.modules:
        return
    if not path.is_file():
        raise ConfigError(f"cannot import {module!r}: there is no such file")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def _texts(file: str) -> Iterator[str]:
    """Yields a gin file as it stands, and those that it includes."""
    text = Path(file).read_text()
    yield text
    for included in re.findall(r"""^include ['"]([^'"]+)['"]""", text, flags=re.MULTILINE):
        yield from _texts(_find(included.removesuffix(".gin")))


def _config() -> dict[tuple[str, str], dict]:
    """What gin has been told, by scope and part."""
    return gin.config._CONFIG  # pyright: ignore[reportAttributeAccessIssue]


def _refuse_unused(texts: Sequence[str]) -> None:
    """Refuses what gin would pass over in silence: macros and scopes that no text ever refers to."""
    used = {name for text in texts for name in re.findall(r"%(\w+)", text)}
    scopes = {name for text in texts for name in re.findall(r"@(\w+)/", text)}
    for scope, selector in _config():
        if selector == "gin.macro" and scope not in used:
            raise ConfigError(
                f"nothing uses {scope!r}.{_nearest(scope, used)} There are: {', '.join(sorted(used))}."
            )
        if selector != "gin.macro" and scope and scope not in scopes:
            raise ConfigError(f"nothing refers to the scope of {scope}/{selector}: write it without {scope}/")


def _refuse_idle(bindings: Sequence[str], reached: set[str]) -> None:
    """Refuses what would change nothing, such as an operator for an agent that has none."""
    for binding in bindings:
        if match := re.match(r"\s*(?:\w+/)*([\w.]+)\s*=", binding):
            part, _, setting = match.group(1).rpartition(".")
            name = part.rpartition(".")[2] or setting
            if name not in reached:
                raise ConfigError(
                    f"{binding!r} would change nothing: nothing that is trained here uses {name!r}"
                )


def _reached() -> set[str]:
    """The names of the parts and macros that the training refers to, directly or through others."""
    todo, found = ["train"], set()
    while todo:
        name = todo.pop()
        found.add(name)
        settings = [values for key, values in _config().items() if _short(*key) == name]
        references = gin.config.iterate_references(settings)  # pyright: ignore[reportAttributeAccessIssue]
        todo += {_short(*reference.config_key) for reference in references} - found
    return found


def _short(scope: str, selector: str) -> str:
    return scope if selector == "gin.macro" else selector.rpartition(".")[2]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps gin from logging an error for each place where it looks for an included file in vain."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _explained(where: str) -> Iterator[None]:
    """Turns what gin says into one sentence with the nearest names."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{where}: {_explain(str(error))}") from error


def _explain(message: str) -> str:
    if match := re.search(r"No configurable matching (?:reference )?'@?(?:\w+/)*([\w.]+)", message):
        return f"there is no part called {match.group(1)!r}.{_nearest(match.group(1), _exposed)}"
    if match := re.search(r"Configurable '([\w.]+)' doesn't have a parameter named '(\w+)'", message):
        part = _exposed.get(match.group(1).rpartition(".")[2])
        settings = list(inspect.signature(part).parameters) if part else []
        return f"{match.group(1)} has no setting {match.group(2)!r}.{_nearest(match.group(2), settings)}"
    if match := re.search(r"No bindings specified for '(\w+)/gin.macro'", message):
        return f"%{match.group(1)} is used, but nothing says what {match.group(1)} is"
    if "malformed node" in message:
        return "cannot be read: write @name for a part, quotes around text, and plain numbers"
    return (message.strip().strip('"').splitlines() or ["cannot be read"])[0]


def _nearest(name: str, names: Iterable[str]) -> str:
    return f" Did you mean {near}?" if (near := nearest(name, names)) else ""
