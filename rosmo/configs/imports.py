"""Modules of a user's own, which register parts: their import, and the files that a run keeps of them."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from rosmo.configs.errors import ConfigError
from rosmo.runs.imported import Imported

_by_content: dict[str, ModuleType] = {}


def import_module(module: str) -> ModuleType:
    """Imports a module by name, or a file by its path, whatever else is called so; the same text once."""
    if not module.endswith(".py"):
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError(f"cannot import {module!r}: {error}") from error
    path = Path(module).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"cannot import {module!r}: there is no such file")
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    if content not in _by_content:
        _by_content[content] = _executed(path, f"rosmo_import_{path.stem}_{content[:8]}")
    return _by_content[content]


def _executed(path: Path, name: str) -> ModuleType:
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[name])
    except BaseException:
        del sys.modules[name]
        raise
    return sys.modules[name]


def sources(modules: Sequence[str]) -> list[Imported]:
    """Imports modules, and returns each with the files of one's own that it consists of.

    Those are its own file and what it has imported from beside it; installed packages go by their names.
    """
    found = []
    for name in modules:
        file = getattr(import_module(name), "__file__", None)
        path = Path(name).expanduser().resolve() if name.endswith(".py") else Path(file or "").resolve()
        root = path.parent if name.endswith(".py") else Path.cwd()
        own = sorted({path, *_beneath(root)}) if _is_own(path, root) else []
        main = path.name if name.endswith(".py") else name
        found.append(Imported(main, {str(each.relative_to(root)): each for each in own}))
    return found


def _beneath(root: Path) -> Iterator[Path]:
    """Yields the files of all modules of a user's own that were imported from a folder."""
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name != "__main__"]
    for path in {Path(file).resolve() for file in files if file}:
        if _is_own(path, root):
            yield path


def _is_own(path: Path, root: Path) -> bool:
    installed = (Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), Path(__file__).parents[1])
    inside = path.is_relative_to(root) and path.suffix == ".py" and path.is_file()
    return inside and not any(path.is_relative_to(place) for place in installed)
