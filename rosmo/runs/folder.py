"""The folder of a training run: its configuration, metrics, checkpoints, picture and versions."""

import contextlib
import fcntl
import importlib.metadata
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rosmo import __version__
from rosmo.data.files import write_whole
from rosmo.learner.sharding import mesh_shape
from rosmo.runs import imported
from rosmo.runs.damage import BEGIN_AGAIN, SCORE_AGAIN, readable
from rosmo.runs.imported import Imported
from rosmo.runs.metrics import MetricsTable

_PACKAGES = ("rosmo", "jax", "jaxlib", "equinox", "optax", "mctx", "numpy", "gin-config", "bsuite")
_EXTRAS = (
    "minatar",
    "gymnasium",
    "ale-py",
    "opencv-python-headless",
    "opencv-python",
    "zstandard",
    "tensorflow-datasets",
    "distrax",
)

_SETTINGS = {"imports": list, "data_dir": str, "wandb": str | None, "data": str | None}

_SEEDS_END = 2**31  # no run has this seed or a larger one
MOST_SEEDS = 10_000  # of one run

_README = """\
# {name}

A training run, begun with `rosmo train` of rosmo {version}. From within this folder, `rosmo evaluate .`
plays what was trained, and `rosmo train --resume .` goes on with a run that was stopped.

| here | what it is |
|---|---|
{rows}
"""
_SEEDS = {
    "seed0/, seed1/, …": "a run for each of the {seeds} seeds, described in itself",
    "learning_curve.png": "the returns of all seeds over their updates",
}
_FILES = {
    "config.gin": "the configuration that it was begun with, which a new run may be begun from",
    "operative_config.gin": "every setting that took effect, defaults too",
    "settings.json": "how it was started: seed, mesh, and where its data was and what it is recognised by",
    "versions.json": "the versions of Python and of the packages that it ran with",
    "metrics.csv": "a row of losses and returns for each time that it logged them",
    "tensorboard/": "the same for TensorBoard",
    "checkpoints/": "states that it can go on from, the newest of which is played",
    "learning_curve.png": "its returns over its updates",
    "result.json": "once it is finished: the mean returns of its last policy, then those of each episode, by "
    "sampled and by greedy actions",
    f"{imported.FOLDER}/": "modules of its author's own, if it has any: code, which runs with --trust alone",
}


class Result(NamedTuple):
    """What came out of a run: the updates that it took, and what its last evaluation says.

    That is returns by sampled and by greedy actions or, without an environment, what held-out episodes say;
    and the same of the checkpoints that were the best by some criterion on the way.
    """

    step: int
    sampled: list[float]
    greedy: list[float]
    held_out: dict[str, Any] | None = None
    selected: Mapping[str, dict[str, Any]] = MappingProxyType({})


