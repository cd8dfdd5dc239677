"""Which stream tables do not reflect what their sources hold, told by versions alone."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.catalog import SourceVersion, Status, StreamTable
from headrace.errors import HeadraceError
from headrace.scheduler.network import Network
from headrace.sources.registry import Sources
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


def failed_above(
    network: Network, tables: Mapping[TableName, StreamTable], names: set[TableName]
) -> set[TableName]:
    """Name what stands in status ERROR above tables: those can follow only if it is tried again."""
    above = network.graph.upstream_of(names)
    return {name for name in above if tables[name].status is Status.ERROR}


def newest_version(sources: Sources, name: TableName) -> SourceVersion | None:
    """Give where a source stands; None where there is none, or none whose changes could be followed."""
    try:
        source = sources.find(name)
        version = source.log.newest_version()
        return None if version is None else SourceVersion(version, source.table_id(version))
    except HeadraceError:
        return None
