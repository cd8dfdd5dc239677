"""What happened to the sources besides changes of rows: schemas, identities, lost history, views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.catalog import Frontier, StreamTable
from headrace.errors import HeadraceError
from headrace.sources.check import SourceEvent, SourceFinding, check_source
from headrace.sources.registry import Sources
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName

_GONE = (SourceEvent.COLUMN_DROPPED, SourceEvent.COLUMN_RENAMED)


def why_reinitialize(
    sources: Sources,
    table: StreamTable,
    analysis: Analysis,
    frontier: Frontier,
    changed: Sequence[TableName],
    read: Mapping[TableName, Sequence[str]],
) -> str | None:
    """Say why the contents must be built anew, or None; raise where a person must decide."""
    if analysis.expanded != table.expanded_query and analysis.views:
        return f"{', '.join(map(str, analysis.views))} was defined anew"
    for name in changed:
        old = (table.frontier or {}).get(str(name))
        if old is None:
            return f"{name} is read for the first time"
        finding = check_source(sources.find(name), old, frontier[str(name)], read[name], {})
        if finding.event in _GONE:
            raise _column_gone(table, name, finding)
        if not finding.is_incremental:
            return f"{name}: {finding.detail}"
        if not finding.old_readable:
            return f"{name}: files of version {old.version} were vacuumed"
    return None


def _column_gone(table: StreamTable, source: TableName, finding: SourceFinding) -> HeadraceError:
    return HeadraceError(
        "schema_changed",
        f"{table.name} reads {source}, whose {finding.detail}.",
        hint=f"Bring the column back, or ALTER STREAM TABLE {table.name} AS … a query without it.",
    )


def cannot_follow(table: StreamTable, refusal: HeadraceError) -> HeadraceError:
    """Say that what a query reads was defined anew in a way that the stream table cannot have."""
    return HeadraceError(
        "schema_changed",
        f"{table.name} cannot follow what it reads by now: {refusal.message}",
        hint=f"Define the view as it was, or ALTER STREAM TABLE {table.name} AS … another query.",
    )
