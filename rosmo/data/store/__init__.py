"""Frames of a large data set in one directory, every frame once, for windows to be read at random.

    store.json     what is there: numbers of steps and episodes, the frames' shape, where the data is from,
                   and the checksums of the tables
    frames.zst     all frames in order, compressed sixteen at a time
    offsets.bin    where each of those chunks begins, and where the last ends (int64)
    steps.bin      what else a step holds, a record for each
    episodes.bin   the step that each episode begins with (int64)

Episodes lie one after the other, those of a split together. Frames of Atari games take about a hundredth of
their size this way, and are decompressed at over a hundred thousand a second on one core.
"""

from rosmo.data.store.base import ANY_ACTION, import_zstandard, is_store
from rosmo.data.store.reading import FrameStore
from rosmo.data.store.writing import write_store

__all__ = ["ANY_ACTION", "FrameStore", "import_zstandard", "is_store", "write_store"]
