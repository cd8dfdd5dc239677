"""Which stream tables do not reflect what their sources hold, told by versions alone."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.catalog import SourceVersion, StreamTable
from headrace.scheduler.network import Network
from headrace.sql.names import TableName


def find_behind(
    network: Network,
    tables: Mapping[TableName, StreamTable],
    newest: Mapping[TableName, SourceVersion | None],
) -> set[TableName]:
    """Name the tables that do not reflect these versions of sources, themselves or by what they read."""
    stale: set[TableName] = set()
    for name in network.graph.order:
        frontier = tables[name].frontier or {}
        for source in network.graph.reads[name]:
            at = frontier.get(str(source))
            if source in tables:
                stored = tables[source].storage_version
                is_stale = source in stale or at is None or stored is None or at.version < stored
            else:
                is_stale = source in newest and not _reaches(at, newest[source])
            if is_stale:
                stale.add(name)
    return stale


def _reaches(at: SourceVersion | None, wanted: SourceVersion | None) -> bool:
    """Tell whether a version is of the same table as another and not before it."""
    if at is None or wanted is None:
        return False
    return at.table_id == wanted.table_id and at.version >= wanted.version
