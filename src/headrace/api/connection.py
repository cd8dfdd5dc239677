"""The connection: every stream-table statement as a call, and `sql` for all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar

from pyspark.sql import DataFrame, SparkSession

from headrace.api.define import Definer, Definition
from headrace.api.explain import Explanation, explain_checked, explain_table
from headrace.api.frames import CatalogFrames
from headrace.api.immediate import ImmediateWrites
from headrace.catalog import Alert, Catalog, Status, StreamTable
from headrace.config import Settings
from headrace.errors import HeadraceError, Position
from headrace.observe.outlets import LogOutlet, Webhook
from headrace.refresh.intent import RefreshPlan
from headrace.refresh.recover import recover_all
from headrace.refresh.result import RefreshResult
from headrace.refresh.run import Refresher
from headrace.refresh.verify import Verification, verify
from headrace.runtime.lake import Lake
from headrace.scheduler.dispatch import OnOutcome
from headrace.scheduler.moment import checked_past
from headrace.scheduler.report import TickReport
from headrace.scheduler.run import OnBegin, Scheduler
from headrace.scheduler.service import Service
from headrace.scheduler.snapshot import Finder, Snapshot
from headrace.sources.search import decoded_columns
from headrace.sql.names import TableName, parse_name
from headrace.sql.statements import TargetWrite

log = logging.getLogger("headrace")
T = TypeVar("T")


class Headrace:
    """Stream tables on one Spark session and one catalog; made by `headrace.connect`."""

    def __init__(self, spark: SparkSession, catalog: Catalog, settings: Settings, lake: Lake | None) -> None:
        self.spark = spark
        self.settings = settings
        self._catalog = catalog
        self._lake = lake
        self._refresher = Refresher(spark, catalog, settings)
        self._definer = Definer(spark, catalog, settings, self._refresher)
        self._scheduler = Scheduler(spark, catalog, self._refresher, settings)
        self._immediate = ImmediateWrites(spark, catalog, settings, self._scheduler, self._refresher.sources)
        self._frames = CatalogFrames(spark, catalog)
        self._closed = False
        self._webhook = Webhook(settings.alert_webhook) if settings.alert_webhook else None
        catalog.on_alert(LogOutlet(logging.INFO))
        if self._webhook is not None:
            catalog.on_alert(self._webhook)
        self._sync()
        recover_all(catalog, ttl_seconds=settings.lease_ttl_seconds)

    def sql(self, statement: str) -> DataFrame:
        """Run a stream-table statement, or hand any other statement to Spark unchanged."""
        from headrace.api.dispatch import run_statement

        self._sync()
        return run_statement(self, statement)

    def create_stream_table(
        self,
        name: str,
        query: str,
        *,
        schedule: str | None = None,
        refresh_mode: str | None = None,
        initialize: bool = True,
        or_replace: bool = False,
        if_not_exists: bool = False,
        cluster_by: Sequence[str] = (),
        comment: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Create a stream table and, unless `initialize` is false, load it."""
        self._sync()
        self.define(
            Definition(
                name=self.qualify(name),
                query=query,
                current_schema=self.current_schema(),
                schedule=schedule,
                refresh_mode=refresh_mode,
                initialize=initialize,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
                cluster_by=cluster_by,
                comment=comment,
                options=options or {},
            )
        )

    def alter_stream_table(
        self,
        name: str,
        *,
        schedule: str | None = None,
        refresh_mode: str | None = None,
        query: str | None = None,
        suspended: bool | None = None,
        rename_to: str | None = None,
    ) -> None:
        """Change what is given of a stream table's schedule, mode, query, suspension and name."""
        self._sync()
        table = self.qualify(name)
        self._catalog.find(table)
        if schedule is not None:
            self._definer.set_schedule(table, schedule)
        if refresh_mode is not None:
            self._definer.set_mode(table, refresh_mode)
        if query is not None:
            self.notify(self._definer.set_query(table, query, self.current_schema()))
        if suspended is not None:
            (self._definer.suspend if suspended else self._definer.resume)(table)
        if rename_to is not None:
            self._definer.rename(table, self.qualify(rename_to))

    def drop_stream_table(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a stream table; refuses while others read it, unless `cascade` drops them too."""
        self._sync()
        table = self.qualify(name)
        if if_exists and self._catalog.get(table) is None:
            return
        self._definer.drop(table, cascade=cascade)

    def alter_stream_tables(self, *, suspended: bool) -> list[str]:
        """Suspend all stream tables, or resume all that are suspended; give the names of those it changed."""
        self._sync()
        names = [
            table.name for table in self._catalog.all() if (table.status is Status.SUSPENDED) != suspended
        ]
        for name in names:
            (self._definer.suspend if suspended else self._definer.resume)(name)
        return [str(name) for name in names]

    def refresh_stream_table(self, name: str, *, full: bool = False, upstream: bool = False) -> RefreshResult:
        """Bring a stream table up to date with its sources as they are now.

        With `upstream` the stream tables that it reads, at any depth, are brought to the same moment first.
        """
        self._sync()
        refresh = self._scheduler.refresh if upstream else self._refresher.refresh
        result = refresh(self.qualify(name), full=full)
        log.info("%s", result)
        return result

    def plan_refresh(self, name: str, *, full: bool = False) -> RefreshPlan:
        """Tell what a refresh would do now, and the statements that it would run; a dry run."""
        self._sync()
        return self._refresher.intend(self.qualify(name), full=full)

    def write(self, rows: DataFrame, table: str, mode: str = "append") -> None:
        """Write rows to a Delta table, which is made if there is none; `mode` is append or overwrite.

        Like a write by `sql` it returns when every IMMEDIATE stream table below the table reflects it.
        """
        self._sync()
        if mode not in ("append", "overwrite"):
            raise HeadraceError(
                "invalid_write_mode", f"{mode!r} is not a mode of writing.", hint="Use append or overwrite."
            )
        name = self.qualify(table)
        verb = "INSERT INTO" if mode == "append" else "INSERT OVERWRITE"
        target = TargetWrite((name.catalog, name.schema, name.table), verb, Position(1, 1))
        if self._catalog.get(name) is not None:
            raise HeadraceError(
                "stream_table_is_read_only",
                f"{name} is a stream table: Headrace keeps it equal to its query.",
                hint="Write to its sources.",
            )
        save = rows.write.format("delta").mode(mode).saveAsTable
        self.follow_writes((target,), lambda: save(name.sql), session=rows.sparkSession)

    def run_once(
        self, at: datetime | None = None, *, on_begin: OnBegin = lambda _tick, _running: None
    ) -> TickReport:
        """Refresh all that is due, each table after those it reads, and report how each fared.

        All tables of one run are brought to one data timestamp. `at` asks what is due at another moment than
        now; contents are never of a later moment than now. `on_begin` is told of the tables first.
        """
        self._sync()
        return self._scheduler.run_once(at, on_begin=on_begin)

    def snapshot(self, at: datetime | None = None, *, tables: Sequence[str] | None = None) -> Snapshot:
        """Read several tables as of one data timestamp, by default the newest that they have in common.

        `tables` are those that must have contents of it; by default all stream tables. `at` has a time zone
        and is not still to come.
        """
        self._sync()
        network, known = self._scheduler.networks.look()
        finder = Finder(network, known, self._refresher.sources)
        names = [self.qualify(name) for name in tables] if tables is not None else list(known)
        if at is None:
            at = finder.newest(names)
        else:
            stamps = [table.data_timestamp for table in known.values() if table.data_timestamp is not None]
            at = checked_past(at, newest=max(stamps, default=None))
            if tables is not None:
                finder.require(names, at)
        return Snapshot(self.spark, self._refresher.definitions, finder, at)

    def verify(self, name: str) -> Verification:
        """Compare a stream table with its query over the sources it reflects."""
        self._sync()
        return verify(self.spark, self._refresher.definitions, self._catalog.find(self.qualify(name)))

    def explain(self, name: str) -> Explanation:
        """Say how a stream table is maintained and why so."""
        self._sync()
        table = self._catalog.find(self.qualify(name))
        definitions = self._refresher.definitions
        analysis = definitions.of(table)
        return explain_table(table, analysis, definitions.plan(table, analysis))

    def explain_definition(self, wanted: Definition) -> Explanation:
        """Say how a stream table would be maintained, and create nothing."""
        self._sync()
        return explain_checked(wanted.name, self._definer.check(wanted))

    def stream_tables(self) -> DataFrame:
        """List the stream tables with their definitions and states."""
        return self._frames.stream_tables()

    def refresh_history(self, name: str | None = None) -> DataFrame:
        """List the refreshes of one stream table or of all, newest first."""
        return self._frames.refresh_history(self._known(name).name if name else None)

    def dependencies(self) -> DataFrame:
        """List which stream table reads what, and which columns of it."""
        return self._frames.dependencies()

    def alerts(self) -> DataFrame:
        """List the alerts, newest first."""
        return self._frames.alerts()

    def status(self) -> DataFrame:
        """Show per stream table its status, lag, last refresh and errors."""
        return self.frames.stream_tables().selectExpr(
            "name",
            "status",
            "refresh_mode",
            "schedule",
            "data_timestamp",
            "current_timestamp() - data_timestamp AS current_lag",
            "last_refresh_at",
            "consecutive_errors",
            "last_error",
        )

    def on_alert(self, callback: Callable[[Alert], None]) -> None:
        """Call a function with every alert that this connection raises; an error in it is only logged."""
        self._catalog.on_alert(callback)

    def close(self) -> None:
        """Close the catalog; the Spark session stays for others to use."""
        if not self._closed:
            self._closed = True
            self._scheduler.close()
            self._refresher.sources.pins.close()
            if self._lake is not None:
                self._lake.close()
            decoded_columns.forget()
            if self._webhook is not None:
                self._webhook.close()
            self._catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What follows serves `dispatch`, the command line and the demo; it is not part of the contract.

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    @property
    def scheduler(self) -> Scheduler:
        return self._scheduler

    def follow_writes(
        self, writes: Sequence[TargetWrite], write: Callable[[], T], *, session: SparkSession | None = None
    ) -> T:
        """Carry out a write, and let IMMEDIATE tables follow it."""
        return self._immediate.run(writes, self.qualify, write, session=session)

    def service(
        self,
        *,
        reload: Callable[[], Settings | None] = lambda: None,
        on_outcome: OnOutcome = lambda _tick, _name, _outcome: None,
    ) -> Service:
        """Make the service that keeps the tables fresh while its `run` does."""
        return Service(
            self._catalog,
            self._refresher,
            self._scheduler,
            sync=self._sync,
            reload=reload,
            on_outcome=on_outcome,
        )

    @property
    def definer(self) -> Definer:
        return self._definer

    @property
    def frames(self) -> CatalogFrames:
        return self._frames

    def define(self, wanted: Definition) -> str:
        """Create a stream table, log the notices, and give what was done in one sentence."""
        done, notices = self._definer.create(wanted)
        self.notify(notices)
        return done

    def notify(self, notices: Sequence[str]) -> None:
        for notice in notices:
            log.warning("notice: %s", notice)

    def current_schema(self) -> str:
        return self.spark.catalog.currentDatabase()

    def qualify(self, name: str | tuple[str, ...]) -> TableName:
        """Complete a name with the current schema."""
        if isinstance(name, tuple):
            return TableName.of(name, self.current_schema())
        return parse_name(name, self.current_schema())

    def remember_relations(self) -> None:
        """Let other processes see the views and external tables that a statement made or dropped."""
        if self._lake is not None:
            self._lake.remember()

    def drop_unmade(self, name: tuple[str, ...]) -> bool:
        """Drop a recorded view or external table that Spark could not make in this session."""
        return self._lake is not None and self._lake.drop_unmade(self.qualify(name))

    def _known(self, name: str) -> StreamTable:
        return self._catalog.find(self.qualify(name))

    def _sync(self) -> None:
        if self._closed:
            raise HeadraceError(
                "connection_closed", "This connection is closed.", hint="Call headrace.connect again."
            )
        if self._lake is not None:
            self._lake.sync()
