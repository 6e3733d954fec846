"""Prints every setting of a configuration with its value, what it is, and the file that says so."""

import argparse

from rosmo import configs
from rosmo.commands.shared import DEFAULT_CONFIGS, add_configuration

_WIDTH = 44  # of a setting with its value; longer ones push their comment aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    add_configuration(parser)


def run(args: argparse.Namespace) -> None:
    """Prints one setting a line, as it could stand in a configuration."""
    for setting in configs.settings(args.configs or DEFAULT_CONFIGS, args.bind, args.imports):
        comment = f"{setting.comment} [{setting.origin}]" if setting.comment else f"[{setting.origin}]"
        print(f"{f'{setting.name} = {setting.value}':{_WIDTH}}  # {comment}")
