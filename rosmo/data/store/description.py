"""What a store says of itself, in `store.json`."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rosmo.data.store.base import INFO, READABLE, VERSION, is_store

_NUMBERS = ("chunk", "steps", "episodes", "num_actions", "bytes", "stack")


def read_info(directory: Path) -> dict[str, Any]:
    """Reads the description of a store, and refuses one that is damaged, changed, or of another version."""
    if not is_store(directory):
        raise ValueError(
            f"{directory} is no store of frames (it has no {INFO}): make one by rosmo data convert"
        )
    try:
        info = dict(json.loads((directory / INFO).read_text()))
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise ValueError(f"{directory / INFO} is damaged ({error}): convert the data again") from error
    if info.get("version") not in READABLE:
        raise ValueError(
            f"the store {directory} has version {info.get('version')}, and this library reads "
            f"{' and '.join(map(str, READABLE))}: convert the data again"
        )
    keys = (
        *_NUMBERS,
        *(["checksum"] if info["version"] == VERSION else []),
        "frame",
        "crc32",
        "tables",
        "splits",
        "metadata",
    )
    if missing := [key for key in keys if key not in info]:
        raise ValueError(f"{directory / INFO} has no {', '.join(missing)}: convert the data again")
    if wrong := _wrong_values(info):
        raise ValueError(f"{directory / INFO} is damaged ({', '.join(wrong)}): convert the data again")
    if "checksum" in info and info["checksum"] != checksum_of(info):
        raise ValueError(
            f"{directory / INFO} is not as it was written (it does not have its checksum): restore it, or "
            "convert the data again"
        )
    return info


def checksum_of(info: Mapping[str, Any]) -> str:
    """Returns the checksum of all that a description says, but for the checksum itself."""
    rest = {key: value for key, value in info.items() if key != "checksum"}
    return f"{zlib.crc32(json.dumps(rest, sort_keys=True).encode()):08x}"


def _wrong_values(info: Mapping[str, Any]) -> list[str]:
    """The keys whose values cannot be those of a store."""

    def whole(*numbers: Any, least: int = 1) -> bool:
        return all(type(number) is int and number >= least for number in numbers)

    wrong = [key for key in _NUMBERS if not whole(info[key])]
    wrong += [key for key in ("tables", "splits", "metadata") if not isinstance(info[key], dict)]
    if not (isinstance(info["frame"], list) and len(info["frame"]) == 2 and whole(*info["frame"])):
        wrong.append("frame")
    if not wrong:
        counts = info["splits"].values()
        wrong += [] if whole(*counts, least=0) and sum(counts) == info["episodes"] else ["splits"]
    return wrong
