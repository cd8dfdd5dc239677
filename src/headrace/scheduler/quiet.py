"""Tables for which a tick has nothing to do, told by versions alone: no Spark job, no lease, no query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from headrace.catalog import SourceVersion, Status, StreamTable
from headrace.errors import HeadraceError
from headrace.scheduler.network import Network
from headrace.sources.log import DeltaLog
from headrace.sql.functions import TIME, TIME_WITHOUT_ARGUMENTS
from headrace.sql.names import TableName

REASON = "no source changed"
_CLOCK = re.compile(rf"\b({'|'.join(sorted(TIME | TIME_WITHOUT_ARGUMENTS))})\b", re.IGNORECASE)


def find_quiet(
    network: Network,
    tables: Mapping[TableName, StreamTable],
    names: Iterable[TableName],
    pins: Mapping[str, SourceVersion],
) -> dict[TableName, SourceVersion]:
    """Find the tables whose sources stand where their frontiers are; each with the version of its storage.

    `names` come in order, so that a table over quiet ones is seen to be quiet, too. A doubt of any kind, such
    as a version that we did not write, leaves the table to a refresh of its own.
    """
    quiet: dict[TableName, SourceVersion] = {}
    known = dict(pins)
    for name in names:
        table = tables[name]
        if name in network.read_views or not _stands(table, network.graph.reads[name], known):
            continue
        if _newest_version(table) == table.storage_version:
            quiet[name] = known[str(name)] = storage_pin(table)
    return quiet


def _newest_version(table: StreamTable) -> int | None:
    try:
        return DeltaLog(table.location).newest_version()
    except HeadraceError:
        return None


def storage_pin(table: StreamTable) -> SourceVersion:
    """Give the version of a table's own storage that the catalog knows."""
    assert table.storage_version is not None
    return SourceVersion(table.storage_version, table.table_id or "")


def _stands(table: StreamTable, reads: Iterable[TableName], known: Mapping[str, SourceVersion]) -> bool:
    if table.status is not Status.ACTIVE or table.frontier is None or table.storage_version is None:
        return False
    if table.reinitialize_reason is not None or table.data_timestamp is None:
        return False
    frontier = table.frontier
    if any(str(one) not in known or known[str(one)] != frontier.get(str(one)) for one in reads):
        return False
    return not _reads_the_clock(table.expanded_query)


@lru_cache(maxsize=10_000)
def _reads_the_clock(query: str) -> bool:
    """Tell whether a query may depend on the current time; a column of such a name counts as well.

    >>> _reads_the_clock("SELECT current_date() AS d"), _reads_the_clock("SELECT a FROM t")
    (True, False)
    """
    return _CLOCK.search(query) is not None
