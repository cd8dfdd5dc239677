"""Deletion vectors: which rows of a data file are deleted, decoded from Delta's roaring bitmaps."""

from __future__ import annotations

import base64
import struct
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa

from headrace.sources.files import open_file

_PORTABLE = 1681511377
_HAS_RUNS = 12347
_NO_RUNS = 12346
_CONTAINER = 65536
_NO_OFFSET_BELOW = 4
# Delta writes binary in Z85, Python reads the same code with another alphabet.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_ALPHABET = str.maketrans(_Z85, _B85)


@dataclass(frozen=True)
class DeletionVector:
    """Where a deletion vector is stored, and how many rows it deletes."""

    storage: str
    path_or_inline: str
    offset: int | None
    size: int
    cardinality: int

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> DeletionVector | None:
        """Read the descriptor from an add or remove action."""
        found = action.get("deletionVector")
        if not found:
            return None
        return cls(
            found["storageType"],
            found["pathOrInlineDv"],
            found.get("offset"),
            found["sizeInBytes"],
            found["cardinality"],
        )

    def descriptor(self) -> dict[str, Any]:
        """Write the descriptor as an action carries it."""
        found = {
            "storageType": self.storage,
            "pathOrInlineDv": self.path_or_inline,
            "offset": self.offset,
            "sizeInBytes": self.size,
            "cardinality": self.cardinality,
        }
        return {key: value for key, value in found.items() if value is not None}

    def deleted(self, location: str, rows: int) -> pa.Array:
        """Give one boolean per row of the file: true where the row is deleted."""
        bits = bytearray(-(-rows // 8))
        for high, container in _containers(self._read(location)):
            _mark(bits, high * _CONTAINER, container)
        return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bits)])

    def _read(self, location: str) -> bytes:
        if self.storage == "i":
            return z85decode(self.path_or_inline)[: self.size]
        with open_file(location, self.path or "") as stream:
            stream.seek((self.offset or 0) + 4)
            return bytes(stream.read(self.size))

    @property
    def path(self) -> str | None:
        """Name the file that holds the vector; None where the log itself does."""
        if self.storage == "i":
            return None
        if self.storage == "p":
            return self.path_or_inline
        prefix, encoded = self.path_or_inline[:-20], self.path_or_inline[-20:]
        name = f"deletion_vector_{UUID(bytes=z85decode(encoded))}.bin"
        return f"{prefix}/{name}" if prefix else name


def z85decode(text: str) -> bytes:
    """Decode Z85 text.

    >>> z85decode("HelloWorld").hex()
    '864fd26fb559f75b'
    """
    return base64.b85decode(text.translate(_ALPHABET))


def _containers(data: bytes) -> Iterator[tuple[int, bytes | list[range]]]:
    """Yield every container with the high bits of its rows: as a bitmap or as ranges of rows."""
    (magic,) = struct.unpack_from("<i", data, 0)
    if magic != _PORTABLE:
        raise ValueError(f"unknown deletion vector format {magic}")
    (bitmaps,) = struct.unpack_from("<q", data, 4)
    at = 12
    for _ in range(bitmaps):
        (key,) = struct.unpack_from("<I", data, at)
        at += 4
        at = yield from _bitmap(data, at, key << 16)


def _bitmap(data: bytes, at: int, base: int) -> Generator[tuple[int, bytes | list[range]], None, int]:
    """Read one 32-bit roaring bitmap in its portable form, and return where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    runs = b""
    if cookie & 0xFFFF == _HAS_RUNS:
        count = (cookie >> 16) + 1
        runs = data[at : at + -(-count // 8)]
        at += len(runs)
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
    else:
        raise ValueError(f"unknown roaring bitmap cookie {cookie}")
    headers = list(struct.iter_unpack("<HH", data[at : at + 4 * count]))
    at += 4 * count
    if not runs or count >= _NO_OFFSET_BELOW:
        at += 4 * count
    for index, (high, last) in enumerate(headers):
        if runs and runs[index // 8] >> (index % 8) & 1:
            (number,) = struct.unpack_from("<H", data, at)
            pairs = struct.iter_unpack("<HH", data[at + 2 : at + 2 + 4 * number])
            yield base + high, [range(start, start + length + 1) for start, length in pairs]
            at += 2 + 4 * number
        elif last + 1 > 4096:
            yield base + high, data[at : at + 8192]
            at += 8192
        else:
            values = struct.unpack_from(f"<{last + 1}H", data, at)
            yield base + high, [range(value, value + 1) for value in values]
            at += 2 * (last + 1)
    return at


def _mark(bits: bytearray, start: int, container: bytes | list[range]) -> None:
    """Set the bits of one container, which begins at row `start` of the file."""
    first = start // 8
    if isinstance(container, bytes):
        length = max(min(len(container), len(bits) - first), 0)
        bits[first : first + length] = container[:length]
        return
    for rows in container:
        for row in rows:
            bits[first + row // 8] |= 1 << row % 8
