"""Which columns of a source the tables of a tick need together, so that its changes are read once for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.catalog import StreamTable
from headrace.scheduler.network import Network
from headrace.sources.shared import Readers
from headrace.sql.names import TableName


def find_readers(
    network: Network, tables: Mapping[TableName, StreamTable], names: Iterable[TableName]
) -> Readers:
    """Collect the columns of each source that two tables or more read from the same version on.

    A table that is recomputed at most looks at a change, by itself; one for which AUTO may choose so counts.
    """
    wanted: dict[tuple[TableName, int], list[tuple[str, ...]]] = {}
    for name in names:
        table = tables[name]
        if table.effective_mode == "FULL" or table.reinitialize_reason is not None:
            continue
        frontier = table.frontier or {}
        for source, columns in network.columns_read.get(name, {}).items():
            at = frontier.get(str(source))
            if at is not None:
                wanted.setdefault((source, at.version), []).append(columns)
    return {at: _together(lists) for at, lists in wanted.items() if len(lists) > 1}


def _together(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Join lists of columns, the longest first: mostly it has all of them, and is then read as it is."""
    return tuple(dict.fromkeys(column for one in sorted(lists, key=len, reverse=True) for column in one))
