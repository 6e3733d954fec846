"""What is said of a file of a run that cannot be read, or of a disk that it cannot be written to."""

import contextlib
import csv
import errno
from collections.abc import Iterator
from pathlib import Path

BEGIN_AGAIN = "move the run's folder away, and begin it again"
SCORE_AGAIN = "delete it, and the run is scored again when it goes on"


@contextlib.contextmanager
def readable(path: Path, advice: str) -> Iterator[None]:
    """Says of a damaged file which one it is and what to do."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, csv.Error) as error:
        raise ValueError(f"{path} is damaged ({error}): {advice}") from error
    except IsADirectoryError as error:
        raise ValueError(f"{path} is damaged (it is a directory): {advice}") from error


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# As the writers of checkpoints, which are not Python's, put it.
_FULL_IN_WORDS = ("No space left on device", "Disk quota exceeded", "File too large", "ENOSPC")


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or what it arose from, is that of a disk without room."""
    while error is not None:
        if getattr(error, "errno", None) in _FULL or any(words in str(error) for words in _FULL_IN_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def first_line(error: BaseException) -> str:
    """Returns what an error says, short enough to stand inside of a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
