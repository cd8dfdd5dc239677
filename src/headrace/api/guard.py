"""Refuse writes aimed at a stream table, and say which statement to use instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from headrace.catalog import Catalog, StreamTable
from headrace.errors import HeadraceError
from headrace.runtime.relations import local_path
from headrace.sql.names import TableName, split_name
from headrace.sql.statements import TargetWrite
from headrace.sql.writes import find_writes

# Maintenance that moves no row is as welcome on a stream table as on any other.
_HARMLESS = frozenset({"OPTIMIZE", "VACUUM", "ANALYZE", "REFRESH", "CACHE", "UNCACHE", "MSCK"})
_INSTEAD = {
    "DROP": "DROP STREAM TABLE {name}",
    "ALTER": "ALTER STREAM TABLE {name}",
    "CREATE": "CREATE OR REPLACE STREAM TABLE {name} AS …",
    "REPLACE": "CREATE OR REPLACE STREAM TABLE {name} AS …",
}
_DEFAULT = "a change of its sources, or ALTER STREAM TABLE {name} AS … for another query"


def refuse_writes(
    catalog: Catalog,
    writes: tuple[TargetWrite, ...],
    qualify: Callable[[tuple[str, ...]], TableName],
    evaluate: Callable[[str], str | None],
    see_through: Callable[[TargetWrite], TargetWrite],
) -> None:
    """Raise for the first target that is a stream table, by its name, its path or its schema.

    `evaluate` computes what the statement gives as an expression, or None where it cannot yet; `see_through`
    gives the table behind a temporary view.
    """
    if not writes:
        return
    tables = catalog.all()
    for write in writes if tables else ():
        for named in _meant(write, evaluate):
            target = see_through(named)
            if target.kind == "dynamic" or _is_harmless(target.verb):
                continue
            for table in tables:
                if _aims_at(target, table, qualify):
                    raise _read_only(target, table)


def _meant(write: TargetWrite, evaluate: Callable[[str], str | None]) -> Iterator[TargetWrite]:
    """Give the targets that expressions name, or that a text to be executed writes to."""
    if write.kind == "statement":
        for inner in find_writes(evaluate(write.expression) or ""):
            # A text that executes itself would go on for ever.
            if inner.kind != "statement":
                yield from _meant(replace(inner, position=write.position), evaluate)
    elif write.kind == "dynamic":
        target = _named(write, evaluate(write.expression))
        if target is not None:
            yield target
    else:
        yield write


def _named(write: TargetWrite, name: str | None) -> TargetWrite | None:
    """Give a target the name that its expression has; without one Spark will say what is wrong."""
    if not name:
        return None
    whole_schema = write.verb.startswith("DROP ")
    parts = split_name(name, position=write.position)
    return replace(write, name=parts, kind="schema" if whole_schema else "table")


def _is_harmless(verb: str) -> bool:
    return verb.split()[0] in _HARMLESS or verb.endswith(" IF NOT EXISTS")


def _aims_at(write: TargetWrite, table: StreamTable, qualify: Callable[[tuple[str, ...]], TableName]) -> bool:
    if write.kind == "schema":
        return write.verb.startswith("DROP") and write.name[-1].lower() == table.name.schema
    if write.path is not None:
        return local_path(write.path).rstrip("/") == table.location.rstrip("/")
    return len(write.name) <= 3 and qualify(write.name) == table.name


def _read_only(write: TargetWrite, table: StreamTable) -> HeadraceError:
    instead = _INSTEAD.get(write.verb.split()[0], _DEFAULT).format(name=table.name)
    return HeadraceError(
        "stream_table_is_read_only",
        f"{write.verb} may not touch {table.name}: Headrace keeps it equal to its query.",
        hint=f"Use {instead}.",
        position=write.position,
    )
