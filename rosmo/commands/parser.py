"""The parser of the command line, and what is said of a command or a flag that there is not."""

import argparse
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from rosmo import __version__, commands
from rosmo.registry import hint

_CONFIGURATIONS = Path(__file__).parents[1] / "configs"


class Mistake(Exception):
    """A command line that cannot be what its author meant."""


def build(asked: Collection[str]) -> argparse.ArgumentParser:
    """Returns the parser of all commands, with the arguments of those that are asked for."""
    root = argparse.ArgumentParser(
        prog="rosmo", description="Offline reinforcement learning with a learned model."
    )
    root.add_argument("--version", action="version", version=f"rosmo {__version__}")
    subparsers = root.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in commands.names():
        about = commands.about(name)
        command = subparsers.add_parser(name, help=about, description=about)
        command.add_argument("--debug", action="store_true", help="show where an error comes from")
        if name in asked:
            module = commands.load(name)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return root


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads a command line; an unknown command or flag is answered with the nearest ones."""
    named = next((word for word in words if not word.startswith("-")), "")
    root = build({named} & set(commands.names()))
    _refuse_unknown(root, words)
    return root.parse_args(words)


def below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Returns the parsers of the commands of a parser, by their names."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def _refuse_unknown(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Looks for commands and flags that no parser on the way to the innermost command has."""
    name = "rosmo"
    for place, word in enumerate(words):
        if word == "--":
            return
        if (inner := below(parser)) and not word.startswith("-"):
            if word not in inner:
                raise Mistake(
                    f"{name} has no command {word!r}.{hint(word, inner)} There are: {', '.join(inner)}."
                )
            parser, name = inner[word], f"{name} {word}"
        elif not _is_taken(word, parser):
            raise Mistake(_answer(name, word, words[place + 1 :], parser))


def _is_taken(word: str, parser: argparse.ArgumentParser) -> bool:
    """Whether a word is no flag, or one of the parser's, also as `--fl`, `--flag=value` or `-fvalue`."""
    flags = parser._option_string_actions
    if not word.startswith("-") or word == "-" or " " in word or re.fullmatch(r"-\d*\.?\d+", word):
        return True
    if not word.startswith("--"):
        return word[:2] in flags
    asked = word.partition("=")[0]
    if asked not in flags and "--bind" in flags and _as_setting(asked) in dict(_settings()):
        return False  # --data is no short --data-dir
    return any(flag.startswith(asked) for flag in flags)


def _answer(name: str, word: str, rest: Sequence[str], parser: argparse.ArgumentParser) -> str:
    flag, _, value = word.partition("=")
    value = value or next((each for each in rest[:1] if not each.startswith("-")), "")
    known = [known for known in parser._option_string_actions if known.startswith("--")]
    setting = _as_setting(flag)
    default = dict(_settings()).get(setting)
    if default is not None and "--bind" in known:
        answer = f" It is a setting: write -p {_quoted(setting, value, default)}."
    else:
        answer = hint(flag, known) or f" {name} --help lists what it takes."
    return f"{name} has no {flag}.{answer}"


def _as_setting(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _quoted(setting: str, value: str, default: str) -> str:
    """A binding for the shell, with the value written as the setting's default is."""
    value = value or default
    text = default[0] in "'\"" or (default == "None" and re.search(r"[^\W\d]", value))
    if default.startswith("@"):
        value = f"@{value.lstrip('@')}"
    elif text and value[0] not in "'\"N":
        return f'"{setting} = {value!r}"'
    return f'"{setting} = {value}"' if "'" in value else f"'{setting} = {value}'"


def _settings() -> Iterator[tuple[str, str]]:
    """The names of the settings of packaged configurations, each with a value that it has somewhere."""
    for path in sorted(_CONFIGURATIONS.glob("*/*.gin")):
        yield from re.findall(r"^(\w+)\s*=\s*(.*?)\s*(?:#.*)?$", path.read_text(), re.MULTILINE)
