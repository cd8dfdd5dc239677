"""What may be read and written without Delta: tables whose every feature is known here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.storage.snapshot import Snapshot

# Features that ask nothing of a writer but what ours does: statistics for every file, vectors kept, no column
# mapped, computed or checked.
_KNOWN_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "clustering",
        "deletionVectors",
        "domainMetadata",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
# From version 3 on, a protocol without named features may check, compute or map columns.
_LAST_PLAIN_WRITER = 2
_NAMED_FEATURES_WRITER = 7

_EXACT_TYPES = frozenset(
    {
        "string",
        "long",
        "integer",
        "short",
        "byte",
        "float",
        "double",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    }
)


# Features that show in the list of files, if at all.
_READABLE_FEATURES = frozenset({"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})


def reading_obstacle(snapshot: Snapshot) -> str:
    """Say why the files of a table are not its rows, or nothing where they are."""
    if snapshot.configuration.get("delta.columnMapping.mode", "none") != "none":
        return "its columns are mapped"
    if snapshot.metadata.get("partitionColumns"):
        return "it is partitioned"
    unknown = sorted(set(snapshot.protocol.get("readerFeatures") or []) - _READABLE_FEATURES)
    if unknown:
        return f"it has the table feature {unknown[0]}"
    if any(file.vector for file in snapshot.files):
        return "some of its rows are hidden"
    fields = (obstacle for field in snapshot.fields for obstacle in _type_obstacles(field))
    return next(fields, "") or next(_odd_places(snapshot), "") or next(_hidden_places(snapshot), "")


def driver_obstacle(snapshot: Snapshot) -> str:
    """Say why the driver cannot write to a table, or nothing where it can."""
    return next(_obstacles(snapshot), "")


def _obstacles(snapshot: Snapshot) -> Iterator[str]:
    yield from _protocol_obstacles(snapshot)
    configuration = snapshot.configuration
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        yield "its columns are mapped"
    if configuration.get("delta.appendOnly", "").lower() == "true":
        yield "it only takes appends"
    if any(key.startswith("delta.constraints.") for key in configuration):
        yield "it has check constraints"
    if snapshot.metadata.get("partitionColumns"):
        yield "it is partitioned"
    for field in snapshot.fields:
        yield from _field_obstacles(field)
    yield from _odd_places(snapshot)


def _odd_places(snapshot: Snapshot) -> Iterator[str]:
    if any("%" in file.path or ":" in file.path or file.path.startswith("/") for file in snapshot.files):
        yield "some of its files lie elsewhere"


def _hidden_places(snapshot: Snapshot) -> Iterator[str]:
    if any(_is_hidden(file.path) for file in snapshot.files):
        yield "some of its files have names that Spark does not list"


def _is_hidden(path: str) -> bool:
    """Tell whether Spark's own listing leaves a file out, which Delta reads.

    >>> _is_hidden("part-0.parquet"), _is_hidden("_0.parquet"), _is_hidden("x/.old/part-0.parquet")
    (False, True, True)
    """
    return path.endswith("._COPYING_") or any(name.startswith(("_", ".")) for name in path.split("/"))


def _protocol_obstacles(snapshot: Snapshot) -> Iterator[str]:
    unknown = sorted(snapshot.features - _KNOWN_FEATURES)
    if unknown:
        yield f"it has the table feature {unknown[0]}"
    writer = int(snapshot.protocol["minWriterVersion"])
    if _LAST_PLAIN_WRITER < writer < _NAMED_FEATURES_WRITER and not _only_has_change_feed(snapshot):
        yield f"its protocol is writer version {writer}"


def _only_has_change_feed(snapshot: Snapshot) -> bool:
    """Version 4 is what Delta gives a table for its change feed; whatever else it allows shows elsewhere."""
    return int(snapshot.protocol["minWriterVersion"]) <= 4 and snapshot.has_change_feed


def _field_obstacles(field: Mapping[str, Any]) -> Iterator[str]:
    name = field["name"]
    if not field.get("nullable", True):
        yield f"its column {name} is NOT NULL"
    yield from _type_obstacles(field)


def _type_obstacles(field: Mapping[str, Any]) -> Iterator[str]:
    name = field["name"]
    extra = sorted(set(field.get("metadata") or {}) - {"comment"})
    if extra:
        yield f"its column {name} carries {extra[0]}"
    odd = next(_odd_types(field["type"]), "")
    if odd:
        yield f"its column {name} has the type {odd}"


def _odd_types(type_: Any) -> Iterator[str]:
    """Yield types that Arrow does not carry exactly.

    >>> list(_odd_types({"type": "array", "elementType": "variant", "containsNull": True}))
    ['variant']
    """
    if isinstance(type_, str):
        if type_ not in _EXACT_TYPES and not type_.startswith("decimal("):
            yield type_
        return
    match type_["type"]:
        case "struct":
            for field in type_["fields"]:
                yield from _field_obstacles(field)
        case "array":
            yield from _odd_types(type_["elementType"])
        case "map":
            yield from _odd_types(type_["keyType"])
            yield from _odd_types(type_["valueType"])
