"""Writes that return when every IMMEDIATE table below their target reflects them, or are undone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pyspark.sql import SparkSession

from headrace.api.signature import signed_commits
from headrace.api.undo import Since, commits_since, undo_write
from headrace.api.views import see_through
from headrace.catalog import Catalog, Lease, SourceVersion, Status, StreamTable, this_owner
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.refresh.failure import root_cause
from headrace.runtime.relations import local_path
from headrace.scheduler.behind import failed_above, find_behind, newest_version
from headrace.scheduler.network import Network
from headrace.scheduler.plan import plan_tables
from headrace.scheduler.report import TickReport
from headrace.scheduler.run import Scheduler
from headrace.sources.registry import Sources
from headrace.sql.names import TableName
from headrace.sql.statements import TargetWrite

T = TypeVar("T")
# Statements that change rows; those that only define or move something wake nobody.
_CHANGES_ROWS = frozenset(
    {
        *("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "COPY", "LOAD", "RESTORE"),
        *("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", "CREATE OR REPLACE TABLE", "REPLACE TABLE"),
        "EXECUTE IMMEDIATE",
    }
)
_WAIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.05


class ImmediateWrites:
    """Makes writes through one connection carry their IMMEDIATE readers with them."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        settings: Settings,
        scheduler: Scheduler,
        sources: Sources,
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._ttl = timedelta(seconds=settings.lease_ttl_seconds)
        self._scheduler = scheduler
        self._sources = sources

    def run(
        self,
        writes: Iterable[TargetWrite],
        qualify: Callable[[tuple[str, ...]], TableName],
        write: Callable[[], T],
        *,
        session: SparkSession | None = None,
    ) -> T:
        """Carry out a write; where IMMEDIATE tables depend on its targets, they follow before it returns.

        `session` is the one that commits, where it is not the connection's own.
        """
        wanted = [one for one in writes if not _CHANGES_ROWS.isdisjoint((one.verb, one.verb.split()[0]))]
        if not wanted:
            return write()
        network, _ = self._scheduler.networks.look()
        targets = self._targets(network, wanted, qualify)
        if not targets:
            return write()
        with ExitStack() as locks:
            for target in targets:
                self._lock(locks, target)
            return self._write_and_follow(targets, wanted[0].verb, write, session or self._spark)

    def _targets(
        self,
        network: Network,
        writes: Iterable[TargetWrite],
        qualify: Callable[[tuple[str, ...]], TableName],
    ) -> list[TableName]:
        """Name the tables that may be written to and that an IMMEDIATE table reads at any depth."""
        followed = {
            source
            for name in network.immediate | network.graph.upstream_of(network.immediate)
            for source in network.graph.reads[name]
        } - network.graph.reads.keys()
        written = [see_through(self._spark, write) for write in writes] if followed else []
        return sorted(
            name for name in followed if any(self._aims_at(write, name, qualify) for write in written)
        )

    def _aims_at(
        self, write: TargetWrite, name: TableName, qualify: Callable[[tuple[str, ...]], TableName]
    ) -> bool:
        if write.kind != "table":
            # Only Spark can know: each of them may be meant.
            return write.kind in ("dynamic", "statement")
        if write.path is not None:
            return local_path(write.path).rstrip("/") == self._location(name)
        return len(write.name) <= 3 and qualify(write.name) == name

    def _location(self, name: TableName) -> str | None:
        try:
            return self._sources.find(name).location.rstrip("/")
        except HeadraceError:  # It is gone, so that no path is its own.
            return None

    def _lock(self, locks: ExitStack, target: TableName) -> None:
        """Let one write at a time through to a table, since a failed one is undone to the version before."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while locks.enter_context(self._lease(target)) is None:
            if time.monotonic() > deadline:
                raise HeadraceError(
                    "write_busy",
                    f"Another write to {target} has not ended for {_WAIT_SECONDS:.0f} seconds.",
                    hint="Nothing was written. Try again when it has ended.",
                )
            time.sleep(_PAUSE_SECONDS)

    def _lease(self, target: TableName) -> AbstractContextManager[Lease | None]:
        return self._catalog.lease(f"write {target}", owner=this_owner(), ttl=self._ttl)

    def _write_and_follow(
        self, targets: Sequence[TableName], verb: str, write: Callable[[], T], session: SparkSession
    ) -> T:
        before = {name: self._newest(name) for name in targets}
        error: Exception | None = None
        with signed_commits(session) as signature:
            try:
                result = write()
            except Exception as failed:  # noqa: BLE001 - raised when what it wrote is settled
                error = failed
        # A script may have written before it failed, and one table of several may have been reached.
        self._settle(before, verb, signature, error)
        if error is not None:
            raise error
        return result

    def _settle(
        self,
        before: Mapping[TableName, SourceVersion | None],
        verb: str,
        signature: str,
        error: Exception | None,
    ) -> None:
        """Let the IMMEDIATE tables follow what was written, or undo what the statement wrote and say why."""
        since = {name: self._since(name, at, signature) for name, at in before.items()}
        moved = {name: self._newest(name) for name, found in since.items() if found != Since()}
        failure = self._follow(moved) if moved else None
        # What others wrote meanwhile is theirs to answer for, and the service's to follow.
        own = [name for name in moved if (found := since[name]) is None or found.own]
        if failure is None or not own:
            return
        undone = [undo_write(self._spark, self._sources, name, before[name], signature) for name in own]
        self._follow({name: self._newest(name) for name in moved})
        kept = [one for one in undone if one is not None]
        raise _refused(verb, own, failure, kept, error) from error

    def _since(self, name: TableName, before: SourceVersion | None, signature: str) -> Since | None:
        """Tell what happened to a table; nothing, where there was none and is none."""
        try:
            return commits_since(self._sources, name, before, signature)
        except HeadraceError:
            return Since() if before is None else None

    def _follow(
        self, written: Mapping[TableName, SourceVersion | None]
    ) -> tuple[TableName, HeadraceError] | None:
        """Refresh until every IMMEDIATE reader reflects these versions; give the one that failed."""
        deadline = math.inf
        while True:
            network, tables = self._scheduler.networks.look()
            behind = self._behind(network, tables, written)
            if not behind:
                return None
            if time.monotonic() > deadline:
                return min(behind), _not_in_time()
            wanted = behind | failed_above(network, tables, behind)
            plan = plan_tables(network, tables, wanted, moment=self._moment(written))
            if plan is None or not plan.tables:
                # What stands between is suspended, and with it the promise to follow at once.
                return None
            report = self._scheduler.run_plan(network, tables, plan, patience=_WAIT_SECONDS)
            failed = _failure(report, behind, network)
            if failed is not None:
                return failed
            # The first refresh may take as long as it needs; only what still lags after it waits no longer.
            deadline = min(deadline, time.monotonic() + _WAIT_SECONDS)
            if not report.ok:
                time.sleep(_PAUSE_SECONDS)

    def _behind(
        self,
        network: Network,
        tables: Mapping[TableName, StreamTable],
        written: Mapping[TableName, SourceVersion | None],
    ) -> set[TableName]:
        """Name the IMMEDIATE readers, at any depth, whose way up does not reflect the written versions."""
        below = network.graph.downstream_of(written) & network.immediate
        behind = find_behind(network, tables, written)
        return {name for name in below & behind if tables[name].status is not Status.SUSPENDED}

    def _moment(self, written: Mapping[TableName, SourceVersion | None]) -> datetime:
        """Give a moment that is not before the writes, though their writer's clock may be ahead of ours."""
        commits = [
            self._sources.find(name).log.commit(at.version) for name, at in written.items() if at is not None
        ]
        return max([datetime.now(UTC), *(one.timestamp for one in commits if one is not None)])

    def _newest(self, name: TableName) -> SourceVersion | None:
        return newest_version(self._sources, name)


