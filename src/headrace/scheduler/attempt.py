"""One table of one tick on a worker's thread: refreshed, found done by another, or found held by another."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.catalog import (
    Action,
    Catalog,
    Frontier,
    RefreshRecord,
    RefreshState,
    SourceVersion,
    StreamTable,
)
from headrace.errors import HeadraceError
from headrace.refresh.failure import as_headrace_error
from headrace.refresh.run import Refresher
from headrace.refresh.task import Gate
from headrace.scheduler.clock import is_ahead
from headrace.scheduler.report import Outcome, skipped
from headrace.scheduler.tick import Tick
from headrace.sql.names import TableName
from headrace.storage.marker import read_marker
from headrace.storage.table import Storage


@dataclass(frozen=True)
class Attempted:
    """How it ended and which version readers shall read; no outcome while another process is at it.

    `read` is what another process has read for it.
    """

    outcome: Outcome | None
    pin: SourceVersion | None = None
    read: Frontier | None = None


def attempt_refresh(
    catalog: Catalog,
    refresher: Refresher,
    tick: Tick,
    name: TableName,
    *,
    gate: Gate | None = None,
    is_first: bool = True,
    is_last: bool = True,
) -> Attempted:
    """Bring one table to the tick's moment, unless another process did so or is at it."""
    try:
        found = _find_elsewhere(catalog, tick, name, is_first=is_first)
        if found is not None:
            return found
        pins, full = tick.pins_for(name), name in tick.full
        result = refresher.refresh(
            name, full=full, moment=tick.moment, pins=pins, gate=gate, will_retry=not is_last
        )
        if result.action is Action.SKIPPED:
            held = catalog.lease_owner(name) is not None
            return Attempted(None if held else Outcome(stream_table=str(name), result=result))
        pin = pin_at(catalog.find(name), tick.moment)
        return Attempted(Outcome(stream_table=str(name), result=result, is_current=True), pin)
    except HeadraceError as error:
        return Attempted(Outcome(stream_table=str(name), error=error))
    except Exception as error:  # noqa: BLE001 - a worker must answer, whatever happens to one table
        return Attempted(Outcome(stream_table=str(name), error=as_headrace_error(error, name)))


def _find_elsewhere(catalog: Catalog, tick: Tick, name: TableName, *, is_first: bool) -> Attempted | None:
    """Tell what another process has done with this table for this moment; None when it is ours to do."""
    table = catalog.find(name)
    if table.data_timestamp == tick.moment and tick.before.get(name) != tick.moment:
        done = skipped(name, "another process has refreshed it for this moment", is_current=True)
        return Attempted(done, pin_at(table, tick.moment), table.frontier)
    if catalog.lease_owner(tick.elsewhere.get(name, name)) is not None:
        return Attempted(None)
    if name in tick.elsewhere:
        return Attempted(skipped(name, "another process began its diamond and did not end it"))
    last = next(iter(catalog.history(name, limit=1)), None)
    # A moment still to come stays the same until it is reached: it does not tell one try from the next.
    is_told = is_first and not is_ahead(tick.moment, datetime.now(UTC))
    if is_told and last is not None and _failed_at(last, tick.moment):
        error = HeadraceError(last.error_code or "refresh_failed", last.error or "It failed elsewhere.")
        return Attempted(Outcome(stream_table=str(name), error=error))
    return None


def _failed_at(record: RefreshRecord, moment: datetime) -> bool:
    """Tell whether a table failed for a moment; one whose process died was not tried to its end."""
    is_interrupted = record.error_code == "refresh_interrupted"
    return record.state is RefreshState.FAILED and not is_interrupted and record.data_timestamp == moment


def pin_at(table: StreamTable, moment: datetime) -> SourceVersion:
    """Find the newest version of a stream table whose contents are of a moment or an earlier one."""
    storage = Storage(table.location, table.id)
    newest = storage.log.newest_version()
    version = newest if newest is not None else -1
    for candidate in range(version, -1, -1):
        commit = storage.log.commit(candidate)
        if commit is None:
            break
        # A commit without a marker only moved rows.
        marker = read_marker(commit)
        if marker is not None and marker.data_timestamp <= moment:
            break
        if marker is not None:
            version = candidate - 1
    return SourceVersion(version, storage.table_id())
