"""Create, alter and drop stream tables: checked first, then written so that a failure leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark.sql import SparkSession

from headrace.api import alone
from headrace.api.checks import Checked, check_query
from headrace.api.former import former_definition
from headrace.catalog import Action, Catalog, Lease, NewStreamTable, RefreshMode, Status, StreamTable
from headrace.catalog.records import StreamTableChanges
from headrace.config import Settings
from headrace.errors import HeadraceError, Position
from headrace.refresh.recover import recover
from headrace.refresh.run import Refresher
from headrace.runtime.relations import describe
from headrace.scheduler.schedule import parse_schedule
from headrace.sql.names import TableName, quote, require_valid_name
from headrace.storage.table import Storage, create_storage

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A stream table as the user asks for it; None means the default, or what it was before."""

    name: TableName
    query: str
    current_schema: str
    schedule: str | None = None
    refresh_mode: str | None = None
    initialize: bool = True
    or_replace: bool = False
    if_not_exists: bool = False
    cluster_by: Sequence[str] = ()
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    name_position: Position | None = None
    query_position: Position | None = None
    schedule_position: Position | None = None


class Definer:
    """Writes definitions of one connection."""

    def __init__(
        self, spark: SparkSession, catalog: Catalog, settings: Settings, refresher: Refresher
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._settings = settings
        self._refresher = refresher

    def create(self, wanted: Definition) -> tuple[str, tuple[str, ...]]:
        """Create a stream table; give what was done in one sentence, and the notices."""
        existing = self._catalog.get(wanted.name)
        if existing is not None and wanted.if_not_exists:
            return f"{wanted.name} exists already; nothing was changed", ()
        if existing is not None and wanted.or_replace:
            return self._replace(existing, wanted)
        self._check_name_is_free(wanted, existing)
        checked = self.check(wanted)
        with self._alone_with(wanted.name, "created", patience=alone.WAIT_SECONDS) as lease:
            # Who was waited for may have created it.
            self._check_name_is_free(wanted, self._catalog.get(wanted.name))
            table = self._add(wanted, checked)
            if wanted.initialize:
                self._undo_on_failure(table, lambda: self._load(table.name, lease))
        if wanted.initialize:
            return f"{wanted.name} was created and loaded", checked.notices
        return f"{wanted.name} was created; REFRESH STREAM TABLE {wanted.name} loads it", checked.notices

    def check(self, wanted: Definition) -> Checked:
        """Make every check of a definition and write nothing."""
        require_valid_name(wanted.name, position=wanted.name_position)
        self._schedule(wanted)
        checked = check_query(
            self._spark,
            self._catalog,
            self._refresher.definitions,
            name=wanted.name,
            query=wanted.query,
            current_schema=wanted.current_schema,
            mode=parse_mode(wanted.refresh_mode),
            offset=wanted.query_position,
        )
        self._check_clustering(wanted, checked)
        return checked

    def set_schedule(self, name: TableName, schedule: str, position: Position | None = None) -> None:
        parsed = self._parse_schedule(schedule, position)
        self._catalog.find(name)
        self._catalog.update(name, schedule=parsed)

    def set_mode(self, name: TableName, mode: str) -> None:
        table, wanted = self._catalog.find(name), parse_mode(mode)
        checked = self._recheck(table, table.query, wanted)
        self._catalog.update(
            name,
            refresh_mode=wanted,
            effective_mode=checked.effective_mode,
            mode_reason=checked.mode_reason,
        )

    def set_query(
        self, name: TableName, query: str, current_schema: str, position: Position | None = None
    ) -> tuple[str, ...]:
        """Give a stream table another query and rebuild it; a failure leaves the old table as it was."""
        table = self._catalog.find(name)
        checked = self._recheck(table, query, table.refresh_mode, current_schema, position)
        self._rebuild(table, query, current_schema, checked, {})
        return checked.notices

    def suspend(self, name: TableName) -> None:
        self._catalog.find(name)
        self._catalog.update(name, status=Status.SUSPENDED)

    def resume(self, name: TableName) -> None:
        table = self._catalog.find(name)
        status = Status.ACTIVE if table.frontier is not None else Status.INITIALIZING
        self._catalog.update(name, status=status, consecutive_errors=0, last_error=None)

    def rename(self, name: TableName, new: TableName, position: Position | None = None) -> None:
        table = self._catalog.find(name)
        require_valid_name(new, position=position)
        self._refuse_while_read(name, "renamed", "their queries name it")
        if describe(self._spark, new) is not None or self._catalog.get(new) is not None:
            raise name_taken(new, position)
        with self._alone_with(name, "renamed"):
            self._spark.sql(f"ALTER TABLE {name.sql} RENAME TO {new.sql}")
            self._catalog.rename(name, new)
        found = describe(self._spark, new)
        if found is not None and found.location != table.location:
            self._catalog.update(new, location=found.location)

    def drop(self, name: TableName, *, cascade: bool = False) -> list[TableName]:
        """Drop a stream table and, with `cascade`, those that read it; the farthest downstream go first."""
        self._catalog.find(name)
        if not cascade:
            self._refuse_while_read(name, "dropped", "drop them first, or use CASCADE")
        dropped = []
        for table in reversed(self._downstream(name)):
            with self._alone_with(table, "dropped"):
                self._drop_storage(table)
                self._catalog.remove(table)
            dropped.append(table)
        return dropped

    def _alone_with(
        self, name: TableName, done: str, *, patience: float = 0
    ) -> AbstractContextManager[Lease]:
        return alone.alone_with(self._catalog, self._settings, name, done, patience=patience)

    def _replace(self, existing: StreamTable, wanted: Definition) -> tuple[str, tuple[str, ...]]:
        checked = self.check(wanted)
        settings = self._settings_of(wanted, checked)
        same_query = (
            checked.analysis.expanded == existing.expanded_query and checked.columns == existing.columns
        )
        if same_query and all(getattr(existing, key) == value for key, value in settings.items()):
            return f"{wanted.name} is defined so already; nothing was changed", checked.notices
        if same_query:
            self._catalog.update(wanted.name, **settings)
            return f"the settings of {wanted.name} were changed", checked.notices
        self._rebuild(existing, wanted.query, wanted.current_schema, checked, settings)
        return f"{wanted.name} was replaced and loaded anew", checked.notices

    def _settings_of(self, wanted: Definition, checked: Checked) -> StreamTableChanges:
        return {
            "schedule": self._schedule(wanted),
            "refresh_mode": parse_mode(wanted.refresh_mode),
            "effective_mode": checked.effective_mode,
            "mode_reason": checked.mode_reason,
            "comment": wanted.comment,
        }

    def _rebuild(
        self,
        table: StreamTable,
        query: str,
        current_schema: str,
        checked: Checked,
        settings: StreamTableChanges,
    ) -> None:
        changes: StreamTableChanges = {
            **settings,
            "query": query,
            "expanded_query": checked.analysis.expanded,
            "current_schema": current_schema,
            "columns": checked.columns,
            "effective_mode": checked.effective_mode,
            "mode_reason": checked.mode_reason,
            "reinitialize_reason": "the query was changed",
        }
        # A refresh under way would end with rows of the old query, and take them for those of the new one.
        with self._alone_with(table.name, "redefined", patience=alone.WAIT_SECONDS) as lease:
            before = recover(self._catalog, self._catalog.find(table.name))
            reads = self._catalog.dependencies(table.name)
            self._catalog.redefine(table.name, changes, checked.dependencies)
            try:
                self._load(table.name, lease)
            except BaseException:
                after = recover(self._catalog, self._catalog.find(table.name))
                most = self._settings.max_consecutive_errors
                former = former_definition(before, after, changes, max_errors=most)
                self._catalog.redefine(table.name, former, reads)
                raise

    def _recheck(
        self,
        table: StreamTable,
        query: str,
        mode: RefreshMode,
        current_schema: str | None = None,
        position: Position | None = None,
    ) -> Checked:
        return check_query(
            self._spark,
            self._catalog,
            self._refresher.definitions,
            name=table.name,
            query=query,
            current_schema=current_schema or table.current_schema,
            mode=mode,
            offset=position,
            is_new=current_schema is not None,
        )

    def _add(self, wanted: Definition, checked: Checked) -> StreamTable:
        """Reserve the name in the catalog, then create the storage under it."""
        new = NewStreamTable(
            name=wanted.name,
            query=wanted.query,
            expanded_query=checked.analysis.expanded,
            current_schema=wanted.current_schema,
            columns=checked.columns,
            refresh_mode=parse_mode(wanted.refresh_mode),
            effective_mode=checked.effective_mode,
            mode_reason=checked.mode_reason,
            schedule=self._schedule(wanted),
            location="",
            comment=wanted.comment,
            cluster_by=tuple(wanted.cluster_by),
            options=dict(wanted.options),
        )
        table = self._catalog.add(new, checked.dependencies)
        return self._undo_on_failure(table, lambda: self._create_storage(table))

    def _load(self, name: TableName, lease: Lease) -> None:
        result = self._refresher.refresh(name, lease=lease)
        if result.action is Action.SKIPPED:
            raise HeadraceError(
                "not_loaded", f"{name} was not loaded: {result.reason}.", hint="Run the statement again."
            )
        table = self._catalog.find(name)
        if table.refresh_mode is RefreshMode.DIFFERENTIAL and table.effective_mode == "FULL":
            raise HeadraceError(
                "plan_differs",
                f"{name} cannot be maintained incrementally: {table.mode_reason}.",
                hint="Use REFRESH MODE FULL, and report the query: this is a fault of Headrace.",
            )

    def _create_storage(self, table: StreamTable) -> StreamTable:
        create_storage(
            self._spark,
            table.name,
            table.columns,
            cluster_by=table.cluster_by,
            comment=table.comment or "",
        )
        found = describe(self._spark, table.name)
        assert found is not None
        storage = Storage(found.location, table.id)
        return self._catalog.update(
            table.name,
            location=found.location,
            table_id=storage.table_id(),
            storage_version=storage.log.newest_version(),
        )

    def _undo_on_failure(self, table: StreamTable, step: Callable[[], T]) -> T:
        try:
            return step()
        except BaseException:
            self._drop_storage(table.name)
            self._catalog.remove(table.name)
            raise

    def _drop_storage(self, name: TableName) -> None:
        self._spark.sql(f"DROP TABLE IF EXISTS {name.sql}")

    def _downstream(self, name: TableName) -> list[TableName]:
        """List a stream table and all that read it, upstream before downstream."""
        order: list[TableName] = []

        def visit(table: TableName) -> None:
            if table not in order:
                for reader in self._catalog.dependents(table):
                    visit(reader)
                order.insert(0, table)

        visit(name)
        return order

    def _refuse_while_read(self, name: TableName, verb: str, advice: str) -> None:
        readers = [str(reader) for reader in self._catalog.dependents(name)]
        if readers:
            raise HeadraceError(
                "has_dependents",
                f"{name} cannot be {verb}: {', '.join(readers)} read{'s' if len(readers) == 1 else ''} it.",
                hint=f"{advice[0].upper()}{advice[1:]}.",
            )

    def _check_name_is_free(self, wanted: Definition, existing: StreamTable | None) -> None:
        require_valid_name(wanted.name, position=wanted.name_position)
        self._check_schema_exists(wanted)
        if existing is not None or describe(self._spark, wanted.name) is not None:
            raise name_taken(wanted.name, wanted.name_position)

    def _check_schema_exists(self, wanted: Definition) -> None:
        name = wanted.name
        if name.catalog == "spark_catalog" and not self._spark.catalog.databaseExists(quote(name.schema)):
            raise HeadraceError(
                "unknown_schema",
                f"There is no schema {name.schema}.",
                hint=f"CREATE SCHEMA {quote(name.schema)} makes it.",
                position=wanted.name_position,
            )

    def _check_clustering(self, wanted: Definition, checked: Checked) -> None:
        names = {column.lower() for column, _ in checked.columns}
        for column in wanted.cluster_by:
            if column.lower() not in names:
                raise HeadraceError(
                    "unknown_column",
                    f"CLUSTER BY names {column}, which is no output column of the query.",
                    hint=f"The columns are {', '.join(name for name, _ in checked.columns)}.",
                )

    def _schedule(self, wanted: Definition) -> str:
        schedule = wanted.schedule or self._settings.default_schedule
        return self._parse_schedule(schedule, wanted.schedule_position)

    def _parse_schedule(self, schedule: str, position: Position | None) -> str:
        minimum = self._settings.min_schedule_seconds
        return str(parse_schedule(schedule, minimum_seconds=minimum, position=position))


def parse_mode(mode: str | None) -> RefreshMode:
    """Read a refresh mode's name.

    >>> parse_mode("full"), parse_mode(None)
    (<RefreshMode.FULL: 'FULL'>, <RefreshMode.AUTO: 'AUTO'>)
    """
    try:
        return RefreshMode((mode or "AUTO").upper())
    except ValueError:
        raise HeadraceError(
            "invalid_refresh_mode",
            f"{mode!r} is not a refresh mode.",
            hint=f"The modes are {', '.join(RefreshMode)}.",
        ) from None


def name_taken(name: TableName, position: Position | None = None) -> HeadraceError:
    return HeadraceError(
        "name_taken",
        f"There is already a table, view or stream table {name}.",
        hint="Choose another name; CREATE OR REPLACE STREAM TABLE redefines a stream table.",
        position=position,
    )
