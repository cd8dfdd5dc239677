"""Replace all rows of a table in one commit: few rows are written by the driver, many by Spark.

Delta's own overwrite rebuilds the table's state with several Spark jobs before it writes a row, which takes
longer than computing and writing a small result.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headrace.plan.hidden import WEIGHT
from headrace.sources.log import Commit
from headrace.sources.stated import GAINED_ROWS, LOST_ROWS
from headrace.storage.apply.choose import Path as Way
from headrace.storage.apply.driver import write_rows
from headrace.storage.apply.spark import CONFLICTS
from headrace.storage.commit import (
    Draft,
    VersionTaken,
    check_commits_since,
    commit_draft,
    discard,
    storage_busy,
)
from headrace.storage.data_files import conform, removal, visible_rows
from headrace.storage.identity import difference
from headrace.storage.marker import Marker
from headrace.storage.reach import driver_obstacle
from headrace.storage.snapshot import Action, Snapshot, UnreadableLog, read_snapshot
from headrace.storage.table import NotCommitted, Storage

# Rows that are brought to the driver at most; who asks for it must know that they are not large ones.
FEW_ROWS = 100_000

# What is stored is looked at whole, to tell readers below how much changed, up to so much, compressed.
_COMPARED_BYTES = 16 << 20

_TRIES = 5
# What a table of plain types asks of its readers and writers.
_PLAIN_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}


@dataclass(frozen=True)
class Replaced:
    """The commit that has the new rows, and who wrote it and why; none where they are those of before."""

    commit: Commit | None
    path: Way
    reason: str


def replace_rows(
    storage: Storage,
    rows: DataFrame,
    marker: Marker,
    *,
    base: int | None = None,
    spark_only: str = "",
    new_schema: bool = False,
    has_readers: bool = False,
    only_if_other: bool = False,
) -> Replaced:
    """Replace the contents by the rows of a query; `spark_only` says why the driver may not try to hold them.

    An OPTIMIZE after version `base` is waited out; another refresh or a foreign write is an error. Where the
    table `has_readers` below it, the commit says how many rows it really changed, if that is known; with
    `only_if_other` there is no commit where no row would change, so that no reader has anything to do.
    """
    if base is None:
        base = storage.log.newest_version()
    compare = has_readers or only_if_other
    found = spark_only or _by_driver(storage, rows, marker, base, compare, only_if_other)
    if found is None:
        return Replaced(None, Way.NOTHING, "the result is what is stored")
    if isinstance(found, Commit):
        return Replaced(found, Way.REWRITE, f"the result has {found.metric('numOutputRows')} rows")
    commit = _by_spark(storage, rows, marker, base, new_schema=new_schema)
    return Replaced(commit, Way.SPARK_REWRITE, found)


def _by_spark(
    storage: Storage, rows: DataFrame, marker: Marker, base: int | None, *, new_schema: bool
) -> Commit:
    """Let Spark write, again where somebody moved the files meanwhile."""
    for _ in range(_TRIES):
        newest = storage.log.newest_version()
        done = _done_since(storage, marker, base)
        if done is not None:
            return done
        try:
            return storage.overwrite(rows, marker, after=newest, new_schema=new_schema)
        except (NotCommitted, *CONFLICTS):
            continue
    raise storage_busy(storage, _TRIES)


def _done_since(storage: Storage, marker: Marker, base: int | None) -> Commit | None:
    """Find the commit of this very refresh; raise where anybody else's would be lost."""
    return check_commits_since(storage, marker, base) if base is not None else None


def _by_driver(
    storage: Storage, rows: DataFrame, marker: Marker, base: int | None, compare: bool, only_if_other: bool
) -> Commit | str | None:
    """Write the rows here if need be, or say why Spark must: they are many, or the table is beyond us."""
    found: pa.Table | None = None
    for _ in range(_TRIES):
        snapshot = _look(storage, rows.schema)
        if isinstance(snapshot, str):
            return snapshot
        done = _done_since(storage, marker, base)
        if done is not None:
            return done
        if found is None:
            found = rows.limit(FEW_ROWS + 1).toArrow()
            if found.num_rows > FEW_ROWS:
                return f"the result has more than {FEW_ROWS:,} rows"
        plain = conform(found, snapshot.arrow_schema)
        changed = _changed(snapshot, plain) if compare else {}
        if only_if_other and changed and not any(changed.values()):
            return None
        try:
            return _commit(storage, snapshot, plain, marker, changed)
        except VersionTaken:
            continue
    return f"its files were moved {_TRIES} times meanwhile"


def _look(storage: Storage, schema: StructType) -> Snapshot | str:
    """See the table as it is, or as its first commit will make it, or say why the driver may not write."""
    if "://" not in storage.location and not storage.exists():
        # This type is a feature that the protocol would have to name.
        if "timestamp_ntz" in schema.json():
            return "a new table of this type is Delta's to make"
        snapshot = _nothing_yet(storage, schema)
    else:
        try:
            snapshot = read_snapshot(storage.log)
        except UnreadableLog as finding:
            return str(finding)
    stored = StructType.fromJson(json.loads(snapshot.metadata["schemaString"]))
    if _types(stored) != _types(schema):
        return "its columns get other types"
    return driver_obstacle(snapshot) or snapshot


def _changed(snapshot: Snapshot, rows: pa.Table) -> dict[str, int]:
    """Count what the contents gain and lose by being replaced; nothing where that is too much to look at."""
    if snapshot.rows > FEW_ROWS or snapshot.size > _COMPARED_BYTES:
        return {}
    try:
        parts = [visible_rows(snapshot, file) for file in snapshot.files]
    except (OSError, pa.ArrowException):
        # Somebody moved and swept them meanwhile, and the commit will find that out; or one is damaged, and
        # goes now.
        return {}
    weights = difference(rows, pa.concat_tables([snapshot.arrow_schema.empty_table(), *parts]))[WEIGHT]
    net = weights.to_numpy()
    return {GAINED_ROWS: int(net[net > 0].sum()), LOST_ROWS: int(-net[net < 0].sum())}


def _nothing_yet(storage: Storage, schema: StructType) -> Snapshot:
    nullable = StructType.fromJson(json.loads(schema.json()))
    for field in nullable:
        field.nullable = True
    metadata: Action = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": nullable.json(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": int(time.time() * 1000),
    }
    return Snapshot(storage.location, -1, metadata, _PLAIN_PROTOCOL, ())


def _types(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _commit(
    storage: Storage, snapshot: Snapshot, rows: pa.Table, marker: Marker, changed: Mapping[str, int]
) -> Commit:
    Path(snapshot.location, "_delta_log").mkdir(parents=True, exist_ok=True)
    adds = list(write_rows(snapshot, rows))
    draft = Draft(
        operation="WRITE",
        parameters={"mode": "Overwrite"},
        metrics={"numOutputRows": rows.num_rows, "numFiles": len(adds), **changed},
        adds=adds,
        removes=[removal(file.add) for file in snapshot.files],
        metadata=snapshot.metadata if snapshot.version < 0 else None,
        protocol=snapshot.protocol if snapshot.version < 0 else None,
    )
    try:
        return commit_draft(storage, draft, marker, read_version=snapshot.version)
    except BaseException:
        discard(snapshot, draft)
        raise
