"""Lists every registered part with its settings, and the packaged configurations."""

import argparse
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from rosmo import agents, configs, envs, networks, operators, regularizers, worlds
from rosmo.collect import policies
from rosmo.commands.shared import add_imports
from rosmo.configs.kinds import as_written

_ATARI = "atari/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    add_imports(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the lists."""
    for module in args.imports:
        configs.import_module(module)
    for room in (operators, regularizers, networks, worlds, agents, envs, policies):
        kind = room.__name__.rpartition(".")[2]
        print(f"\n{'environments' if room is envs else kind}")
        names = room.names()
        if room is envs:
            _print_games([name for name in names if name.startswith(_ATARI)])
            print(f"  {'gym/ID':18} Any environment of gymnasium's with discrete actions, as gym/CartPole-v1")
            names = [name for name in names if not name.startswith(_ATARI)]
        for name in names:
            part = room.get(name)
            print(f"  {name:18} {_summary(part)}")
            if room is not envs and (settings := _settings(part)):
                print(f"  {'':18}   {settings}")
    print("\nconfigurations")
    for name in configs.packaged():
        print(f"  {name}")


def _print_games(names: Sequence[str]) -> None:
    """Prints the Atari games in one line, as they differ in their names alone."""
    about = _summary(envs.get(names[0])).rstrip(".")
    games = ", ".join(name.removeprefix(_ATARI) for name in names)
    print(f"  {f'{_ATARI}GAME':18} {about}; {len(names)} games: {games}")


def _summary(part: Callable[..., Any]) -> str:
    return (inspect.getdoc(part) or "").partition("\n")[0]


def _settings(part: Callable[..., Any]) -> str:
    """The parameters that have a default, which a configuration may change."""
    parameters = inspect.signature(part).parameters.values()
    return ", ".join(
        f"{p.name}={as_written(p.default)}"
        for p in parameters
        if p.default is not p.empty and p.name != "invalid_actions"
    )
