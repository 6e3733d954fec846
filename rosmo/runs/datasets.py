"""The data of a training run: what is on disk, or else what is collected once and kept."""

import json
import zlib
from pathlib import Path

import jax
import numpy as np

from rosmo.collect import collect
from rosmo.data import minari, rlds
from rosmo.runs.progress import show
from rosmo.types import Trajectory

_MINARI = "minari:"


def default_directory(root: Path, environment: str, *, noise: float, seed: int) -> Path:
    """Returns where the collected data of an environment is kept."""
    return root / f"{environment}-noise{noise:g}-seed{seed}"


def collect_to(
    directory: Path,
    environment: str,
    *,
    noise: float = 0.0,
    seed: int = 0,
    episodes: int | None = None,
    file_format: rlds.FileFormat = "array_record",
    overwrite: bool = False,
) -> None:
    """Trains an online agent and writes every episode of its training to `directory`, with a display."""
    rlds.refuse_existing(directory, overwrite)  # before the work, not after it
    progress = None

    def on_episode(done: int, total: int, episode_return: float) -> None:
        nonlocal progress
        progress = progress or show(total, f"collecting {environment}", unit="episodes")
        progress.advance(1, f"return {episode_return:.1f}")

    try:
        collected = collect(environment, noise=noise, seed=seed, episodes=episodes, on_episode=on_episode)
    finally:
        if progress is not None:
            progress.close()
    metadata = {
        k: v if isinstance(v, str | int | float) else json.dumps(v) for k, v in collected.settings.items()
    }
    how = {"file_format": file_format, "overwrite": overwrite}
    name = f"{environment.replace('/', '_')}_dqn"
    rlds.write(directory, collected.episodes, name=name, metadata=metadata, **how)


def load_or_collect(
    environment: str,
    *,
    data: str | None,
    root: Path,
    noise: float = 0.0,
    seed: int = 0,
    fraction: float = 1.0,
) -> Trajectory:
    """Reads the data set at `data`, or the environment's own under `root`, which is collected if missing.

    `data` is an RLDS directory, or `minari:ID` for a local Minari data set.
    """
    if data and data.startswith(_MINARI):
        return minari.read(data.removeprefix(_MINARI), fraction=fraction, seed=seed)
    directory = Path(data) if data else default_directory(root, environment, noise=noise, seed=seed)
    if data is None and not (directory.exists() and any(directory.iterdir())):
        collect_to(directory, environment, noise=noise, seed=seed)
    return rlds.read(directory, fraction=fraction, seed=seed)


def checksum(steps: Trajectory) -> str:
    """Returns a short text that another data set would not have."""
    total = 0
    for array in jax.tree.leaves(steps):
        total = zlib.crc32(np.asarray(array).tobytes(), total)
    return f"{int(steps.is_last.sum())} episodes, {len(steps.action)} steps, crc32 {total:08x}"
