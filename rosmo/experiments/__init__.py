"""Experiments as data: a grid of methods, environments, settings and seeds for each table or figure."""

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rosmo.experiments import check

_HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    method: str
    environment: str
    setting: str
    seed: int
    configs: tuple[str, ...]
    bindings: tuple[str, ...]

    @property
    def label(self) -> str:
        """What it is a run of."""
        return ", ".join(filter(None, (self.method, self.environment, self.setting)))

    @property
    def folder(self) -> Path:
        """Where the run goes, below the experiment's folder."""
        name = "-".join(filter(None, map(_slug, (self.method, self.environment, self.setting))))
        return Path(name) / f"seed{self.seed}"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

    Args:
        name: what it is called.
        about: what it shows.
        axis: what the settings vary.
        seeds: runs of each combination.
        bindings: gin bindings of all runs.
        methods: each with its `configs` and `bindings`, like those that follow.
        environments: what the methods are trained on.
        settings: what varies; a single one without a name where nothing does.
        paper: `[mean, standard deviation]` by environment, setting and method.
        paper_note: what the paper's figures are of.
        figure: "curves", "bars" or "lines".
    """

    name: str
    about: str
    methods: Mapping[str, Mapping[str, Any]]
    environments: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=lambda: {"": {}})
    axis: str = ""
    seeds: int = 5
    bindings: Sequence[str] = ()
    paper: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    paper_note: str = ""
    figure: str = "bars"

    def __post_init__(self):
        folders: dict[Path, Cell] = {}
        for cell in self.cells():
            if (other := folders.setdefault(cell.folder, cell)) is not cell:
                raise ValueError(
                    f"{other.label!r} and {cell.label!r} would share the folder {cell.folder}: give them "
                    "names that differ in letters or digits"
                )

    def cells(self) -> Iterator[Cell]:
        """Yields every run, all of the first seed before those of the second."""
        grid = itertools.product(range(self.seeds), self.methods, self.environments, self.settings)
        for seed, method, environment, setting in grid:
            parts = (self.methods[method], self.environments[environment], self.settings[setting])
            configs = tuple(config for part in parts for config in part.get("configs", ()))
            # The other way round: what a method says of its own length holds.
            bindings = tuple(binding for part in reversed(parts) for binding in part.get("bindings", ()))
            yield Cell(method, environment, setting, seed, configs, (*self.bindings, *bindings))


def names() -> list[str]:
    """Returns the experiments that come with the library."""
    return sorted(path.stem for path in _HERE.glob("*.toml"))


def load(name: str) -> Experiment:
    """Reads an experiment by its packaged name, or from a file of one's own."""
    for path in (_HERE / f"{name}.toml", Path(name)):
        if path.is_file():
            break
    else:
        raise FileNotFoundError(f"there is no experiment {name!r}; there are: {', '.join(names())}")
    if path.resolve().parent != _HERE.resolve() and path.stem in names():
        raise ValueError(f"{path} has the name of a packaged experiment, and would share its runs: rename it")
    try:
        table = tomllib.loads(path.read_text())
        check.experiment(table, _KEYS)
        for part in itertools.chain(*(table.get(group, {}).values() for group in check.GROUPS)):
            part["configs"] = [_from_anywhere(config, path.parent) for config in part.get("configs", ())]
        return Experiment(name=path.stem, **table)
    except ValueError as error:
        raise ValueError(f"{path} is no experiment: {error}") from error


_KEYS = [field.name for field in dataclasses.fields(Experiment) if field.name != "name"]


def _from_anywhere(config: str, folder: Path) -> str:
    """Has a configuration that lies beside an experiment's file found from any folder."""
    return str((folder / config).resolve()) if (folder / config).is_file() else config


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "_", text).strip("_").lower()
