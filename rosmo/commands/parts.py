"""Lists every registered part with its settings, and the packaged configurations."""

import argparse
import inspect
from collections.abc import Callable
from typing import Any

from rosmo import agents, configs, envs, networks, operators, policies, regularizers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE")


def run(args: argparse.Namespace) -> None:
    """Prints the lists."""
    for module in args.imports:
        configs.import_module(module)
    for room in (operators, regularizers, networks, agents, envs, policies):
        kind = room.__name__.rpartition(".")[2]
        print(f"\n{'environments' if room is envs else kind}")
        for name in room.names():
            part = room.get(name)
            print(f"  {name:18} {_summary(part)}")
            if room is not envs and (settings := _settings(part)):
                print(f"  {'':18}   {settings}")
    print("\nconfigurations")
    for name in configs.packaged():
        print(f"  {name}")


def _summary(part: Callable[..., Any]) -> str:
    return (inspect.getdoc(part) or "").partition("\n")[0]


def _settings(part: Callable[..., Any]) -> str:
    """The parameters that have a default, which a configuration may change."""
    parameters = inspect.signature(part).parameters.values()
    return ", ".join(
        f"{p.name}={p.default!r}"
        for p in parameters
        if p.default is not p.empty and p.name != "invalid_actions"
    )
