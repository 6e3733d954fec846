"""The folder that a run goes to where none was named: by all that sets it apart from others."""

import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from rosmo.runs.training import Training

_LONGEST = 100  # letters of what bindings add; a checksum stands for the rest
_NAMED = ("environment", "noise", "data_fraction")  # bindings that the name tells in a way of its own


def default_name(
    names: Sequence[str], bindings: Sequence[str], training: Training, seed: int, seeds: int | None = None
) -> str:
    """Returns the name of a run's folder.

    Args:
        names: of the configurations, the agent's first.
        bindings: on top of them.
        training: what they describe.
        seed: of the run, or the first of several.
        seeds: how many it has, where it is of several.
    """
    environment = training.label.replace("/", "-")
    short = re.sub(r"-v\d+$", "", training.label.rpartition("/")[2].lower())  # gymnasium's have versions
    known = {short, environment.lower()}
    agent, *others = (Path(name).stem for name in names)
    parts = [agent, environment, *(other for other in others if other.replace("_", "") not in known)]
    parts += [f"noise{training.noise:g}"] * bool(training.noise)
    parts += [f"data{training.data_fraction:g}"] * (training.data_fraction != 1)
    parts += [_within(",".join(filter(None, map(_short, bindings))))]
    parts += [f"seed{seed}" * bool(seed), f"seeds{seeds}" if seeds else ""]
    return "-".join(filter(None, parts))


def _short(binding: str) -> str:
    setting, _, value = (part.strip() for part in binding.partition("="))
    setting = setting.removeprefix("train.")
    return "" if setting in _NAMED else f"{setting}={_plain(value)}"


def _plain(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text).strip("_")


def _within(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 9]}-{zlib.crc32(text.encode()):08x}"
