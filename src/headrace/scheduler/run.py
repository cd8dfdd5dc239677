"""Run ticks: look at the catalog, pin every source, set aside what stands still, dispatch the rest."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from headrace.catalog import Action, Catalog, SourceVersion, StreamTable, this_owner
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.refresh.result import RefreshResult
from headrace.refresh.run import Refresher
from headrace.scheduler.clock import Clock
from headrace.scheduler.dispatch import Dispatcher, OnOutcome
from headrace.scheduler.moment import checked_moment
from headrace.scheduler.network import Network, Networks
from headrace.scheduler.overseer import Overseer
from headrace.scheduler.plan import Plan, plan_due, plan_tables
from headrace.scheduler.quiet import REASON, find_quiet
from headrace.scheduler.readers import find_readers
from headrace.scheduler.report import Outcome, TickReport, join_reports
from headrace.scheduler.retry import Retries
from headrace.scheduler.tick import Tick
from headrace.scheduler.workers import Workers
from headrace.sources.search import decoded_columns
from headrace.sql.names import TableName

_log = logging.getLogger("headrace.service")
_PRUNE_SECONDS = 3600.0

OnBegin = Callable[[Tick, Mapping[TableName, float]], None]
"""Told of a tick before its first table starts, and where to see the tables that are under way."""


class Scheduler:
    """Plans and runs the ticks of one connection."""

    def __init__(
        self, spark: SparkSession, catalog: Catalog, refresher: Refresher, settings: Settings
    ) -> None:
        self._catalog = catalog
        self._refresher = refresher
        self.settings = settings
        self.clock = Clock()
        self.networks = Networks(catalog)
        self._overseer = Overseer(catalog)
        self.workers = Workers(spark, settings.max_concurrent_refreshes)
        self._next_prune = -math.inf

    def use(self, settings: Settings) -> None:
        """Take other settings from now on."""
        self.settings = settings
        self.workers.limit = settings.max_concurrent_refreshes

    def dispatcher(self, on_outcome: OnOutcome = lambda _tick, _name, _outcome: None) -> Dispatcher:
        return Dispatcher(self._catalog, self._refresher, self.workers, on_outcome)

    def retries(self) -> Retries:
        return Retries(lambda name, limit: self._catalog.history(name, limit))

    def run_once(
        self, at: datetime | None = None, *, on_begin: OnBegin = lambda _tick, _running: None
    ) -> TickReport:
        """Refresh all that is due at a moment, which is now unless given, and wait for its end."""
        report = self._run_due(at, on_begin)
        try:
            self.forget_old()
        except HeadraceError as error:
            _log.warning("The history was not pruned: %s", error)
        return report

    def forget_old(self) -> None:
        """Prune the history, at most once an hour: it needs a look at all of it."""
        now = time.monotonic()
        if now >= self._next_prune:
            self._catalog.prune_history(older_than=timedelta(days=self.settings.history_retention_days))
            self._next_prune = now + _PRUNE_SECONDS

    def _run_due(self, at: datetime | None, on_begin: OnBegin) -> TickReport:
        now = datetime.now(UTC)
        at = checked_moment(at) if at is not None else now
        network, tables = self.networks.look()
        policy = self.settings.diamond_schedule_policy
        again = self.retries().ready(network, tables, min(at, now))
        plan = plan_due(network, tables, self.clock, at=at, now=now, policy=policy, again=again)
        if plan is None:
            return TickReport(data_timestamp=None)
        report = self.run_plan(network, tables, plan, on_begin=on_begin)
        if not report.ok:
            self._note_late()
        return report

    def _note_late(self) -> None:
        """Alert people to tables that a run left older than their schedules allow."""
        network, tables = self.networks.look()
        self._overseer.look(network, tables, now=datetime.now(UTC), since=datetime.min.replace(tzinfo=UTC))

    def refresh(self, name: TableName, *, full: bool = False) -> RefreshResult:
        """Bring one table and all that it reads to this moment; the table's own failure is raised."""
        network, tables = self.networks.look()
        if name not in tables:
            self._catalog.find(name)
        now = datetime.now(UTC)
        plan = plan_tables(network, tables, [name], moment=now, forced=[name])
        assert plan is not None
        outcome = self.run_plan(network, tables, plan, full=[name] if full else []).outcome_of(name)
        if outcome.error is not None:
            raise outcome.error
        assert outcome.result is not None
        return outcome.result

    def run_plan(
        self,
        network: Network,
        tables: Mapping[TableName, StreamTable],
        plan: Plan,
        *,
        full: Iterable[TableName] = (),
        patience: float = math.inf,
        on_begin: OnBegin = lambda _tick, _running: None,
    ) -> TickReport:
        """Carry one plan to its end, waiting so many seconds for a table that another process keeps."""
        reports = []
        for part in plan.parts:
            with self.begin(network, tables, part, full=full, patience=patience) as tick:
                dispatcher = self.dispatcher()
                on_begin(tick, dispatcher.running)
                dispatcher.run(tick)
                decoded_columns.forget_idle()
                reports.append(tick.report())
        return join_reports(reports)

    @contextmanager
    def begin(
        self,
        network: Network,
        tables: Mapping[TableName, StreamTable],
        plan: Plan,
        *,
        full: Iterable[TableName] = (),
        patience: float = math.inf,
    ) -> Iterator[Tick]:
        """Pin the sources for a tick and settle at once whatever did not change; hold the diamonds' locks."""
        pins = self._pin(network, plan)
        before = {name: tables[name].data_timestamp for name in plan.tables}
        tick = Tick(plan, network, pins, before=before, full=full, patience=patience)
        quiet = find_quiet(network, tables, [name for name in plan.tables if name not in tick.full], pins)
        self._settle_quiet(tick, tables, quiet)
        readers = find_readers(network, tables, tick.open)
        with ExitStack() as held:
            held.enter_context(self._refresher.sources.changes.expecting(readers))
            self._lock_diamonds(tick, held)
            yield tick

    def close(self) -> None:
        self.workers.close()

    def _pin(self, network: Network, plan: Plan) -> dict[str, SourceVersion]:
        """Give every source its version at the moment.

        One that is gone or cannot be read is left to its readers' refreshes: whatever it is, it concerns no
        other table.
        """
        pins = {}
        reads = {one for name in plan.tables for one in network.graph.reads[name]}
        for source in reads - network.graph.reads.keys():
            try:
                pins[str(source)] = self._refresher.sources.find(source).version_at(plan.moment)
            except Exception as error:  # noqa: BLE001 - the readers' own refreshes tell what it is
                _log.debug("%s has no version: %s", source, error)
        return pins

    def _settle_quiet(
        self, tick: Tick, tables: Mapping[TableName, StreamTable], quiet: Mapping[TableName, SourceVersion]
    ) -> None:
        behind = [tables[name] for name in quiet if tick.before[name] != tick.moment]
        moved = self._catalog.note_no_data(behind, tick.moment, reason=REASON) if behind else set()
        for name, pin in quiet.items():
            if name in moved or tick.before[name] == tick.moment:
                tick.finish(name, _no_data(tables[name], tick.moment), pin)

    def _lock_diamonds(self, tick: Tick, locks: ExitStack) -> None:
        """Let one process at a time move a diamond: two that each hold a part would wait for each other."""
        ttl = timedelta(seconds=self.settings.lease_ttl_seconds)
        groups = {tick.network.group_of[name] for name in tick.gates if name in tick.open}
        for group in sorted(groups, key=min):
            key, lock = f"diamond {min(group)}", locks.enter_context(ExitStack())
            if lock.enter_context(self._catalog.lease(key, owner=this_owner(), ttl=ttl)) is None:
                tick.elsewhere |= dict.fromkeys(group & tick.open, key)
            else:
                tick.locks[group] = lock.close


def _no_data(table: StreamTable, moment: datetime) -> Outcome:
    result = RefreshResult(
        stream_table=str(table.name),
        action=Action.NO_DATA,
        reason=REASON,
        data_timestamp=moment,
        frontier=table.frontier or {},
    )
    return Outcome(stream_table=str(table.name), result=result, is_current=True)
