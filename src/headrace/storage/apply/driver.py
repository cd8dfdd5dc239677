"""Apply a small change on the driver: write what changed, and one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from headrace.storage.apply.change import WEIGHT, TableChange, repeat, rows_missing
from headrace.storage.apply.search import Positions, find_rows
from headrace.storage.commit import Draft
from headrace.storage.data_files import (
    conform,
    read_columns,
    removal,
    write_change_file,
    write_data_file,
)
from headrace.storage.identity import Integers
from headrace.storage.layout import rows_per_file
from headrace.storage.snapshot import DataFile, Snapshot
from headrace.storage.vectors import read_vector


def draft_append(snapshot: Snapshot, change: TableChange) -> Draft:
    """Add the gained rows in files of their own."""
    gains = conform(change.gains, snapshot.arrow_schema)
    adds = [write_data_file(snapshot.location, rows) for rows in _portions([gains], snapshot)]
    metrics = {"numOutputRows": gains.num_rows, "numFiles": len(adds)}
    return Draft(operation="WRITE", parameters={"mode": "Append"}, metrics=metrics, adds=adds)


def draft_files(snapshot: Snapshot, change: TableChange) -> Draft:
    """Copy the files that hold lost rows without these, and let the gained rows join them."""
    return _draft_copies(snapshot, change, everything=False)


def draft_rewrite(snapshot: Snapshot, change: TableChange) -> Draft:
    """Write the whole of a small table anew, as few files."""
    return _draft_copies(snapshot, change, everything=True)


def locate(snapshot: Snapshot, change: TableChange) -> Positions:
    """Find every lost row, or raise where one is missing."""
    match = change.key or tuple(snapshot.arrow_schema.names)
    losses = conform_weighted(change.losses, snapshot.arrow_schema)
    found = find_rows(snapshot, losses, match)
    if found.missing:
        raise rows_missing(snapshot.location, found.missing)
    return found.positions


def conform_weighted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring a change into the table's columns and types, its weight kept."""
    return rows.select([*schema.names, WEIGHT]).cast(schema.append(pa.field(WEIGHT, pa.int64())))


def change_metrics(change: TableChange) -> dict[str, int]:
    """Count what a commit gains and loses."""
    lost = int(np.sum(change.losses[WEIGHT].to_numpy()))
    return {"numOutputRows": change.gains.num_rows, "numDeletedRows": lost}


def change_files(snapshot: Snapshot, change: TableChange) -> list[dict[str, object]]:
    """Write the change for readers of the feed, where the table has one."""
    if not snapshot.has_change_feed:
        return []
    parts = []
    for kind, rows in (("delete", repeat(change.losses)), ("insert", change.gains)):
        plain = conform(rows, snapshot.arrow_schema)
        parts.append(plain.append_column("_change_type", pa.array([kind] * plain.num_rows, pa.string())))
    return [write_change_file(snapshot.location, pa.concat_tables(parts))]


def _draft_copies(snapshot: Snapshot, change: TableChange, *, everything: bool) -> Draft:
    positions = locate(snapshot, change)
    touched = [file for file in snapshot.files if everything or file.path in positions]
    gains = conform(change.gains, snapshot.arrow_schema)
    copied = 0
    adds = []

    def survivors() -> Iterator[pa.Table]:
        nonlocal copied
        for file in touched:
            rows = _without(snapshot, file, positions.get(file.path))
            copied += rows.num_rows
            yield rows
        yield gains

    for rows in _portions(survivors(), snapshot):
        adds.append(write_data_file(snapshot.location, rows))
    return Draft(
        operation="MERGE",
        parameters={"path": "rewrite" if everything else "files"},
        metrics=change_metrics(change) | {"numCopiedRows": copied, "numTargetFilesRemoved": len(touched)},
        adds=adds,
        removes=[removal(file.add) for file in touched],
        change_files=change_files(snapshot, change),
    )


def _without(snapshot: Snapshot, file: DataFile, positions: Integers | None) -> pa.Table:
    rows = read_columns(snapshot, file.path, snapshot.arrow_schema.names)
    keep = np.ones(rows.num_rows, dtype=np.bool_)
    if positions is not None:
        keep[positions] = False
    if file.vector is not None:
        keep[read_vector(snapshot.location, file.vector)] = False
    return rows if keep.all() else rows.filter(pa.array(keep))


def _portions(parts: Iterable[pa.Table], snapshot: Snapshot) -> Iterator[pa.Table]:
    """Cut a stream of rows into files of the size that the table should have, holding one at a time."""
    most = rows_per_file(snapshot.rows)
    held: list[pa.Table] = []
    rows = 0
    for part in parts:
        held.append(part)
        rows += part.num_rows
        # A last file of a few rows would be copied again soon: it joins the one before.
        while rows >= 2 * most:
            whole = pa.concat_tables(held)
            yield whole.slice(0, most)
            held, rows = [whole.slice(most)], rows - most
    if rows:
        yield from _halves(pa.concat_tables(held), most)


def _halves(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Cut what is left of a stream into equal files, none above the size."""
    count = max(1, -(-rows.num_rows // most))
    size = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)
