"""Which stream tables are due, and at which data timestamp: canonical periods of one phase, and cron."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic

from headrace.scheduler.graph import N
from headrace.scheduler.schedule import Cron, Downstream, Every, Schedule

# Periods are 1.5·2ⁿ seconds, of which 48·2ⁿ are the longer ones: each is a multiple of all below it.
SHORTEST_PERIOD_MS = 1500
# A writer may publish a commit some moments after the time it gave it; before that a tick is not settled.
SETTLE = timedelta(milliseconds=100)
# Clocks that are kept in step differ by less; a data timestamp farther ahead of now tells of a wrong clock.
AHEAD = timedelta(seconds=5)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST_LOOK_BACK = timedelta(minutes=2)
_LONGEST_LOOK_BACK = timedelta(days=9 * 366)


@dataclass(frozen=True)
class Timed(Generic[N]):
    """What the clock knows of a stream table; `stretch` doublings make its period longer while it is slow."""

    name: N
    schedule: Schedule
    data_timestamp: datetime | None = None
    stretch: int = 0


@dataclass(frozen=True)
class Due(Generic[N]):
    """A stream table to be refreshed, and the moment its contents shall be of."""

    name: N
    data_timestamp: datetime


def canonical_period(lag: float, *, stretch: int = 0) -> timedelta:
    """Give the longest period that is at most half a lag, at least 1.5 seconds.

    >>> [canonical_period(lag).total_seconds() for lag in (3, 60, 96, 600, 86400)]
    [1.5, 24.0, 48.0, 192.0, 24576.0]
    """
    period = SHORTEST_PERIOD_MS
    while period * 4 <= lag * 1000:
        period *= 2
    return timedelta(milliseconds=period << stretch)


def tick_at(period: timedelta, moment: datetime) -> datetime:
    """Give the newest tick of a period at or before a moment; all periods start at the same instant.

    >>> tick_at(timedelta(seconds=48), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)).time().isoformat()
    '00:00:48'
    """
    length = period // _MILLISECOND
    elapsed = (moment - _EPOCH) // _MILLISECOND
    return _EPOCH + timedelta(milliseconds=elapsed // length * length)


def is_ahead(moment: datetime | None, now: datetime) -> bool:
    """Tell whether a moment lies farther ahead of now than clocks differ.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> is_ahead(noon + timedelta(seconds=2), noon), is_ahead(noon + timedelta(hours=1), noon)
    (False, True)
    """
    return moment is not None and moment > now + AHEAD


class Clock:
    """Tells what is due; keeps the last and the next run of cron expressions, which are slow to find."""

    def __init__(self) -> None:
        self._runs: dict[Cron, tuple[datetime, datetime]] = {}

    def due(self, tables: Iterable[Timed[N]], now: datetime) -> list[Due[N]]:
        """List what is due; all of it shares the newest of the data timestamps, so that it is one snapshot.

        However many ticks were missed, a table is due once. A table whose contents are of a later moment
        than its newest tick is not due: no data timestamp ever goes back.
        """
        settled = now - SETTLE
        late = []
        for table in tables:
            tick = self.newest_tick(table, settled)
            if tick is not None and (table.data_timestamp is None or table.data_timestamp < tick):
                late.append((table.name, tick))
        moment = max((tick for _, tick in late), default=settled)
        return [Due(name, moment) for name, _ in late]

    def newest_tick(self, table: Timed[N], now: datetime) -> datetime | None:
        """Give the newest moment at or before now at which a table is due by its own schedule."""
        match table.schedule:
            case Every(seconds=lag):
                return tick_at(canonical_period(lag, stretch=table.stretch), now)
            case Cron() as cron:
                return self._cron_runs(cron, now)[0]
            case Downstream():
                return None

    def next_tick(self, tables: Iterable[Timed[N]], now: datetime) -> datetime | None:
        """Give the moment at which to look again, or None when no table has a schedule of its own."""
        settled, upcoming = now - SETTLE, []
        for table in tables:
            match table.schedule:
                case Every(seconds=lag):
                    period = canonical_period(lag, stretch=table.stretch)
                    upcoming.append(tick_at(period, settled) + period)
                case Cron() as cron:
                    upcoming.append(self._cron_runs(cron, settled)[1])
        return min(upcoming) + SETTLE if upcoming else None

    def _cron_runs(self, cron: Cron, now: datetime) -> tuple[datetime, datetime]:
        known = self._runs.get(cron)
        if known is None or not known[0] <= now < known[1]:
            known = self._runs[cron] = find_runs(cron, now)
        return known


def find_runs(cron: Cron, now: datetime) -> tuple[datetime, datetime]:
    """Give the last run of an expression at or before a moment, and the first after it.

    Runs are counted forward from further and further back: so they are the runs that `next_after` gives.

    >>> runs = find_runs(Cron("30 2 * * *", "Europe/Berlin"), datetime(2026, 7, 1, 12, tzinfo=UTC))
    >>> [run.isoformat() for run in runs]
    ['2026-07-01T00:30:00+00:00', '2026-07-02T00:30:00+00:00']
    """
    back = _FIRST_LOOK_BACK
    while True:
        last, upcoming = None, cron.next_after(now - back)
        while upcoming <= now:
            last, upcoming = upcoming, cron.next_after(upcoming)
        if last is not None:
            return last, upcoming
        if back > _LONGEST_LOOK_BACK:
            return _EPOCH, upcoming
        back *= 8
