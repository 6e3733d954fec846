"""Shows what is in a data set: its episodes, actions and rewards, what is doubtful of it, and a picture."""

import argparse
import warnings
from pathlib import Path

import numpy as np

from rosmo.data import DataSet, FrameStore
from rosmo.data.episodes import checked
from rosmo.data.files import refuse_unwritable
from rosmo.data.opening import MINARI, open_data
from rosmo.data.stacking import stack_frames
from rosmo.data.summary import Summary, summarise
from rosmo.report import draw_dataset

_QUANTILES = {"least": 0.0, "5%": 0.05, "25%": 0.25, "median": 0.5, "75%": 0.75, "95%": 0.95, "most": 1.0}
_SAMPLES = 1_000  # observations of the picture
_MOST_ACTIONS = 20  # that are printed
_FEW_REWARDS = 6  # values of them, likewise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    about = "RLDS directory, store of frames, minari:ID, or a .npz, .hdf5 or .parquet"
    parser.add_argument("source", metavar="PATH", help=about)
    parser.add_argument("--picture", type=Path, help="where it goes (default: NAME-data.png, here)")


def run(args: argparse.Namespace) -> None:
    """Prints a summary and draws it."""
    picture = args.picture or Path(f"{_named(args.source)}-data.png")
    refuse_unwritable(picture)
    data = open_data(args.source)
    summary = summarise(data)
    print(f"{args.source}\n")
    print("\n".join(describe(summary, data)))
    for doubt in (*summary.doubts, *_refused(data)):
        print(f"  ! {doubt}")
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw_dataset(summary, _samples(data), picture, title=args.source.removeprefix(MINARI).rstrip("/"))
    print(f"\npicture: {picture}")


def _named(source: str) -> str:
    """What a data set is called in the name of its picture."""
    if source.startswith(MINARI):
        return source.removeprefix(MINARI).replace("/", "-")
    path = Path(source).expanduser().resolve()
    return path.name if path.is_dir() else path.stem


def describe(summary: Summary, data: DataSet) -> list[str]:
    """Returns the lines of a summary."""
    episodes, steps = len(summary.returns), int(summary.lengths.sum())
    ended, shares = summary.terminations, summary.actions / max(1, summary.actions.sum())
    listed = ", ".join(f"{i}: {share:.1%}" for i, share in enumerate(shares[:_MOST_ACTIONS]))
    values = np.unique(summary.rewards)
    few = ", ".join(f"{v:g}: {np.mean(summary.rewards == v):.1%}" for v in values[:_FEW_REWARDS])
    lines = [
        f"episodes      {episodes:,}, of which {ended:,} terminated ({ended / episodes:.0%}) and "
        f"{episodes - ended:,} were cut off",
        f"transitions   {steps:,}",
        f"observations  {summary.kind}",
        f"actions       {len(shares)}; {listed}{', …' * (len(shares) > _MOST_ACTIONS)}",
        f"rewards       mean {np.mean(summary.rewards):.4g}, "
        + (
            few
            if len(values) <= _FEW_REWARDS
            else f"{len(values):,} values from {values[0]:g} to {values[-1]:g}"
        ),
        f"memory        {_memory(summary, data)}",
        "",
        "              " + "".join(f"{name:>10}" for name in ("mean", *_QUANTILES)),
    ]
    for name, numbers in (("returns", summary.returns), ("lengths", summary.lengths)):
        cells = [np.mean(numbers), *np.quantile(numbers, list(_QUANTILES.values()))]
        lines.append(f"{name:<14}" + "".join(f"{cell:>10.5g}" for cell in cells))
    return [*lines, ""]


def _memory(summary: Summary, data: DataSet) -> str:
    if isinstance(data, FrameStore):
        size = sum(path.stat().st_size for path in data.path.iterdir())
        return f"{_bytes(summary.host_bytes)} in host memory, the frames stay on disk ({_bytes(size)})"
    return f"{_bytes(summary.device_bytes)} on the device, {_bytes(summary.host_bytes)} in host memory"


def _bytes(count: int) -> str:
    return f"{count / 2**30:,.2f} GiB" if count >= 2**30 else f"{count / 2**20:,.2f} MiB"


def _refused(data: DataSet) -> list[str]:
    """What the library's check says of steps in memory; a store was checked when it was opened."""
    if isinstance(data, FrameStore):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rewards on closing steps, which the summary has told
        try:
            checked(data)
        except (TypeError, ValueError) as error:
            return [f"cannot be trained on: {error}"]
    return []


def _samples(data: DataSet) -> np.ndarray:
    """Some observations, from all over the data."""
    if isinstance(data, FrameStore):
        rows = np.unique(np.linspace(0, data.num_starts - 1, 12).astype(np.int64))
        return np.asarray(stack_frames(data.read(rows, 1)).observation)[:, 0]
    rows = np.unique(np.linspace(0, len(data.action) - 1, _SAMPLES).astype(np.int64))
    observations = np.asarray(data.observation)
    few = observations.ndim > 2
    return observations[rows[:: max(1, len(rows) // 12)] if few else rows]
