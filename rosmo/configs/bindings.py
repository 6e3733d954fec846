"""What tells gin about the registries, reads files and bindings, and explains mistakes in them."""

import contextlib
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gin

from rosmo import agents, networks, operators, regularizers, worlds
from rosmo.agents import LatentAgent, annealed_adam
from rosmo.codec import Codec
from rosmo.configs.checks import reached, refuse_idle, refuse_unused, told
from rosmo.configs.errors import ConfigError
from rosmo.configs.imports import import_module
from rosmo.configs.kinds import as_written, refuse_wrong_kinds, resolved
from rosmo.data.arrays import SUFFIXES
from rosmo.envs.gymnasium import PREFIX
from rosmo.learner import Learner, adamw
from rosmo.model import latent_model
from rosmo.registry import hint
from rosmo.runs.damage import BEGIN_AGAIN
from rosmo.runs.training import Training

_HERE = Path(__file__).parent
_ENGINE = {
    "adamw": adamw,
    "annealed_adam": annealed_adam,
    "codec": Codec,
    "latent_agent": LatentAgent,
    "latent_model": latent_model,
    "learner": Learner,
    "train": Training,
    "halt": worlds.halt,
    "subtract": worlds.subtract,
    "world_ppo": worlds.WorldPPO,
    "world_model": worlds.WorldModel,
}
_IMPORT = r"import|from"  # of gin's own: with them a configuration could call anything that Python can
_INCLUDE = rf"{_IMPORT}|include"
INCLUDED = re.compile(r"\s*include\s+(['\"])([^'\"\\]+)\1\s*(#.*)?")
_exposed: dict[str, Callable[..., Any]] = {}


def packaged() -> list[str]:
    """Returns the names of the configurations that come with the library."""
    return sorted(str(path.relative_to(_HERE).with_suffix("")) for path in _HERE.glob("*/*.gin"))


def exposed() -> dict[str, Callable[..., Any]]:
    """Tells gin about every registered part, those registered since the last call too, and returns them.

    Operators, regularizers, networks and worlds go by their own names; an agent called `mzu` is `mzu_agent`,
    as an operator may have the same name.
    """
    parts = {name: ("rosmo", part) for name, part in _ENGINE.items()}
    for room in (operators, regularizers, networks, worlds):
        kind = room.__name__.rpartition(".")[2]
        parts |= {name: (kind, room.get(name)) for name in room.names()}
    parts |= {f"{name}_agent": ("agents", agents.get(name)) for name in agents.names()}
    for name, (module, part) in parts.items():
        if name not in _exposed:
            gin.register(name, module=module)(part)
            _exposed[name] = part
    return _exposed


def load(
    configs: Sequence[str] = (),
    bindings: Sequence[str] = (),
    imports: Sequence[str] = (),
    *,
    text: str = "",
    origin: str = "the configuration of the run",
) -> Training:
    """Returns the training that configurations describe; later ones and bindings override earlier ones.

    Args:
        configs: packaged names such as "bsuite/rosmo", or paths of gin files.
        bindings: gin bindings such as "operator = @mcts".
        imports: modules or files to import first, which register parts of their own.
        text: a whole configuration, as an earlier run wrote it down.
        origin: of that text.
    """
    gin.clear_config()
    for module in imports:
        import_module(module)
    exposed()
    gin.add_config_file_search_path(str(_HERE))
    files = [find(config) for config in configs]
    included = [(path, each) for file in files for path, each in _files(file)]
    _refuse_code(origin, text, _INCLUDE)
    for binding in bindings:
        _refuse_code("a binding", binding, _INCLUDE)
    for path, each in included:
        _refuse_code(path, each, _IMPORT)
    with _explained(origin):
        gin.parse_config(text)
    for file in files:
        with _explained(file), _quiet():
            gin.parse_config_file(file, print_includes_and_imports=False)
    before = reached()  # also what a binding takes the place of: another one may have said it
    for binding in bindings:
        with _explained(f"binding {binding!r}"):
            gin.parse_config(binding)
    with _explained("the configuration"):
        gin.finalize()
        if ("", "rosmo.train") not in told():
            raise ConfigError(
                f"{origin} does not say what was trained: {BEGIN_AGAIN}"
                if text
                else "say which agent to train first, as in: rosmo train bsuite/rosmo bsuite/catch"
            )
        refuse_wrong_kinds(told(), exposed())
        if not text:  # what a run wrote down has been checked, and says no more of what was overridden
            refuse_unused([*bindings, *(each for _, each in included)], exposed())
            refuse_idle(bindings, before | reached())
        return gin.get_configurable("train")()


