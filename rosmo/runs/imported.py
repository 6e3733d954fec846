"""The modules of a user's own that a run needs, kept in its folder: it can then be moved, and shared."""

import dataclasses
import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

FOLDER = "imports"


@dataclasses.dataclass(frozen=True)
class Imported:
    """A module that registers parts.

    Args:
        name: of the file or the module, as it is imported from the folder of the files.
        files: those that it consists of, by their places in that folder; none of an installed package.
    """

    name: str
    files: Mapping[str, Path]


def keep(run: Path, modules: Sequence[Imported]) -> list[dict[str, Any]]:
    """Copies the files of modules into a run's folder, and returns what its settings say of them."""
    kept = []
    for number, module in enumerate(modules):
        folder = run / FOLDER / str(number)
        for place, source in module.files.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / place)
        kept.append(_described(module.name, {place: folder / place for place in module.files}))
    return kept


def importable(run: Path, kept: Sequence[Mapping[str, Any]]) -> list[tuple[str, Path | None]]:
    """Returns the modules of a run as names and the folders to import them from, once seen to be unchanged.

    A module without a folder is an installed package.
    """
    found: list[tuple[str, Path | None]] = []
    for number, module in enumerate(kept):
        folder = run / FOLDER / str(number)
        for place, expected in module["files"].items():
            path = folder / place
            if not path.is_file() or _sha256(path) != expected:
                raise ValueError(
                    f"{path} is missing or has changed since the run was begun: bring it back, or name the "
                    f"module to use in its place by --import"
                )
        found.append((module["name"], folder if module["files"] else None))
    return found


def read(kept: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns what `keep` returned, read back, or raises a ValueError where it describes no modules.

    Earlier runs kept names alone, of modules that are to be found where they were.
    """
    modules = [{"name": module, "files": {}} if isinstance(module, str) else module for module in kept]
    for module in modules:
        files = module.get("files") if isinstance(module, dict) else None
        if not isinstance(files, dict) or not isinstance(module.get("name"), str):
            raise ValueError(f"imports must be modules with a name and files, got {module!r}")
        for place, checksum in files.items():
            if PurePosixPath(place).is_absolute() or ".." in PurePosixPath(place).parts:
                raise ValueError(f"the module {module['name']!r} has a file outside of the run: {place!r}")
            if not isinstance(checksum, str):
                raise ValueError(f"the file {place!r} has no checksum")
    return modules


def _described(name: str, files: Mapping[str, Path]) -> dict[str, Any]:
    return {"name": name, "files": {place: _sha256(path) for place, path in files.items()}}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
