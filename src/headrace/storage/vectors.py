"""Deletion vectors: the positions of a file's rows that readers must not see, as Delta stores them.

A vector is an array of 32-bit roaring bitmaps. Positions are kept here as sorted numpy integers.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.storage.identity import Integers

_MAGIC = 1681511377
_FORMAT_VERSION = b"\x01"
_PLAIN_COOKIE = 12346
_RUNS_COOKIE = 12347
_LARGEST_ARRAY = 4096
_OFFSETS_WITH_RUNS = 4

# Delta writes binary as Z85; Python's alphabet for the same arithmetic is another.
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_CHARACTERS = 20


def read_vector(location: str, vector: Mapping[str, Any]) -> Integers:
    """Read the hidden positions of a file from wherever its vector is kept."""
    text = str(vector["pathOrInlineDv"])
    if vector["storageType"] == "i":
        return decode_vector(_from_z85(text)[: int(vector["sizeInBytes"])])
    with Path(location, vector_path(vector)).open("rb") as file:
        file.seek(int(vector.get("offset") or 0))
        (size,) = struct.unpack(">i", file.read(4))
        return decode_vector(file.read(size))


def vector_path(vector: Mapping[str, Any]) -> str:
    """Name a vector's file, relative to the table where it lies in it; one inside the log has none."""
    text = str(vector["pathOrInlineDv"])
    match vector["storageType"]:
        case "p":
            return text
        case "u":
            folder, name = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
            file = f"deletion_vector_{uuid.UUID(bytes=_from_z85(name))}.bin"
            return f"{folder}/{file}" if folder else file
    return ""


def write_vectors(location: str, positions: Mapping[str, Integers]) -> dict[str, dict[str, Any]]:
    """Write one file with a vector per data file, and describe each for the log."""
    name = uuid.uuid4()
    described: dict[str, dict[str, Any]] = {}
    with (Path(location) / f"deletion_vector_{name}.bin").open("xb") as file:
        file.write(_FORMAT_VERSION)
        for path, hidden in positions.items():
            data = encode_vector(hidden)
            described[path] = {
                "storageType": "u",
                "pathOrInlineDv": _to_z85(name.bytes),
                "offset": file.tell(),
                "sizeInBytes": len(data),
                "cardinality": len(hidden),
            }
            file.write(struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    return described


def encode_vector(positions: Integers) -> bytes:
    """Serialise sorted positions.

    >>> decode_vector(encode_vector(np.array([0, 7, 70_000, 2**33]))).tolist()
    [0, 7, 70000, 8589934592]
    """
    highs, starts = np.unique(positions >> 32, return_index=True)
    parts = [struct.pack("<iq", _MAGIC, len(highs))]
    for high, group in zip(highs, np.split(positions, starts[1:]), strict=True):
        parts += [struct.pack("<I", int(high)), _encode_bitmap(group & 0xFFFFFFFF)]
    return b"".join(parts)


def decode_vector(data: bytes) -> Integers:
    """Read serialised positions back."""
    magic, count = struct.unpack_from("<iq", data)
    if magic != _MAGIC:
        raise ValueError(f"a deletion vector begins with {magic}")
    parts: list[Integers] = []
    place = 12
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, place)
        found, place = _decode_bitmap(data, place + 4)
        parts.append(found + (high << 32))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _encode_bitmap(values: Integers) -> bytes:
    keys, starts = np.unique(values >> 16, return_index=True)
    groups = np.split(values & 0xFFFF, starts[1:])
    bodies = [_encode_container(group) for group in groups]
    offset = 8 + len(keys) * 8
    headers, offsets = [], []
    for key, group, body in zip(keys, groups, bodies, strict=True):
        headers.append(struct.pack("<HH", int(key), len(group) - 1))
        offsets.append(struct.pack("<I", offset))
        offset += len(body)
    return b"".join([struct.pack("<II", _PLAIN_COOKIE, len(keys)), *headers, *offsets, *bodies])


def _encode_container(values: Integers) -> bytes:
    if len(values) <= _LARGEST_ARRAY:
        return values.astype("<u2").tobytes()
    bits = np.zeros(65536, dtype=np.uint8)
    bits[values] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _decode_bitmap(data: bytes, place: int) -> tuple[Integers, int]:
    (cookie,) = struct.unpack_from("<I", data, place)
    if cookie == _PLAIN_COOKIE:
        (size,) = struct.unpack_from("<I", data, place + 4)
        place, runs, with_offsets = place + 8, np.zeros(size, dtype=np.uint8), True
    elif cookie & 0xFFFF == _RUNS_COOKIE:
        size = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, (size + 7) // 8, place + 4)
        runs = np.unpackbits(flags, bitorder="little")[:size]
        place, with_offsets = place + 4 + len(flags), size >= _OFFSETS_WITH_RUNS
    else:
        raise ValueError(f"a roaring bitmap begins with {cookie}")
    headers = np.frombuffer(data, "<u2", 2 * size, place).reshape(size, 2).astype(np.int64)
    place += 4 * size + (4 * size if with_offsets else 0)
    parts: list[Integers] = []
    for (key, cardinality), is_runs in zip(headers, runs, strict=True):
        values, place = _decode_container(data, place, int(cardinality) + 1, is_runs=bool(is_runs))
        parts.append(values + (int(key) << 16))
    return (np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)), place


def _decode_container(data: bytes, place: int, cardinality: int, *, is_runs: bool) -> tuple[Integers, int]:
    if is_runs:
        (count,) = struct.unpack_from("<H", data, place)
        pairs = np.frombuffer(data, "<u2", 2 * count, place + 2).reshape(count, 2)
        return np.concatenate(list(_runs(pairs))), place + 2 + 4 * count
    if cardinality <= _LARGEST_ARRAY:
        return np.frombuffer(data, "<u2", cardinality, place).astype(np.int64), place + 2 * cardinality
    bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, place), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64), place + 8192


def _runs(pairs: np.ndarray[Any, Any]) -> Iterator[Integers]:
    for start, more in pairs.tolist():
        yield np.arange(start, start + more + 1, dtype=np.int64)


def _to_z85(data: bytes) -> str:
    return base64.b85encode(data).translate(bytes.maketrans(_B85, _Z85)).decode()


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _B85)))
