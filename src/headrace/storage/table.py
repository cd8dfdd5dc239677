"""A stream table's storage: one Delta table with exactly the query's columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession

from headrace.sources.delta import DeltaSource
from headrace.sources.log import Commit, DeltaLog
from headrace.sql.names import TableName, quote
from headrace.storage.layout import rows_per_file, table_properties
from headrace.storage.marker import APP_ID, Marker, read_marker
from headrace.storage.snapshot import UnreadableLog, read_snapshot

# Delta accepts these in a column's name only under column mapping.
_NEEDS_MAPPING = set(" ,;{}()\n\t=")


class NotCommitted(LookupError):  # noqa: N818 - what is looked for, never shown to a user
    """A refresh has made no commit."""


@dataclass(frozen=True)
class Storage:
    """The Delta table behind one stream table, addressed by its place so that a rename changes nothing."""

    location: str
    stream_table: str

    @property
    def log(self) -> DeltaLog:
        return self._source.log

    @cached_property
    def _source(self) -> DeltaSource:
        return DeltaSource(TableName("", self.location), self.location)

    def exists(self) -> bool:
        return self.log.exists()

    def table_id(self) -> str:
        """Tell the identity that Delta gave the table."""
        newest = self.log.newest_version()
        return self._source.table_id(newest) if newest is not None else ""

    def overwrite(
        self, rows: DataFrame, marker: Marker, *, after: int | None = None, new_schema: bool = False
    ) -> Commit:
        """Replace the contents in one commit that carries the frontier; a failure leaves the old ones.

        Nothing is written where another refresh committed after the version `after`, by default the newest.
        """
        writer = rows.write.format("delta").mode("overwrite").option("userMetadata", marker.encode())
        # The next changes copy whole files: see layout.rows_per_file.
        writer = writer.option("maxRecordsPerFile", rows_per_file(self.row_count()))
        if new_schema:
            writer = writer.option("overwriteSchema", "true")
        # Delta leaves out a commit that would replace nothing by nothing, unless it has a transaction.
        newest = self.log.newest_version() if after is None else after
        # It leaves out one whose transaction it has, too: that of a refresh which came in between.
        writer = writer.option("txnAppId", APP_ID).option("txnVersion", 0 if newest is None else newest + 1)
        writer.save(self.location)
        return self.commit_of(marker)

    def commit_of(self, marker: Marker) -> Commit:
        """Find the commit that carries a marker, newest first."""
        version = self.log.newest_version()
        for candidate in range(version if version is not None else -1, -1, -1):
            commit = self.log.commit(candidate)
            if commit is None:
                break
            if read_marker(commit) == marker:
                return commit
        raise NotCommitted(f"no commit of {self.location} carries refresh {marker.refresh}")

    def commits_since(self, version: int) -> Iterator[tuple[Commit | None, Marker | None]]:
        """Yield later commits, each with its marker if it is this stream table's own."""
        newest = self.log.newest_version()
        for commit in self.log.commits(version, newest if newest is not None else version):
            marker = read_marker(commit) if commit else None
            own = marker is not None and marker.stream_table == self.stream_table
            yield commit, marker if own else None

    def row_count(self) -> int:
        """Count the rows from the statistics in the log."""
        try:
            return read_snapshot(self.log).rows
        except UnreadableLog:
            return self._row_count_by_delta_rs()

    def _row_count_by_delta_rs(self) -> int:
        try:
            actions = pa.table(DeltaTable(self.location).get_add_actions(flatten=True))
        except DeltaError:
            return 0
        return int(pc.sum(actions["num_records"]).as_py() or 0)


def create_storage(
    spark: SparkSession,
    name: TableName,
    columns: Sequence[tuple[str, str]],
    *,
    cluster_by: Sequence[str] = (),
    comment: str = "",
    change_feed: bool = False,
) -> None:
    """Create the empty Delta table of a stream table under its name."""
    listed = ", ".join(f"{quote(column)} {type_}" for column, type_ in columns)
    clauses = [f"CREATE TABLE {name.sql} ({listed}) USING delta"]
    if cluster_by:
        clauses.append(f"CLUSTER BY ({', '.join(quote(column) for column in cluster_by)})")
    if comment:
        escaped = comment.replace("\\", "\\\\").replace("'", "\\'")
        clauses.append(f"COMMENT '{escaped}'")
    mapped = any(_NEEDS_MAPPING & set(column) for column, _ in columns)
    properties = table_properties(mapped_columns=mapped, change_feed=change_feed)
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    clauses.append(f"TBLPROPERTIES ({listed})")
    spark.sql(" ".join(clauses))
