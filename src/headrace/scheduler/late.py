"""Until when contents may be as old as they are, by the schedule of their table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from headrace.scheduler.schedule import Cron, Downstream, Every, Schedule


@dataclass(frozen=True)
class Allowance:
    """From `since` on newer contents could be; from `until` on the old ones are too old."""

    since: datetime
    until: datetime

    @property
    def length(self) -> timedelta:
        return self.until - self.since


def allowance(schedule: Schedule, stamp: datetime) -> Allowance | None:
    """Tell how long contents of a moment will do; None where that is for the readers to say.

    A run of a cron expression has half of the time until the next one.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    >>> found = allowance(Cron("0 6 * * *"), noon)
    >>> found.since.isoformat(), found.until.isoformat()
    ('2026-07-02T06:00:00+00:00', '2026-07-02T18:00:00+00:00')
    """
    match schedule:
        case Every(seconds=seconds):
            return Allowance(stamp, stamp + timedelta(seconds=seconds))
        case Cron():
            return _of_run(schedule, stamp)
        case Downstream():
            return None


@lru_cache(maxsize=4096)
def _of_run(cron: Cron, stamp: datetime) -> Allowance:
    """Give the time for the first run after a moment; every look at a table that stands still asks for it."""
    run = cron.next_after(stamp)
    return Allowance(run, run + (cron.next_after(run) - run) / 2)
