"""Which tables new versions of sources wake, whatever their schedules say, and until when."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from headrace.catalog import Status, StreamTable
from headrace.errors import HeadraceError
from headrace.scheduler.behind import failed_above, find_behind, newest_version
from headrace.scheduler.network import Network
from headrace.scheduler.watch import Watch
from headrace.sources.registry import Sources
from headrace.sql.names import TableName

# How soon it is checked that a table reflects what woke it, and how soon it is tried again after a failure.
_CHECK_SECONDS = 1.0
_RETRY_SECONDS = 15.0
_MOST_DOUBLINGS = 5
# After these errors a source that can be found is news in itself.
_NOT_THERE = ("[source_missing]", "[unknown_table]", "[unsupported_source]")


class Wakes:
    """Wakes IMMEDIATE tables for every write, and tables in ERROR when what they read has moved.

    An IMMEDIATE table stays woken until it reflects its sources, since a refresh may be skipped or fail.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._watch = Watch(sources)
        self._network: Network | None = None
        self._tables: Mapping[TableName, StreamTable] = {}
        self._tried: Mapping[TableName, datetime] = {}
        self._due: dict[TableName, float] = {}

    @property
    def is_watching(self) -> bool:
        return self._watch.is_watching

    def follow(
        self,
        network: Network,
        tables: Mapping[TableName, StreamTable],
        tried: Mapping[TableName, datetime],
    ) -> None:
        """Take in how things stand; `tried` are the moments for which tables were planned last."""
        resumed = {name for name in _suspended(self._tables) - _suspended(tables) if name in tables}
        self._wake((resumed | network.graph.downstream_of(resumed)) & network.immediate)
        concerned = network.immediate | _in_error(tables)
        concerned |= network.graph.upstream_of(concerned)
        sources = {one for name in concerned for one in network.graph.reads[name]} - tables.keys()
        self._watch.follow(sources, anew=network is not self._network)
        self._network, self._tables, self._tried = network, tables, tried

    def notice(self) -> bool:
        """Look at the logs of sources; tell whether a table is to be refreshed."""
        moved, first = self._watch.changed()
        if self._network is not None and (moved or first):
            below = self._network.graph.downstream_of(moved | first)
            self._wake(below & self._network.immediate)
            self._wake_failed(moved, first)
        now = time.monotonic()
        return any(at <= now for at in self._due.values())

    def take(
        self, network: Network, tables: Mapping[TableName, StreamTable], busy: Collection[TableName]
    ) -> set[TableName]:
        """Give what is to be refreshed now; IMMEDIATE tables stay woken until they are seen to follow."""
        self._due = {name: at for name, at in self._due.items() if name in tables}
        now, held = time.monotonic(), {*busy, *network.graph.downstream_of(busy)}
        ready = {name for name, at in self._due.items() if at <= now and name not in held}
        followed = ready & network.immediate
        behind = self._behind(network, tables, followed)
        for name in ready:
            del self._due[name]
        for name in behind:
            above = failed_above(network, tables, {name})
            self._due[name] = now + max(_pause(tables[one]) for one in {name, *above})
        return (ready - followed) | behind | failed_above(network, tables, behind)

    def _wake(self, names: Iterable[TableName]) -> None:
        self._due |= dict.fromkeys(names, 0.0)

    def _wake_failed(self, moved: set[TableName], first: set[TableName]) -> None:
        """Wake tables in ERROR whose sources moved, and the readers that missed a tick for them."""
        assert self._network is not None
        graph = self._network.graph
        failed = _in_error(self._tables)
        woken = graph.downstream_of(moved) & failed
        for source in first:
            below = graph.downstream_of([source]) & failed
            woken |= {name for name in below if self._is_news(source, self._tables[name])}
        self._wake(woken)
        self._wake(name for name in graph.downstream_of(woken) if self._has_missed(self._tables[name]))

    def _is_news(self, source: TableName, table: StreamTable) -> bool:
        """Tell whether a source that was not watched before may have moved since a table failed."""
        if any(code in (table.last_error or "") for code in _NOT_THERE):
            return True
        try:
            at = newest_version(self._sources, source)
            commit = self._sources.find(source).log.commit(at.version) if at is not None else None
        except HeadraceError:
            return False
        failed = table.last_refresh_at
        return commit is not None and failed is not None and commit.timestamp > failed

    def _has_missed(self, table: StreamTable) -> bool:
        tried = self._tried.get(table.name)
        return tried is not None and (table.data_timestamp is None or table.data_timestamp < tried)

    def _behind(
        self, network: Network, tables: Mapping[TableName, StreamTable], names: set[TableName]
    ) -> set[TableName]:
        """Name those of some tables that do not reflect what their sources hold, but for what is suspended.

        A suspension, of a table or above it, is a person's wish; its end wakes the table again.
        """
        suspended = _suspended(tables)
        names = names - suspended - network.graph.downstream_of(suspended)
        concerned = names | network.graph.upstream_of(names)
        sources = {one for name in concerned for one in network.graph.reads[name]} - tables.keys()
        newest = {name: newest_version(self._sources, name) for name in sources}
        return names & (find_behind(network, tables, newest) | _in_error(tables))


def _pause(table: StreamTable) -> float:
    if table.last_error is None:
        return _CHECK_SECONDS
    return _RETRY_SECONDS * float(1 << min(table.consecutive_errors, _MOST_DOUBLINGS))


def _suspended(tables: Mapping[TableName, StreamTable]) -> set[TableName]:
    return {name for name, table in tables.items() if table.status is Status.SUSPENDED}


def _in_error(tables: Mapping[TableName, StreamTable]) -> set[TableName]:
    return {name for name, table in tables.items() if table.status is Status.ERROR}
