"""Prints what completes commands, flags, configurations and environments: for bash, zsh or fish."""

import argparse
from pathlib import Path

import shtab

from rosmo import commands, configs, envs, experiments
from rosmo.collect import policies
from rosmo.commands.parser import below, build

SHELLS = ("bash", "zsh", "fish")
_PLACES = """\
where to write it, for the shells that you open from then on:
  rosmo completion bash > ~/.local/share/bash-completion/completions/rosmo
  rosmo completion zsh > ~/.zfunc/_rosmo      (with fpath+=~/.zfunc before compinit in ~/.zshrc)
  rosmo completion fish > ~/.config/fish/completions/rosmo.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _PLACES
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> None:
    """Prints the script."""
    root = build(commands.names())
    for parser in below(root).values():
        for each in (parser, *below(parser).values()):
            _complete(each)
    print(shtab.complete(root, args.shell))


def _complete(parser: argparse.ArgumentParser) -> None:
    """Says what the values of arguments may be, in a parser that is never to read any."""
    known = {"configs": configs.packaged, "environment": envs.names, "policy": policies.names}
    for action in parser._actions:
        if action.dest in known:
            action.choices = list(known[action.dest]())
        elif action.metavar == "NAME":
            action.choices = list(experiments.names())
        elif action.type is Path:
            action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue]
