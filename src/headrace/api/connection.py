"""The connection: every stream-table statement as a call, and `sql` for all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from headrace.api.define import Definer, Definition
from headrace.api.explain import Explanation, explain_checked, explain_table
from headrace.api.frames import CatalogFrames
from headrace.catalog import Catalog, StreamTable
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.refresh.recover import recover_all
from headrace.refresh.result import RefreshResult
from headrace.refresh.run import Refresher
from headrace.refresh.verify import Verification, verify
from headrace.runtime.lake import Lake
from headrace.sql.names import TableName, parse_name

log = logging.getLogger("headrace")


class Headrace:
    """Stream tables on one Spark session and one catalog; made by `headrace.connect`."""

    def __init__(self, spark: SparkSession, catalog: Catalog, settings: Settings, lake: Lake | None) -> None:
        self.spark = spark
        self.settings = settings
        self._catalog = catalog
        self._lake = lake
        self._refresher = Refresher(spark, catalog, settings)
        self._definer = Definer(spark, catalog, settings, self._refresher)
        self._frames = CatalogFrames(spark, catalog)
        self._closed = False
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

    def refresh_stream_table(self, name: str, *, full: bool = False) -> RefreshResult:
        """Bring a stream table up to date with its sources as they are now."""
        self._sync()
        result = self._refresher.refresh(self.qualify(name), full=full)
        log.info("%s", result)
        return result

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

    def close(self) -> None:
        """Close the catalog; the Spark session stays for others to use."""
        if not self._closed:
            self._closed = True
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

    def _known(self, name: str) -> StreamTable:
        return self._catalog.find(self.qualify(name))

    def _sync(self) -> None:
        if self._closed:
            raise HeadraceError(
                "connection_closed", "This connection is closed.", hint="Call headrace.connect again."
            )
        if self._lake is not None:
            self._lake.sync()
