"""Apply a small change on the driver: write what changed, and one commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from itertools import repeat as repeat_forever

import numpy as np
import pyarrow as pa

from headrace.sources.driver import each
from headrace.storage.apply.change import WEIGHT, TableChange, repeat, rows_missing
from headrace.storage.apply.search import Positions, find_rows
from headrace.storage.commit import Draft
from headrace.storage.data_files import (
    conform,
    removal,
    visible_rows,
    write_change_file,
    write_data_file,
)
from headrace.storage.layout import rows_per_file
from headrace.storage.snapshot import Action, DataFile, Snapshot


def draft_append(snapshot: Snapshot, change: TableChange) -> Draft:
    """Add the gained rows in files of their own."""
    gains = conform(change.gains, snapshot.arrow_schema)
    adds = list(write_rows(snapshot, gains))
    metrics = {"numOutputRows": gains.num_rows, "numFiles": len(adds)}
    return Draft(operation="WRITE", parameters={"mode": "Append"}, metrics=metrics, adds=adds)


def draft_files(snapshot: Snapshot, change: TableChange) -> Draft:
    """Copy the files that hold lost rows without these, and let the gained rows join the smallest copy."""
    positions = locate(snapshot, change)
    touched = sorted((file for file in snapshot.files if file.path in positions), key=lambda file: file.size)
    gains = conform(change.gains, snapshot.arrow_schema)
    joining = chain([gains], repeat_forever(gains.slice(0, 0)))

    def copy(pair: tuple[DataFile, pa.Table]) -> tuple[int, list[Action]]:
        file, gained = pair
        kept = visible_rows(snapshot, file, hide=positions[file.path])
        return kept.num_rows, list(write_rows(snapshot, pa.concat_tables([kept, gained])))

    # As many files are held at once as there are cores, however many are touched.
    pairs = list(zip(touched, joining, strict=False))
    copies = each(pairs, copy, at_once=os.cpu_count() or 2)
    adds = [add for _, parts in copies for add in parts]
    if not touched:
        adds += write_rows(snapshot, gains)
    return _draft_copies(snapshot, change, touched, adds, sum(count for count, _ in copies))


def draft_rewrite(snapshot: Snapshot, change: TableChange) -> Draft:
    """Write the whole of a small table anew, as few files."""
    positions = locate(snapshot, change)
    kept = [visible_rows(snapshot, file, hide=positions.get(file.path)) for file in snapshot.files]
    whole = pa.concat_tables([*kept, conform(change.gains, snapshot.arrow_schema)])
    copied = sum(rows.num_rows for rows in kept)
    return _draft_copies(snapshot, change, snapshot.files, list(write_rows(snapshot, whole)), copied)


def locate(snapshot: Snapshot, change: TableChange) -> Positions:
    """Find every lost row, or raise where one is missing."""
    if change.located is not None and change.located.version == snapshot.version:
        return change.located.positions
    match = change.key or tuple(snapshot.arrow_schema.names)
    losses = conform_weighted(change.losses, snapshot.arrow_schema)
    # A stream table has what its query had, so that a row which the query lost is among its rows.
    found = find_rows(snapshot, losses, match, stored=True)
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


def _draft_copies(
    snapshot: Snapshot, change: TableChange, touched: Sequence[DataFile], adds: Sequence[Action], copied: int
) -> Draft:
    return Draft(
        operation="MERGE",
        metrics=change_metrics(change) | {"numCopiedRows": copied, "numTargetFilesRemoved": len(touched)},
        adds=adds,
        removes=[removal(file.add) for file in touched],
        change_files=change_files(snapshot, change),
    )


def write_rows(snapshot: Snapshot, rows: pa.Table) -> Iterator[Action]:
    """Write rows as equal files, none larger than a file of the table should be."""
    count = max(1, -(-rows.num_rows // rows_per_file(max(snapshot.rows, rows.num_rows))))
    size = max(1, -(-rows.num_rows // count))
    for start in range(0, rows.num_rows, size):
        yield write_data_file(snapshot.location, rows.slice(start, size))
