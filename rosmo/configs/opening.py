"""Runs that are opened again: what they were trained as, and whose code that may execute."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rosmo.configs.bindings import load
from rosmo.runs import imported
from rosmo.runs.folder import RunFolder
from rosmo.runs.training import Training


class Consent(NamedTuple):
    """What a user allows to be executed of a run that may be somebody else's.

    Args:
        trust: whether the modules that the run keeps may be imported.
        imports: modules of the user's own to import in their place.
    """

    trust: bool = False
    imports: Sequence[str] = ()


NOTHING = Consent()


def open_run(folder: RunFolder, allowed: Consent = NOTHING) -> tuple[Training, dict[str, Any]]:
    """Returns the training that a folder describes, and how it was started."""
    settings = folder.read_settings()
    modules = _modules(folder, settings["imports"], allowed)
    training = load(imports=modules, text=folder.read_config(), origin=str(folder.config))
    return training, settings


def _modules(folder: RunFolder, kept: list[dict[str, Any]], allowed: Consent) -> Sequence[str]:
    """What to import for a run, none of it unasked."""
    if allowed.imports or not kept:
        return allowed.imports
    if not allowed.trust:
        names = ", ".join(module["name"] for module in kept)
        raise ValueError(
            f"{folder.path} would run code that it brings with it ({names}): look at it in "
            f"{folder.path / imported.FOLDER}, and allow it by --trust (in code, trust=True), or name "
            "modules of yours by --import (imports=…)"
        )
    return [_importable(name, place) for name, place in imported.importable(folder.path, kept)]


def _importable(name: str, place: Path | None) -> str:
    if place is None:
        if name.endswith(".py") and not Path(name).is_file():
            raise ValueError(f"the run does not keep its module {name}: name where it is now by --import")
        return name
    if name.endswith(".py"):
        return str(place / name)
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    return name
