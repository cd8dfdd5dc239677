"""Apply a change spread thin over a large table: hide the lost rows by vectors, append the gained ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from headrace.storage.apply.change import TableChange
from headrace.storage.apply.driver import change_files, change_metrics, draft_append, locate
from headrace.storage.commit import Draft
from headrace.storage.data_files import removal, stored_rows
from headrace.storage.identity import Integers
from headrace.storage.snapshot import Action, DataFile, Snapshot
from headrace.storage.vectors import read_vector, write_vectors

_FEATURE = "deletionVectors"
_PROPERTY = "delta.enableDeletionVectors"
# What an old protocol allows without naming it.
_LEGACY_FEATURES = {
    2: ("appendOnly", "invariants"),
    3: ("appendOnly", "invariants", "checkConstraints"),
    4: ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
}


def draft_vectors(snapshot: Snapshot, change: TableChange) -> Draft:
    """Give every touched file a vector, or remove it where nothing of it is left."""
    positions = locate(snapshot, change)
    touched = [file for file in snapshot.files if file.path in positions]
    hidden = {file.path: _hidden(snapshot, file, positions[file.path]) for file in touched}
    counts = {file.path: stored_rows(snapshot.location, file.add) for file in touched}
    partly = {path: rows for path, rows in hidden.items() if len(rows) < counts[path]}
    vectors = write_vectors(snapshot.location, partly) if partly else {}
    adds = [
        _with_vector(file, vectors[file.path], counts[file.path]) for file in touched if file.path in vectors
    ]
    appended = draft_append(snapshot, change).adds if change.gains.num_rows else []
    return Draft(
        operation="MERGE",
        metrics=change_metrics(change) | {"numDeletionVectorsAdded": len(adds)},
        adds=[*adds, *appended],
        removes=[removal(file.add) for file in touched],
        change_files=change_files(snapshot, change),
        metadata=_metadata_with_vectors(snapshot),
        protocol=_protocol_with_vectors(snapshot),
    )


def _hidden(snapshot: Snapshot, file: DataFile, positions: Integers) -> Integers:
    if file.vector is None:
        return positions
    return np.union1d(positions, read_vector(snapshot.location, file.vector))


def _with_vector(file: DataFile, vector: Action, rows: int) -> dict[str, Any]:
    return {**file.add, "dataChange": True, "stats": _loosened(file, rows), "deletionVector": vector}


def _loosened(file: DataFile, rows: int) -> str:
    """Say that bounds may now be wider than the visible rows; decimals among them keep their digits.

    >>> _loosened(DataFile({"path": "a", "stats": '{"numRecords":2,"minValues":{"x":0.10}}'}), 2)
    '{"numRecords":2,"minValues":{"x":0.10},"tightBounds":false}'
    """
    text = str(file.add.get("stats") or "").strip()
    if "numRecords" not in file.stats:
        return json.dumps({"numRecords": rows})
    if "tightBounds" in file.stats:
        return text.replace('"tightBounds":true', '"tightBounds":false')
    return text.removesuffix("}") + ',"tightBounds":false}'


def _metadata_with_vectors(snapshot: Snapshot) -> Action | None:
    if snapshot.configuration.get(_PROPERTY, "").lower() == "true":
        return None
    configuration = {**snapshot.configuration, _PROPERTY: "true"}
    return {key: value for key, value in snapshot.metadata.items() if value is not None} | {
        "configuration": configuration
    }


def _protocol_with_vectors(snapshot: Snapshot) -> Action | None:
    if _FEATURE in snapshot.features:
        return None
    writer = int(snapshot.protocol["minWriterVersion"])
    named = snapshot.protocol.get("writerFeatures") or _LEGACY_FEATURES.get(writer, ())
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted({*(snapshot.protocol.get("readerFeatures") or ()), _FEATURE}),
        "writerFeatures": sorted({*named, _FEATURE}),
    }
