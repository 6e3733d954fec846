"""What someone else's files say of a data set, looked at before TFDS is given them.

TFDS imports the module of every feature that a description names, and takes the names of shards from it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Where TFDS takes classes from. "type" is the key of descriptions before 2022.
_CLASS_KEYS = ("pythonClassName", "python_class_name", "type")
_OWN_CLASS = re.compile(r"tensorflow_datasets\.core\.features\.\w+(\.\w+)*")


def refuse_bad_description(directory: Path) -> None:
    """Refuses descriptions that are damaged, name code of others, or lead out of the directory."""
    about = read_object(directory / "dataset_info.json")
    _refuse_other_classes(about.get("features"), directory / "dataset_info.json")
    _refuse_other_classes(read_object(directory / "features.json"), directory / "features.json")
    read_object(directory / "metadata.json")
    splits = about.get("splits") or []
    places = [("the name of the data set", about.get("name"))]
    for split in splits if isinstance(splits, list) else []:
        if isinstance(split, dict):
            places.append(("the name of a split", split.get("name")))
            places += [
                ("a filepathTemplate", split.get(k)) for k in ("filepathTemplate", "filepath_template")
            ]
    for what, text in places:
        if isinstance(text, str) and (".." in text or "/" in text or "\\" in text):
            raise ValueError(
                f"{directory / 'dataset_info.json'} leads out of its directory ({what} is {text!r}): correct "
                "it to the name of files in the directory, if you trust the data"
            )


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON object, and nothing from a file that is not there."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or write the data again") from error
    if not isinstance(found, dict):
        kind = type(found).__name__
        raise ValueError(f"{path} is damaged (a {kind} and no object): restore it, or write the data again")
    return found


def _refuse_other_classes(features: Any, path: Path) -> None:
    for name in _class_names(features):
        if not _OWN_CLASS.fullmatch(name):
            raise ValueError(
                f"{path} names {name!r} for a feature, which would run code that is not TFDS's own: write "
                "the data with features of tensorflow_datasets.core.features"
            )


def _class_names(features: Any) -> Iterator[str]:
    """Finds the classes in a description, also in texts that are descriptions themselves."""
    waiting = [features]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            try:
                node = json.loads(node)
            except (ValueError, RecursionError):
                continue
        if isinstance(node, dict):
            yield from (node[key] for key in _CLASS_KEYS if isinstance(node.get(key), str))
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
