"""Writes a trained agent to a folder to give away, or its acting function as StableHLO."""

import argparse
from pathlib import Path

from rosmo.commands.shared import add_consent, add_imports, as_seed
from rosmo.trained.exporting import FORMATS, export


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("target", type=Path, metavar="TARGET", help="the folder to make")
    about = "rosmo: what rosmo.load opens; stablehlo: an acting function that needs jax alone"
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help=about)
    parser.add_argument(
        "--step",
        help="the checkpoint to take: an update, or what it was selected by, as fqe (default: the newest)",
    )
    parser.add_argument("--seed", type=as_seed, help="which one of a run of several seeds")
    add_imports(parser)
    add_consent(parser)


def run(args: argparse.Namespace) -> None:
    """Writes the folder."""
    made = export(
        args.folder,
        args.target,
        form=args.format,
        step=args.step,
        seed=args.seed,
        trust=args.trust,
        imports=args.imports,
    )
    size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    print(f"{made}: {size / 2**20:.1f} MiB, described in its README.md")
