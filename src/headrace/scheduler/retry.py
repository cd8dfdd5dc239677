"""When tables that could not be refreshed are tried again, without waiting for their own next tick."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import takewhile

from headrace.catalog import RefreshRecord, RefreshState, Status, StreamTable
from headrace.refresh.blame import MAY_END_BY_ITSELF, blame, may_end_by_itself
from headrace.scheduler.network import Network
from headrace.scheduler.report import Outcome
from headrace.sql.names import TableName

# The pause after the first failed tick, and the longest one; each is up to a quarter shorter, by chance.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
# A tick fails with up to three tries, and after seven ticks the pause grows no more.
_LOOKED_BACK = 24
_FAR = timedelta(seconds=LONGEST_PAUSE)

History = Callable[[TableName, int], Sequence[RefreshRecord]]
"""Gives the newest refreshes of a table, the newest first."""


def pause_after(failures: int) -> timedelta:
    """Give the time to wait after so many failed ticks in a row."""
    seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 10))
    return timedelta(seconds=seconds * random.uniform(0.75, 1))


@dataclass(frozen=True)
class _Failed:
    """A table as it failed: known until it is refreshed again, tried again at a time or not at all."""

    seen: datetime | None
    at: datetime | None


@dataclass(frozen=True)
class _Passed:
    """A table that did not reach a moment, for a reason that may go or that the catalog was not told."""

    moment: datetime
    at: datetime
    times: int = 1


@dataclass
class Retries:
    """Tells which tables may be tried again: by the history, and by how they ended in this process."""

    history: History
    _failed: dict[TableName, _Failed] = field(default_factory=dict)
    _passed: dict[TableName, _Passed] = field(default_factory=dict)
    _given: set[TableName] = field(default_factory=set)

    def note(self, name: TableName, outcome: Outcome, *, moment: datetime, now: datetime) -> None:
        """Take in how a table ended; one that was free to go and did not waits longer the next time."""
        before = self._passed.pop(name, None)
        if _may_go_later(outcome):
            times = before.times + 1 if before is not None and name in self._given else 1
            self._passed[name] = _Passed(moment, now + pause_after(times), times)
        self._given.discard(name)

    def ready(
        self, network: Network, tables: Mapping[TableName, StreamTable], now: datetime
    ) -> set[TableName]:
        """Name the tables whose time has come, and that move with none that fails."""
        self._follow(tables, now)
        times = {name: self._time(name) for name in (*self._failed, *self._passed)}
        due = {
            name
            for name, at in times.items()
            if at is not None and at <= now and not network.paces[name].never
        }
        self._given = {name for name in due if _is_free(network, tables, name, due & self._failed.keys())}
        return set(self._given)

    def next_time(self, now: datetime) -> datetime | None:
        """Give the next moment at which a table may be tried."""
        times = [self._time(name) for name in (*self._failed, *self._passed)]
        return min((at for at in times if at is not None and at > now), default=None)

    def _time(self, name: TableName) -> datetime | None:
        failed, passed = self._failed.get(name), self._passed.get(name)
        if failed is not None and failed.at is None:
            return None
        return max(one.at for one in (failed, passed) if one is not None and one.at is not None)

    def _follow(self, tables: Mapping[TableName, StreamTable], now: datetime) -> None:
        """Learn of new failures, and forget what has been refreshed, suspended or dropped."""
        failing = {
            name
            for name, table in tables.items()
            if table.last_error is not None and table.status is not Status.SUSPENDED
        }
        known = {name: one for name, one in self._failed.items() if name in failing}
        for name in failing:
            before, seen = known.get(name), tables[name].last_refresh_at
            # A clock that was set back makes the time a far one: it is found again.
            is_far = before is not None and before.at is not None and before.at - now > _FAR
            if before is None or before.seen != seen or is_far:
                known[name] = _Failed(seen, self._time_after_failures(name, now))
        self._failed = known
        self._passed = {
            name: one if one.at - now <= _FAR else replace(one, at=now)
            for name, one in self._passed.items()
            if name in tables and not _is_over(one, tables[name])
        }

    def _time_after_failures(self, name: TableName, now: datetime) -> datetime | None:
        """Give the time of the next try, or None where it fails until somebody corrects it."""
        records = [one for one in self.history(name, _LOOKED_BACK) if one.state is not RefreshState.SKIPPED]
        if not records:
            return now
        failed = list(takewhile(lambda one: one.state is RefreshState.FAILED, records))
        if not failed or not may_end_by_itself(failed[0]):
            return None
        ended = min(failed[0].ended_at or now, now)
        return ended + pause_after(len({one.data_timestamp for one in failed}))


def _may_go_later(outcome: Outcome) -> bool:
    if outcome.error is not None:
        return blame(outcome.error) in MAY_END_BY_ITSELF
    return outcome.state is RefreshState.SKIPPED and not outcome.is_current


def _is_over(one: _Passed, table: StreamTable) -> bool:
    is_refreshed = table.data_timestamp is not None and table.data_timestamp >= one.moment
    return is_refreshed or table.status is Status.SUSPENDED


def _is_free(
    network: Network, tables: Mapping[TableName, StreamTable], name: TableName, tried: set[TableName]
) -> bool:
    """Tell whether a table moves with none that fails, but for those tried too, and reads none suspended."""
    whole = network.group_of.get(name, frozenset({name}))
    above = network.graph.upstream_of([name])
    if any(tables[one].status is Status.SUSPENDED for one in above):
        return False
    others = (network.graph.upstream_of(whole) | whole) - {name} - tried
    return all(_is_well(tables[one]) for one in others)


def _is_well(table: StreamTable) -> bool:
    fails = table.last_error is not None or table.status is Status.ERROR
    return table.status is Status.SUSPENDED or not fails