def asked(setting: str, configs: Sequence[str], bindings: Sequence[str]) -> bool:
    """Whether a binding or a configuration sets `setting`, other than as a default of the packaged bases."""
    files = [find(config) for config in configs]
    texts = [text for file in files for path, text in _files(file) if not _is_base(path)]
    said = re.compile(rf"^\s*(?:train\.)?{setting}\s*=", re.MULTILINE)
    return any(said.search(text) for text in [*bindings, *texts])


def said_of(part: Callable[..., Any]) -> list[str]:
    """Returns what gin was told of a part, as bindings with every macro in its place."""
    name = part.__name__
    macros = {scope: said["value"] for (scope, part), said in told().items() if part == "gin.macro"}
    said = {
        k: v for (_, part), all in told().items() if part.rpartition(".")[2] == name for k, v in all.items()
    }
    return [f"{name}.{setting} = {as_written(resolved(value, macros))}" for setting, value in said.items()]


def _is_base(path: str) -> bool:
    return Path(path).name == "base.gin" and Path(path).resolve().is_relative_to(_HERE)


def find(config: str) -> str:
    """Returns the file of a configuration, by its packaged name or its path."""
    if Path(config).suffix.lower() in SUFFIXES:
        raise ConfigError(f"{config} is data, and no configuration: write -p \"data = '{config}'\"")
    for path in (_HERE / f"{config}.gin", Path(config), Path(f"{config}.gin")):
        if path.is_file():
            return str(path)
    near = hint(config, packaged())
    if config.startswith(PREFIX):
        near += f" An environment is chosen by -p \"environment = '{config}'\"."
    raise ConfigError(
        f"there is no configuration {config!r}, neither packaged nor as a file.{near} Packaged are: "
        f"{', '.join(packaged())}."
    )


def _files(file: str, within: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yields the path and the text of a gin file, and of those that it includes."""
    if file in within:
        raise ConfigError(f"{file} includes itself ({' includes '.join([*within, file])}): leave that out")
    try:
        text = Path(file).read_text()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is no configuration, as it is no text ({error}): name another") from error
    yield file, text
    for line in re.findall(r"^\s*include\b.*", text, re.MULTILINE):
        if not (plain := INCLUDED.fullmatch(line)):  # gin would read more spellings than are looked for here
            raise ConfigError(f"{file} says {line.strip()!r}: write it as include 'NAME.gin'")
        yield from _files(find_included(plain[2]), (*within, file))


def find_included(name: str) -> str:
    """Returns the file that gin would read for what a file includes."""
    for path in (Path(name), _HERE / name):
        if path.is_file():
            return str(path)
    near = hint(name.removesuffix(".gin"), packaged())
    raise ConfigError(f"there is no file {name!r} to include, neither here nor packaged.{near}")


def _refuse_code(where: str, text: str, words: str) -> None:
    """Refuses a configuration that would do more than name registered parts."""
    if asked := re.search(rf"^\s*(?:{words})\b.*", text, re.MULTILINE):
        raise ConfigError(
            f"{where} says {asked[0].strip()!r}, which is not read, as it could run any code: leave it out, "
            "and name modules that register parts by --import"
        )


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
        told = "a setting stands for itself, as in x = %x: give it a value"
        said = told if isinstance(error, RecursionError) else _explain(str(error))
        raise ConfigError(f"{where}: {said}") from error


def _explain(message: str) -> str:
    if match := re.search(r"No configurable matching (?:reference )?'@?(?:\w+/)*([\w.]+)", message):
        return f"there is no part called {match.group(1)!r}.{hint(match.group(1), _exposed)}"
    if match := re.search(r"Configurable '([\w.]+)' doesn't have a parameter named '(\w+)'", message):
        part = _exposed.get(match.group(1).rpartition(".")[2])
        settings = list(inspect.signature(part).parameters) if part else []
        return f"{match.group(1)} has no setting {match.group(2)!r}.{hint(match.group(2), settings)}"
    if match := re.search(r"No bindings specified for '(\w+)/gin.macro'", message):
        return f"%{match.group(1)} is used, but nothing says what {match.group(1)} is"
    if "malformed node" in message:
        return "cannot be read: write @name for a part, quotes around text, and plain numbers"
    return (message.strip().strip('"').splitlines() or ["cannot be read"])[0]
