"""Data sets: shows what is in one, imports files, exports to Minari, and converts Atari data for training."""

import argparse

from rosmo.commands.data import convert, export, importing, show

_COMMANDS = {"show": show, "import": importing, "export": export, "convert": convert}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, module in _COMMANDS.items():
        about = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=about, description=about)
        command.add_argument("--debug", action="store_true", default=argparse.SUPPRESS)
        module.add_arguments(command)
        command.set_defaults(on_data=module.run)


def run(args: argparse.Namespace) -> None:
    """Runs one of the commands on data."""
    args.on_data(args)