def _failure(
    report: TickReport, behind: set[TableName], network: Network
) -> tuple[TableName, HeadraceError] | None:
    concerned = behind | network.graph.upstream_of(behind)
    for name in network.in_order(concerned):
        for outcome in report.failed:
            if outcome.stream_table == str(name) and outcome.error is not None:
                return name, outcome.error
    return None


def _not_in_time() -> HeadraceError:
    late = f"It did not reflect the write {_WAIT_SECONDS:g} seconds after its first refresh."
    return HeadraceError("refresh_failed", late)


def _refused(
    verb: str,
    targets: list[TableName],
    failure: tuple[TableName, HeadraceError],
    kept: list[str],
    error: Exception | None,
) -> HeadraceError:
    written = ", ".join(map(str, sorted(targets)))
    name, cause = failure
    also = f" The statement itself had failed: {_said(error)}." if error else ""
    if kept:
        return HeadraceError(
            "immediate_refresh_failed",
            f"{verb} on {written} was done, but {name}, which shall follow at once, failed: {cause.message} "
            f"Undoing the write failed: {'; '.join(kept)}.{also}",
            hint=f"Correct the data or {name}, then REFRESH STREAM TABLE {name}.",
        )
    return HeadraceError(
        "immediate_refresh_failed",
        f"{verb} on {written} was undone, because {name}, which follows at once, failed: "
        f"{cause.message}{also}",
        hint=f"Correct the data, or give {name} another REFRESH MODE, and write again.",
    )


def _said(error: Exception) -> str:
    return (error.message if isinstance(error, HeadraceError) else root_cause(error)).rstrip(".")
