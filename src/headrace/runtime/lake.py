"""The embedded lake: every process that opens a warehouse folder sees the same tables and views by name.

Spark's embedded catalog forgets its tables when the process ends, and Derby admits one process only. So the
folder is the truth for tables (`<warehouse>/<table>`, `<warehouse>/<schema>.db/<table>`), the Headrace
catalog for views and tables stored elsewhere, and a session's own catalog is brought up to date from both.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.catalog import Catalog, Relation
from headrace.runtime.relations import describe, local_path
from headrace.sql.names import TableName, quote

_SCHEMA_SUFFIX = ".db"
_log = logging.getLogger(__name__)


class Lake:
    """Keeps one session's names in step with the warehouse folder and the catalog."""

    def __init__(self, spark: SparkSession, warehouse: Path, catalog: Catalog) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._catalog = catalog
        self._seen: object = None
        self._applied: dict[TableName, Relation] = {}
        # What this session cannot make, though others may have it.
        self._failed: dict[TableName, Relation] = {}
        self._pending = False
        self._lock = threading.Lock()

    def sync(self) -> None:
        """Register what other processes created and forget what they dropped."""
        with self._lock:
            self._sync()

    def _sync(self) -> None:
        state = self._fingerprint()
        if state == self._seen and not self._pending:
            return
        self._pending = False
        on_disk = dict(self._tables_on_disk())
        elsewhere = {relation.name: relation for relation in self._catalog.relations()}
        self._forget_missing(on_disk, elsewhere)
        for schema in self._schemas_on_disk():
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
        for name, path in on_disk.items():
            # Where a table was dropped meanwhile, Delta would make an empty one.
            if describe(self._spark, name) is None and _is_delta_table(path):
                self._register_managed(name, path)
        self._apply_all(elsewhere.values())
        # What comes or goes from the look on is for the next one: a table dropped meanwhile may have been
        # registered again from its last files.
        self._seen = state

    def close(self) -> None:
        """Give back what Delta keeps of tables for an hour; other lakes of the process read theirs again."""
        jvm: Any = self._spark._jvm
        # A JVM that is gone has nothing to give back.
        with suppress(Py4JError):
            if jvm is not None:
                jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def _apply_all(self, relations: Iterable[Relation]) -> None:
        """Make what can be made, each after those it reads; who reads the rest meets Spark's own error.

        A view may read another, or a table that is gone: that is no reason to stop all others.
        """
        pending, failures = list(relations), dict[TableName, Exception]()
        before, self._failed = self._failed, {}
        while pending:
            failures = {}
            for relation in pending:
                try:
                    self._apply(relation)
                except (PySparkException, Py4JJavaError) as error:
                    failures[relation.name] = error
            left = [relation for relation in pending if relation.name in failures]
            if len(left) == len(pending):
                break
            pending = left
        for relation in pending:
            self._failed[relation.name] = relation
            if before.get(relation.name) != relation:
                reason = str(failures[relation.name]).splitlines()[0]
                _log.warning("The %s %s cannot be made: %s", relation.kind.lower(), relation.name, reason)

    def _apply(self, relation: Relation) -> None:
        """Create or replace a view or external table that another process recorded."""
        if self._applied.get(relation.name) == relation and describe(self._spark, relation.name):
            return
        self._applied.pop(relation.name, None)
        self._spark.sql(f"DROP {relation.kind} IF EXISTS {relation.name.sql}")
        self._spark.sql(relation.definition or "")
        self._applied[relation.name] = relation

    def remember(self) -> None:
        """Record views and external tables that this session created, and forget those it dropped."""
        with self._lock:
            self._remember()

    def _remember(self) -> None:
        recorded = {relation.name: relation for relation in self._catalog.relations()}
        present = dict(self._relations_of_session())
        for name, relation in present.items():
            if recorded.get(name) != relation:
                self._catalog.put_relation(relation)
            self._applied[name] = relation
            self._failed.pop(name, None)
        for name in recorded.keys() - present.keys() - self._failed.keys():
            self._catalog.remove_relation(name)

    def drop_unmade(self, name: TableName) -> bool:
        """Forget a view or external table that this session could not make, so that it can be dropped."""
        if self._failed.pop(name, None) is None:
            return False
        return self._catalog.remove_relation(name)

    def _fingerprint(self) -> object:
        """Change whenever a table folder or a recorded relation comes or goes."""
        schemas = [self._warehouse, *(path for path in self._schema_folders())]
        folders = tuple((str(path), path.stat().st_mtime_ns) for path in schemas)
        return folders, self._catalog.generation()

    def _schema_folders(self) -> Iterator[Path]:
        with os.scandir(self._warehouse) as entries:
            for entry in entries:
                if entry.name.endswith(_SCHEMA_SUFFIX) and entry.is_dir():
                    yield Path(entry.path)

    def _schemas_on_disk(self) -> list[str]:
        return [folder.name.removesuffix(_SCHEMA_SUFFIX) for folder in self._schema_folders()]

    def _tables_on_disk(self) -> Iterator[tuple[TableName, Path]]:
        folders = [("default", self._warehouse)]
        folders += [(path.name.removesuffix(_SCHEMA_SUFFIX), path) for path in self._schema_folders()]
        for schema, folder in folders:
            for path in folder.iterdir():
                if path.name.startswith(("_", ".")) or not path.is_dir() or path.suffix == _SCHEMA_SUFFIX:
                    continue
                if _is_delta_table(path):
                    yield TableName(schema, path.name), path
                else:
                    # Another process may be between making the folder and its first commit.
                    self._pending = True

    def _forget_missing(self, on_disk: dict[TableName, Path], elsewhere: dict[TableName, Relation]) -> None:
        for name in self._names_of_session():
            if name in on_disk or name in elsewhere:
                continue
            found = describe(self._spark, name)
            if found is None:
                continue
            if found.is_view:
                self._spark.sql(f"DROP VIEW IF EXISTS {name.sql}")
            elif not Path(found.location).exists():
                self._drop_name_only(name)

    def _names_of_session(self) -> Iterator[TableName]:
        for schema in self._spark.sql("SHOW SCHEMAS").collect():
            for row in self._spark.sql(f"SHOW TABLES IN {quote(schema[0])}").collect():
                if not row.isTemporary:
                    yield TableName(schema[0], row.tableName)

    def _relations_of_session(self) -> Iterator[tuple[TableName, Relation]]:
        for name in self._names_of_session():
            found = describe(self._spark, name)
            if found is None:
                continue
            if found.is_view:
                definition = self._spark.sql(f"SHOW CREATE TABLE {name.sql}").collect()[0][0]
                yield name, Relation(name, "VIEW", definition, "")
            elif not self._is_inside(found.location):
                definition = (
                    f"CREATE TABLE {name.sql} USING {found.provider} LOCATION {_literal(found.location)}"
                )
                yield name, Relation(name, "TABLE", definition, found.location)

    def _is_inside(self, location: str) -> bool:
        return Path(local_path(location)).is_relative_to(self._warehouse)

    def _register_managed(self, name: TableName, path: Path) -> None:
        """Register a folder as a managed table, so that DROP and RENAME treat its files as Spark's own."""
        self._spark.sql(f"CREATE TABLE IF NOT EXISTS {name.sql} USING delta LOCATION {_literal(str(path))}")
        jvm: Any = self._spark._jvm
        catalog = self._spark._jsparkSession.sessionState().catalog()
        table = catalog.getTableMetadata(_identifier(jvm, name))
        managed = jvm.org.apache.spark.sql.catalyst.catalog.CatalogTableType.MANAGED()
        catalog.alterTable(_copy_with_type(table, managed))

    def _drop_name_only(self, name: TableName) -> None:
        jvm: Any = self._spark._jvm
        self._spark._jsparkSession.sessionState().catalog().dropTable(_identifier(jvm, name), True, False)


def _is_delta_table(path: Path) -> bool:
    log = path / "_delta_log"
    return log.is_dir() and any(entry.suffix in {".json", ".parquet"} for entry in log.iterdir())


def _identifier(jvm: Any, name: TableName) -> Any:
    return jvm.org.apache.spark.sql.catalyst.TableIdentifier(name.table, jvm.scala.Option.apply(name.schema))


def _copy_with_type(table: Any, table_type: Any) -> Any:
    """Copy a Scala case class with its second field, the table's type, replaced."""
    methods = table.getClass().getMethods()
    arity = next(method.getParameterCount() for method in methods if method.getName() == "copy")
    fields = [getattr(table, f"copy$default${index}")() for index in range(1, arity + 1)]
    fields[1] = table_type
    return table.copy(*fields)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
