"""The commands of `rosmo`, one file each: `add_arguments(parser)` and `run(args)`.

None is imported before it is asked for: what one needs may take seconds to load.
"""

import ast
import importlib
from pathlib import Path
from types import ModuleType

_FILES = {
    "train": "train",
    "evaluate": "evaluate",
    "select": "select",
    "diagnose": "diagnose",
    "export": "export",
    "collect": "collect",
    "data": "data",
    "experiment": "experiment",
    "report": "report",
    "bench": "bench",
    "compile": "compile",
    "list": "parts",
    "settings": "settings",
    "completion": "completion",
}


def names() -> tuple[str, ...]:
    """Returns the commands in the order that the help shows them."""
    return tuple(_FILES)


def about(name: str) -> str:
    """Returns what a command does, as its file says, which is read and not imported."""
    path = Path(__file__).with_name(_FILES[name])
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def load(name: str) -> ModuleType:
    """Imports the file of a command."""
    return importlib.import_module(f"rosmo.commands.{_FILES[name]}")
