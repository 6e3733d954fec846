"""The framing of TFRecord files, without TensorFlow.

A record is its length (uint64), a checksum of that, the payload, and a checksum of the payload, all little
endian. The checksums are CRC32C, rotated and shifted so that a checksum of checksums stays useful.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


class Writer:
    """Writes records to a new file."""

    def __init__(self, path: str | Path):
        self._file = open(path, "xb")  # noqa: SIM115 (its owner closes it)

    def write(self, payload: bytes) -> None:
        length = _LENGTH.pack(len(payload))
        self._file.write(length + _checksum(length) + payload + _checksum(payload))

    def close(self) -> None:
        self._file.close()


def records(path: str | Path) -> Iterator[bytes]:
    """Reads the records of a file in order; a damaged one raises a ValueError that says where."""
    with open(path, "rb") as file:
        while header := file.read(_LENGTH.size):
            at = file.tell() - len(header)
            _verify(header, file, path, at)
            payload = file.read(_LENGTH.unpack(header)[0])
            _verify(payload, file, path, at)
            yield payload


def _verify(data: bytes, file: BinaryIO, path: str | Path, at: int) -> None:
    # A file that stops early fails here too: what was read of it does not have its checksum.
    if file.read(_CHECKSUM.size) != _checksum(data):
        raise ValueError(f"{path} is cut short or damaged in the record at byte {at}: restore or rewrite it")


def _checksum(data: bytes) -> bytes:
    try:
        import google_crc32c
    except ImportError as error:
        raise ImportError('TFRecord files need google-crc32c: pip install "rosmo[run]"') from error
    crc = google_crc32c.value(data)
    rotated = (crc >> 15) | (crc << 17)
    return _CHECKSUM.pack((rotated + 0xA282EAD8) & 0xFFFFFFFF)
