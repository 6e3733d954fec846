"""Windows a second from a store of frames on disk, beside decoding a whole episode for each through TFDS.

    ./dev python -m benchmarks.loader [--steps 1000000] [--rounds 3] [--batch 512]

Real frames of three games are recorded once, and written in the layout of RL Unplugged (PNG frames, a record
for each episode) and, over and over until there are enough, as a store. The one is converted to the other
once. Rounds alternate between the ways of reading. Before each, the store's frames are dropped from the page
cache. Memory is that of a process of its own that reads from the store alone.
"""

import argparse
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import PIL.Image
import tensorflow_datasets as tfds
from tensorflow_datasets.rl_unplugged import atari_utils

from rosmo.collect import record
from rosmo.data import FrameStore, StoreSampler, rlds, write_store
from rosmo.data.atari import STACK, single_frames
from rosmo.types import Trajectory

GAMES = ("atari/Pong", "atari/Breakout", "atari/SpaceInvaders")
WINDOW = 11  # five imagined steps, five rewards of a value target, and the last observation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the store, at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each way in each round")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        print(*memory(args.memory_of, args.batch))
        return
    with tempfile.TemporaryDirectory() as directory:
        run(Path(directory), args)


def run(directory: Path, args: argparse.Namespace) -> None:
    episodes = [single_frames(e) for game in GAMES for e in record(game, "random", episodes=2, seed=1)]
    recorded = sum(len(e.action) for e in episodes)
    write_rlds(directory / "rlds", episodes)
    print_conversion(directory / "rlds", directory / "converted")
    repeats = -(-args.steps // recorded)
    write_store(
        directory / "store",
        {"train": (e for _ in range(repeats) for e in episodes)},
        stack=STACK,
        metadata={},
    )
    store = FrameStore(directory / "store")
    size = sum(path.stat().st_size for path in store.path.iterdir())
    decoded = store.info["steps"] * int(np.prod(store.observation_shape[:2]))
    print(f"{recorded:,} recorded steps in {len(episodes)} games, {store.info['steps']:,} in the store")
    print(f"store: {size / 1e6:,.0f} MB on disk, {decoded / 1e9:.2f} GB of frames")

    source = tfds.builder_from_directory(str(directory / "rlds")).as_data_source(split="train")  # pyright: ignore[reportCallIssue]
    ways: dict[str, Callable[[], Iterator[int]]] = {
        "TFDS, episode decoded": lambda: tfds_windows(source, episodes, decode_all=True),
        "TFDS, window decoded": lambda: tfds_windows(source, episodes, decode_all=False),
        "store": lambda: store_windows(store, args.batch),
    }
    rates = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, way in ways.items():
            drop_from_cache(store.path / "frames.zst")
            rates[name].append(rate(way(), args.seconds))
    medians = {name: np.median(values, axis=0) for name, values in rates.items()}
    for name, values in rates.items():
        each = ", ".join(f"{wall:,.1f}" for wall, _ in values)
        wall, cpu = medians[name]
        print(f"{name:22} {wall:>9,.1f} windows/s (rounds: {each}), {cpu:,.1f} per second of CPU time")
    for name in list(ways)[:2]:
        wall, cpu = medians["store"] / medians[name]
        print(f"store against {name}: {wall:,.0f}×, {cpu:,.0f}× by CPU time")
    for batch in (64, args.batch):
        print_memory(store.path, batch)


def print_conversion(source: Path, target: Path) -> None:
    """Frames a second of `rosmo data convert`, which decodes one PNG after the other."""
    start, cpu = time.perf_counter(), time.process_time()
    write_store(target, {"train": map(single_frames, rlds.read_episodes(source))}, stack=STACK, metadata={})
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    frames = FrameStore(target).info["steps"]
    print(f"conversion: {frames / elapsed:,.0f} frames/s, {frames / cpu:,.0f} per second of CPU time")


def print_memory(store: Path, batch: int) -> None:
    command = [sys.executable, "-m", "benchmarks.loader", "--memory-of", str(store), "--batch", str(batch)]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after, size = map(float, child.stdout.split())
    print(
        f"memory: {before:,.0f} MB before the first batch, at most {after:,.0f} MB while reading 100 batches "
        f"of {batch} windows ({size:,.1f} MB): {after - before:,.0f} MB more"
    )


def write_rlds(directory: Path, episodes: list[Trajectory]) -> None:
    """Writes episodes with the features of RL Unplugged, as array_record, which needs no TensorFlow."""
    directory.mkdir()
    identity = tfds.core.DatasetIdentity(
        name="rlu_atari", version=tfds.core.Version("1.3.0"), data_dir=str(directory), module_name=""
    )
    info = tfds.core.DatasetInfo(builder=identity, features=atari_utils.features_dict())
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=100, file_format="array_record")
    writer.initialize_splits(["train"])
    writer.add_examples({"train": [rlds_episode(i, e) for i, e in enumerate(episodes)]})
    writer.close_all()