class RunFolder:
    """Paths inside a run folder, and the small files that describe it."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.gin"
        self.operative_config = path / "operative_config.gin"
        self.settings = path / "settings.json"
        self.checkpoints = path / "checkpoints"
        self.weights = path / "model.safetensors"  # in place of checkpoints, where it was given away
        self.curve = path / "learning_curve.png"
        self.result = path / "result.json"
        self.log = path / "log.txt"
        self.lock = path / ".lock"
        self.metrics = MetricsTable(path / "metrics.csv")

    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.settings.exists()

    def finished(self) -> bool:
        """Whether the run took its last update and was scored."""
        return self.result.exists()

    def updates_taken(self) -> int:
        """How many updates are in its table of metrics."""
        rows = self.metrics.rows()
        return int(rows[-1]["step"]) if rows else 0

    def read_result(self) -> Result:
        """Returns what `finish` wrote."""
        with readable(self.result, SCORE_AGAIN):
            found = json.loads(self.result.read_text())
            selected = dict(found.get("selected", {}))
            if "held_out" in found:
                return Result(found["step"], [], [], dict(found["held_out"]), selected)
            result = Result(found["step"], found["sampled"], found["greedy"], selected=selected)
            for returns in (result.sampled, result.greedy):
                if not returns or not all(map(math.isfinite, returns)):
                    raise ValueError("it lacks returns, or has some that are not finite")
            return result

    def finish(self, result: Mapping) -> None:
        """Writes down what came out, means first."""
        result = dict(result)
        if selected := result.get("selected"):
            result["selected"] = {name: _means_first(one) for name, one in selected.items()}
        write_whole(self.result, json.dumps(_means_first(result), indent=2))

    def begin(self, config: str, settings: Mapping, modules: Sequence[Imported] = ()) -> None:
        """Writes down what is about to run, with the modules that it imports."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.config, config)
        write_whole(self.path / "versions.json", json.dumps(versions(), indent=2))
        write_whole(self.path / "README.md", _described(self.path.resolve().name, settings))
        settings = {**settings, "imports": imported.keep(self.path, modules)}
        write_whole(self.settings, json.dumps(settings, indent=2))  # last: its presence means a run

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other processes from training here; the system lets go even if this one is killed."""
        with self.lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BlockingIOError(f"another process is training in {self.path}") from error
            yield

    def refuse_links(self) -> None:
        """Raises a ValueError where a run that goes on would write into a file that a link leads to.

        In somebody else's run, that may be any file of the user's.
        """
        written = (self.lock, self.log, self.metrics.path, self.operative_config, self.curve, self.result)
        for path in written:
            if path.is_symlink():
                raise ValueError(
                    f"{path} is a symbolic link, and the run would write into what it leads to: remove it"
                )

    def read_settings(self) -> dict:
        """Returns what `begin` was given."""
        if not self.exists():
            raise FileNotFoundError(f"{self.path} is no run: it has no {self.settings.name}")
        with readable(self.settings, BEGIN_AGAIN):
            settings = json.loads(self.settings.read_text())
            _refuse_malformed(settings)
            return settings | {"imports": imported.read(settings["imports"])}

    def read_config(self) -> str:
        """Returns the configuration that `begin` was given."""
        if not self.config.exists():
            raise FileNotFoundError(
                f"{self.path} has no {self.config.name} and is no whole run: {BEGIN_AGAIN}"
            )
        with readable(self.config, BEGIN_AGAIN):
            if not (text := self.config.read_text()).strip():
                raise ValueError("it is empty")
            return text

    def refuse_gone(self) -> None:
        """Raises a FileNotFoundError once the folder of a run under way was deleted or moved."""
        if not self.exists():
            raise FileNotFoundError(
                f"{self.path} was deleted or moved while the run trained: what it had saved went with it; "
                "begin the run again, or go on with it in its new place by --resume"
            )


def seed_folders(folder: RunFolder) -> list[RunFolder]:
    """Returns the folders of a run's seeds: several below it, or the folder itself."""
    count = folder.read_settings().get("seeds")
    return [seed_folder(folder.path, seed) for seed in range(count)] if count else [folder]


def seed_folder(path: Path, seed: int) -> RunFolder:
    """Returns the folder of one seed of several."""
    return RunFolder(path / f"seed{seed}")


def _described(name: str, settings: Mapping) -> str:
    """Says what is in the folder of a run."""
    files = _SEEDS if "seeds" in settings else _FILES
    rows = "\n".join(f"| `{file}` | {about.format(**settings)} |" for file, about in files.items())
    return _README.format(name=name, version=__version__, rows=rows)


def _means_first(result: Mapping[str, Any]) -> dict[str, Any]:
    """Puts the means of the returns before them."""
    returns = {name: each for name, each in result.items() if isinstance(each, list) and each}
    return {"mean": {name: math.fsum(each) / len(each) for name, each in returns.items()}} | dict(result)


def versions() -> dict[str, str]:
    """Returns the versions of Python and, as far as they are installed, of what a result hangs on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES + _EXTRAS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _refuse_malformed(settings: Any) -> None:
    """Raises a ValueError with what is wrong with the settings of a run, or of several seeds of one."""
    if not isinstance(settings, dict):
        raise ValueError("it holds no settings")
    kinds = _SETTINGS | ({"seeds": int} if "seeds" in settings else {"seed": int})
    if missing := [name for name in kinds if name not in settings]:
        raise ValueError(f"it has no {', '.join(map(repr, missing))}")
    for name, kind in (kinds | ({"mesh": str} if "mesh" in settings else {})).items():
        value = settings[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{name} cannot be {value!r}")
    if not 1 <= settings.get("seeds", 1) <= MOST_SEEDS or not 0 <= settings.get("seed", 0) < _SEEDS_END:
        raise ValueError("it has a number of seeds, or a seed, that none can be")
    mesh_shape(settings.get("mesh", "data=1"))
