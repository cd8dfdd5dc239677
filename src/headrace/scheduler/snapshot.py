"""Several tables at one data timestamp: every one in the version whose contents are of that moment.

That the versions belong together is not taken from the data timestamps on trust: the frontiers in the
tables' own commits are compared with the versions of what they read at the moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice

from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import Frontier, SourceVersion, StreamTable
from headrace.errors import HeadraceError
from headrace.refresh.definition import Definitions
from headrace.scheduler.attempt import pin_at
from headrace.scheduler.network import Network
from headrace.sources.delta import DeltaSource
from headrace.sources.registry import Sources
from headrace.sql.names import TableName, parse_name
from headrace.storage.marker import Marker, read_marker
from headrace.storage.table import Storage

# How far back a common moment is searched for.
_VERSIONS = 50
_MOMENTS = 200


class Snapshot:
    """Reads tables as of one data timestamp; made by `hr.snapshot`."""

    def __init__(
        self, spark: SparkSession, definitions: Definitions, finder: Finder, moment: datetime
    ) -> None:
        self._spark = spark
        self._definitions = definitions
        self._finder = finder
        self.data_timestamp = moment

    def table(self, name: str) -> DataFrame:
        """Give a stream table or a source as it was at the moment."""
        found = parse_name(name, self._spark.catalog.currentDatabase())
        return self._spark.sql(f"SELECT * FROM {found.sql} {self._clause(found)}")

    def sql(self, query: str) -> DataFrame:
        """Run a query with every table in it as it was at the moment."""
        analysis = self._definitions.analyze(query, self._spark.catalog.currentDatabase())
        return self._spark.sql(analysis.pinned(self._clause))

    def version(self, name: str) -> int:
        """Give the Delta version of a table at the moment."""
        return self._version(parse_name(name, self._spark.catalog.currentDatabase()))

    def _clause(self, name: TableName) -> str:
        return f"VERSION AS OF {self._version(name)}"

    def _version(self, name: TableName) -> int:
        self._finder.require([name], self.data_timestamp)
        return self._finder.pin(name, self.data_timestamp).version

    def __repr__(self) -> str:
        return f"Snapshot({self.data_timestamp.isoformat()})"


class Finder:
    """Tells which versions of which tables are of a moment."""

    def __init__(self, network: Network, tables: Mapping[TableName, StreamTable], sources: Sources) -> None:
        self._network = network
        self._tables = tables
        self._sources = sources
        self._pins: dict[tuple[TableName, datetime], SourceVersion] = {}

    def require(self, names: Iterable[TableName], moment: datetime) -> None:
        """Raise unless all of these, and what they read, are of one moment."""
        names = list(names)
        obstacle = self.obstacle(names, moment)
        if obstacle is not None:
            known = next(self._moments_of(names), None)
            raise HeadraceError(
                "no_snapshot",
                f"There are no contents of {moment.isoformat()}: {obstacle}.",
                hint=f"The newest common moment is {known.isoformat()}."
                if known
                else "hr.run_once() or hr.refresh_stream_table(…, upstream=True) makes a common moment.",
            )

    def newest(self, names: Iterable[TableName]) -> datetime:
        """Give the newest moment of which all of these tables have contents."""
        names = list(names)
        found = next(self._moments_of(names), None)
        if found is None:
            raise HeadraceError(
                "no_snapshot",
                f"{', '.join(map(str, names))} have no contents of one common moment.",
                hint="hr.run_once() or hr.refresh_stream_table(…, upstream=True) makes one.",
            )
        return found

    def pin(self, name: TableName, moment: datetime) -> SourceVersion:
        """Give a table's version at a moment."""
        key = name, moment
        if key not in self._pins:
            table = self._tables.get(name)
            self._pins[key] = pin_at(table, moment) if table is not None else self._of_source(name, moment)
        return self._pins[key]

    def _of_source(self, name: TableName, moment: datetime) -> SourceVersion:
        """Give the version that was read for this very moment, or else the last one of an earlier time.

        A busy writer's commit may show up, with an earlier time on it, after a tick has looked.
        """
        for reader in self._network.graph.readers.get(name, ()):
            read = self._frontier_of(self._tables[reader], moment).get(str(name))
            if read is not None:
                return read
        return self._sources.find(name).version_at(moment)

    def _frontier_of(self, table: StreamTable, moment: datetime) -> Frontier:
        """Give the frontier of contents that are of this very moment; nothing where there are none."""
        if table.data_timestamp == moment:
            return table.frontier or {}
        marker = self._marker(table, moment)
        return marker.frontier if marker is not None and marker.data_timestamp == moment else {}

    def obstacle(self, names: Iterable[TableName], moment: datetime) -> str | None:
        """Say which table is not of a moment and why; None when all are, at any depth."""
        wanted = {name for name in names if name in self._tables}
        for name in self._network.in_order(wanted | self._network.graph.upstream_of(wanted)):
            table = self._tables[name]
            marker = self._marker(table, moment)
            if marker is None:
                return f"{name} had none then"
            # What changed nothing in the result made no version: then the catalog knows of it alone.
            is_newest = self.pin(name, moment).version == table.storage_version
            known = [marker.frontier, *([table.frontier] if is_newest and table.frontier else [])]
            for source in self._network.graph.reads[name]:
                if all(self._differs(source, one.get(str(source)), moment) for one in known):
                    return f"{name} was not refreshed with what {source} held then"
        return None

    def _differs(self, source: TableName, read: SourceVersion | None, moment: datetime) -> bool:
        """Tell whether a source had other rows at a moment than in the version that was read."""
        now = self.pin(source, moment)
        if read is None or read.table_id != now.table_id:
            return True
        first, last = sorted((read, now), key=lambda at: at.version)
        return self._handle(source).changed(first, last)

    def _handle(self, name: TableName) -> DeltaSource:
        table = self._tables.get(name)
        return DeltaSource(name, table.location) if table is not None else self._sources.find(name)

    def _marker(self, table: StreamTable, moment: datetime) -> Marker | None:
        """Read the note of the version that was current at a moment from the commit that made it."""
        log = Storage(table.location, table.id).log
        for version in range(self.pin(table.name, moment).version, -1, -1):
            commit = log.commit(version)
            marker = read_marker(commit) if commit is not None else None
            if marker is not None or commit is None:
                return marker
        return None

    def _moments_of(self, names: Iterable[TableName]) -> Iterator[datetime]:
        """Yield the moments of which all of these have contents, the newest first."""
        wanted = {name for name in names if name in self._tables}
        moments: set[datetime] = set()
        for name in wanted | self._network.graph.upstream_of(wanted):
            moments |= self._own_moments(self._tables[name])
        candidates = islice(sorted(moments, reverse=True), _MOMENTS)
        return (moment for moment in candidates if self.obstacle(wanted, moment) is None)

    def _own_moments(self, table: StreamTable) -> set[datetime]:
        log = Storage(table.location, table.id).log
        newest = log.newest_version()
        found = {table.data_timestamp} if table.data_timestamp is not None else set()
        for version in range(newest if newest is not None else -1, -1, -1)[:_VERSIONS]:
            commit = log.commit(version)
            marker = read_marker(commit) if commit is not None else None
            if marker is not None:
                found.add(marker.data_timestamp)
        return found
