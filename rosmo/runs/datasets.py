"""The data of a training run: what is on disk, or else what is collected once and kept."""

import contextlib
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rosmo import envs
from rosmo.collect import Collected, collect, policies, record, recordings, settings_of
from rosmo.collect.recordings import Recording
from rosmo.data import DataSet, FrameStore, rlds
from rosmo.data.atari import as_recorded
from rosmo.data.opening import MINARI, is_file, open_data
from rosmo.data.store import is_store
from rosmo.runs.progress import show
from rosmo.types import Trajectory


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
    anew: bool = False,
) -> None:
    """Trains an online agent and writes the episodes of its training to `directory`, with a display.

    Where the library comes with a recording of just that, it is played again, unless it is to be made `anew`.
    """
    rlds.refuse_existing(directory, overwrite)  # before the work, not after it
    how = {"file_format": file_format, "overwrite": overwrite}
    usual = not (anew or noise or seed or episodes)
    if usual and (recording := recordings.shipped(environment)):
        episodes_played, about = _played_again(environment, recording), json.loads(recording.about)
    else:
        collected = _trained(environment, noise=noise, seed=seed, episodes=episodes)
        episodes_played, about = collected.episodes, collected.settings
    metadata = {k: v if isinstance(v, str | int | float) else json.dumps(v) for k, v in about.items()}
    name = _data_set_name(environment, "online")
    rlds.write(directory, episodes_played, name=name, metadata=metadata, **how)


def _trained(environment: str, *, episodes: int | None, **how: Any) -> Collected:
    settings, done_before = settings_of(environment, episodes), 0
    progress = None

    def on_episode(done: int, total: int, episode_return: float) -> None:
        nonlocal progress, done_before
        progress = progress or show(total, f"collecting {environment}", unit=settings.unit)
        progress.advance(done - done_before, f"return {episode_return:.1f}")
        done_before = done

    try:
        return collect(
            environment, settings=settings, keep=_layout(environment), on_episode=on_episode, **how
        )
    finally:
        if progress is not None:
            progress.close()


def _played_again(environment: str, recording: Recording) -> Iterator[Trajectory]:
    progress = show(len(recording.seeds), f"playing {environment} again", unit="episodes")
    try:
        for episode in recording.play(environment):
            progress.advance(1)
            yield episode
    finally:
        progress.close()


def record_to(
    directory: Path,
    environment: str,
    policy: str,
    *,
    episodes: int,
    noise: float = 0.0,
    seed: int = 0,
    file_format: rlds.FileFormat = "array_record",
    overwrite: bool = False,
) -> None:
    """Plays a policy and writes its episodes as they come; those of Atari in the layout of RL Unplugged."""
    policies.get(policy)
    if episodes < 1:
        raise ValueError(f"there must be at least one episode to record, got {episodes}")
    rlds.refuse_existing(directory, overwrite)
    layout = _layout(environment)
    progress = show(episodes, f"recording {environment}", unit="episodes")

    def played() -> Iterator[Trajectory]:
        for episode in record(environment, policy, episodes=episodes, noise=noise, seed=seed):
            progress.advance(1, f"return {episode.reward.sum():.1f}")
            yield layout(episode)

    name = _data_set_name(environment, policy)
    about = {"environment": environment, "policy": policy, "noise": noise, "seed": seed}
    try:
        rlds.write(
            directory, played(), name=name, metadata=about, file_format=file_format, overwrite=overwrite
        )
    finally:
        progress.close()


def _data_set_name(environment: str, policy: str) -> str:
    """The name that TFDS has for a data set: letters, digits and _ alone."""
    return re.sub(r"\W", "_", f"{environment}_{policy}")


def _layout(environment: str) -> Callable[[Trajectory], Trajectory]:
    """Returns what makes a recorded episode one of a data set."""
    return as_recorded if envs.is_atari(environment) else lambda episode: episode


def load_or_collect(
    environment: str | None,
    *,
    data: str | None,
    root: Path,
    noise: float = 0.0,
    seed: int = 0,
    fraction: float = 1.0,
) -> DataSet:
    """Reads the data set at `data`, or the environment's own under `root`, which is collected if missing.

    `data` is what `rosmo.data.opening.open_data` opens; without an environment there must be some.
    """
    if data and (environment is None or data.startswith(MINARI) or is_file(data)):
        return open_data(data, fraction=fraction, seed=seed)
    if environment is None:
        raise ValueError(
            "without an environment there is nothing to collect data in: name a data set by data"
        )
    directory = Path(data) if data else default_directory(root, environment, noise=noise, seed=seed)
    if is_store(directory):
        store = FrameStore(directory, fraction=fraction, seed=seed)
        _refuse_other(environment, store.environment, directory / "store.json")
        return store
    if data is None and not (directory.exists() and any(directory.iterdir())):
        _refuse_atari(environment, directory)
        with contextlib.suppress(FileExistsError):  # another run was first: its data is as good as ours
            collect_to(directory, environment, noise=noise, seed=seed)
    _refuse_frames(environment, directory)
    recorded = rlds.read_metadata(directory).get("environment")
    _refuse_other(environment, recorded, directory / "metadata.json")
    return rlds.read(directory, fraction=fraction, seed=seed)


def _refuse_atari(environment: str, directory: Path) -> None:
    """Atari's data is downloaded or asked for: what to record it with is not for us to guess."""
    if envs.is_atari(environment):
        raise FileNotFoundError(
            f"there is no data of {environment} in {directory}: convert a data set to there by rosmo data "
            "convert, or name one by -p \"data = 'PATH'\""
        )


def _refuse_frames(environment: str, directory: Path) -> None:
    """Refuses data that is to be converted first, before all of it is decoded."""
    shape = rlds.observation_shape(directory)
    if shape[-1:] == (1,) and envs.is_atari(environment):
        raise ValueError(
            f"{directory} has single frames, {list(shape)}, and agents of {environment} see stacks of them: "
            f"convert first, by rosmo data convert {directory} TARGET, and train with -p \"data = 'TARGET'\""
        )


def _refuse_other(environment: str, recorded: str | None, description: Path) -> None:
    """Refuses data of another environment, which may well have observations of the same shape."""
    if recorded not in (None, environment):
        raise ValueError(
            f"{description.parent} has data of {recorded!r}, and the environment is {environment!r}: train "
            f"on data of its own, or write this again where what {description.name} says is wrong"
        )


def checksum(steps: DataSet) -> str:
    """Returns a short text that another data set would not have."""
    if isinstance(steps, FrameStore):
        return steps.checksum
    total = 0
    for array in jax.tree.leaves(steps):
        total = zlib.crc32(np.asarray(array).tobytes(), total)
    return f"{int(steps.is_last.sum())} episodes, {len(steps.action)} steps, crc32 {total:08x}"
