"""The commands of `rosmo`, one file each: `add_arguments(parser)` and `run(args)`."""

from types import ModuleType

from rosmo.commands import bench, collect, compile, data, evaluate, experiment, parts, report, train


def by_name() -> dict[str, ModuleType]:
    """Returns the commands in the order that the help shows them."""
    return {
        "train": train,
        "evaluate": evaluate,
        "collect": collect,
        "data": data,
        "experiment": experiment,
        "report": report,
        "bench": bench,
        "compile": compile,
        "list": parts,
    }