def rlds_episode(index: int, episode: Trajectory) -> dict:
    fields = ("action", "reward", "discount", "is_first", "is_last", "is_terminal")
    steps = [
        {"observation": png(frame), **{field: getattr(episode, field)[t] for field in fields}}
        for t, frame in enumerate(episode.observation)
    ]
    total = float(episode.reward.sum())
    return {"steps": steps, "checkpoint_id": 0, "episode_id": index, "episode_return": total}


def png(frame: np.ndarray) -> io.BytesIO:
    buffer = io.BytesIO()
    PIL.Image.fromarray(frame).save(buffer, "PNG")
    buffer.seek(0)
    return buffer


def tfds_windows(source, episodes: list[Trajectory], *, decode_all: bool) -> Iterator[int]:
    """Reads a random window at a time: one record, all of its frames decoded or those of the window."""
    rng = np.random.default_rng(0)
    feature = source.dataset_info.features["steps"].feature["observation"]
    skip = {"steps": tfds.decode.SkipDecoding()}
    while True:
        index = int(rng.integers(len(episodes)))
        start = int(rng.integers(len(episodes[index].action) - 1))
        rows = range(max(0, start - STACK + 1), min(start + WINDOW, len(episodes[index].action)))
        if decode_all:
            steps = list(source[index]["steps"])
            frames = [steps[t]["observation"] for t in rows]
        else:
            payload = source.data_source[index]
            steps = source.dataset_info.features.deserialize_example_np(payload, decoders=skip)["steps"]
            frames = [feature.decode_example_np(steps["observation"][t]) for t in rows]
        np.stack(frames)
        yield 1


def store_windows(store: FrameStore, batch: int) -> Iterator[int]:
    sampler = StoreSampler(store, window=WINDOW, num_actions=18)
    keys_of_step = jax.jit(lambda step: jax.random.split(jax.random.fold_in(jax.random.key(0), step), batch))
    for windows in sampler.batches(keys_of_step, 0, 10**9):
        yield len(windows.action)


def rate(windows: Iterator[int], seconds: float) -> tuple[float, float]:
    """Windows a second, and a second of CPU time: a shared machine has few of the latter."""
    next(windows)  # whatever is prepared once
    start, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < seconds:
        count += next(windows)
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    windows.close()  # pyright: ignore[reportAttributeAccessIssue]
    return count / elapsed, count / cpu


def drop_from_cache(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory(store: Path, batch: int) -> tuple[float, float, float]:
    """Megabytes before the first batch, at most during a hundred, and of one batch."""
    opened = FrameStore(store)
    sampler = StoreSampler(opened, window=WINDOW, num_actions=18)
    keys = jax.random.split(jax.random.key(0), batch)
    jax.block_until_ready(sampler._draw(keys))
    before, size = resident("VmRSS"), 0.0
    drop_from_cache(store / "frames.zst")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    split = jax.jit(lambda step: jax.random.split(jax.random.fold_in(jax.random.key(0), step), batch))
    for windows in sampler.batches(split, 0, 100):
        size = sum(x.nbytes for x in jax.tree.leaves(windows)) / 1e6
    return before, resident("VmHWM"), size


def resident(name: str) -> float:
    """Megabytes of this process, now or at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
