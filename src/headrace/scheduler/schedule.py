"""When a stream table is due: every so often, by cron, or as its readers need it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from typing import NoReturn
from zoneinfo import ZoneInfo, available_timezones

from croniter import CroniterBadDateError, CroniterError, croniter  # type: ignore[import-untyped]  # it has no types

from headrace.errors import HeadraceError, Position

_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "year": 31536000}
_SHOWN_UNITS = ("day", "hour", "minute", "second")
_UNITS = {
    spelling: unit
    for unit, spellings in {
        "second": "s sec secs second seconds",
        "minute": "m min mins minute minutes",
        "hour": "h hr hrs hour hours",
        "day": "d day days",
        "week": "w week weeks",
        "year": "y year years",
    }.items()
    for spelling in spellings.split()
}
_TERM = re.compile(r"\s*(\d{1,12}(?:\.\d{1,3})?)\s*([a-z]+)\s*(?:,|and\b)?", re.ASCII | re.IGNORECASE)
_QUOTED = r"'((?:[^']|'')*)'"
# Files beside the zones of the IANA database, of which each machine has its own or none.
_OF_THE_MACHINE = frozenset({"localtime", "posixrules", "factory"})
_CRON = re.compile(rf"CRON\s*{_QUOTED}(?:\s*TIME\s+ZONE\s*{_QUOTED})?\s*\Z", re.IGNORECASE)
# The letters that croniter takes for a random or a hashed value.
_VARYING = re.compile(r"(?<![a-z])[RH](?![a-z])", re.IGNORECASE)
# No clock is set forward or back by more than this in one night.
_MOST_SHIFT = timedelta(hours=2)
_LONGEST_SECONDS = 366 * 86400
_WRITE = "Write a duration such as '5 minutes', '90s' or '1h30m', CRON '*/5 * * * *', or DOWNSTREAM."


@dataclass(frozen=True)
class Every:
    """Contents at most this old.

    >>> str(Every(5400))
    '1 hour 30 minutes'
    """

    seconds: float

    def __str__(self) -> str:
        rest, terms = Fraction(str(self.seconds)), []
        for unit in _SHOWN_UNITS:
            size = _UNIT_SECONDS[unit]
            count = rest // size if unit != "second" else rest
            rest -= count * size
            if count:
                shown = f"{float(count):.3f}".rstrip("0").rstrip(".")
                terms.append(f"{shown} {unit}" if count == 1 else f"{shown} {unit}s")
        return " ".join(terms)


@dataclass(frozen=True)
class Cron:
    """Refreshed whenever the expression fires, read in its time zone.

    >>> str(Cron("0 6 * * *", "Europe/Rome"))
    "CRON '0 6 * * *' TIME ZONE 'Europe/Rome'"
    """

    expression: str
    time_zone: str = "UTC"

    def __str__(self) -> str:
        return f"CRON '{self.expression}' TIME ZONE '{self.time_zone}'"

    def next_after(self, moment: datetime) -> datetime:
        """The first time the expression fires after an aware moment, in UTC.

        Where the clocks go back an hour comes twice: what runs in every hour runs in both, all else in the
        first. Where they go forward, what would run in the lost hour runs as much later.

        >>> Cron("0 6 * * *", "Europe/Rome").next_after(datetime(2026, 7, 1, tzinfo=UTC)).isoformat()
        '2026-07-01T04:00:00+00:00'
        """
        zone = ZoneInfo(self.time_zone)
        wall: datetime = croniter(self.expression, _on_wall(moment, zone)).get_next(datetime)
        fires = wall.replace(tzinfo=zone).astimezone(UTC)
        if _offset(fires + _MOST_SHIFT, zone) == _offset(moment - _MOST_SHIFT, zone):
            return fires
        return self._next_around_change(moment, zone)

    def _next_around_change(self, moment: datetime, zone: ZoneInfo) -> datetime:
        """Find the next run where clocks change: times on the wall are not in order there."""
        walls = croniter(self.expression, _on_wall(moment, zone) - _MOST_SHIFT)
        found: list[datetime] = []
        while True:
            wall: datetime = walls.get_next(datetime)
            if found and wall > _on_wall(min(found), zone) + _MOST_SHIFT:
                return min(found)
            found += [run for run in self._runs_at(wall, zone) if run > moment]

    def _runs_at(self, wall: datetime, zone: ZoneInfo) -> set[datetime]:
        """Give the moments of a time on the wall at which to run: most times have one."""
        early, late = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if _on_wall(early, zone) != wall:
            return set() if _runs_every_hour(self.expression) else {early}
        return {early, late} if _runs_every_hour(self.expression) else {early}


def _on_wall(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()


@lru_cache(maxsize=10_000)
def _runs_every_hour(expression: str) -> bool:
    """Tell whether an expression names all hours, in whatever words.

    >>> [_runs_every_hour(one) for one in ("0 * * * *", "0 0-23 * * *", "@hourly", "0 */2 * * *")]
    [True, True, True, False]
    """
    hours = croniter.expand(expression)[0][1]
    return bool(hours == ["*"])


@dataclass(frozen=True)
class Downstream:
    """Refreshed when a stream table that reads it needs it."""

    def __str__(self) -> str:
        return "DOWNSTREAM"


Schedule = Every | Cron | Downstream


def parse_schedule(
    text: str,
    *,
    minimum_seconds: float = 3,
    time_zone: str = "UTC",
    position: Position | None = None,
    is_stored: bool = False,
) -> Schedule:
    """Read a schedule; `time_zone` is that of a cron expression which names none.

    One that `is_stored` was accepted when it was set, maybe by rules of that time.

    >>> parse_schedule("1h30m")
    Every(seconds=5400)
    >>> parse_schedule("CRON '0 6 * * *' TIME ZONE 'Europe/Rome'")
    Cron(expression='0 6 * * *', time_zone='Europe/Rome')
    >>> parse_schedule("downstream")
    Downstream()
    """
    stripped, given = text.strip(), time_zone
    if stripped.upper() == "DOWNSTREAM":
        return Downstream()
    if cron := _CRON.match(stripped):
        expression, zone = (part and part.replace("''", "'") for part in cron.groups())
        given = time_zone if zone is None else zone
    elif len(stripped.split()) == 5 and not _TERM.match(stripped):
        expression = stripped
    else:
        return _every(stripped, minimum_seconds, position)
    if given.strip().lower() in _OF_THE_MACHINE and not is_stored:
        _refuse(
            f"The time zone {_shown(given)} is another one on every machine.",
            hint="Name the zone that is meant, such as 'Europe/Berlin' or 'UTC'.",
            position=position,
        )
    return _cron(expression, _known_zone(given, position), minimum_seconds, position)


def _refuse(
    message: str, *, hint: str = _WRITE, position: Position | None, code: str = "invalid_schedule"
) -> NoReturn:
    raise HeadraceError(code, message, hint=hint, position=position)


def _every(text: str, minimum_seconds: float, position: Position | None) -> Every:
    seconds = _duration_seconds(text, position)
    if seconds <= 0:
        _refuse(f"{_shown(text)} is no time at all.", position=position)
    if seconds > _LONGEST_SECONDS:
        _refuse(
            f"{_shown(text)} is longer than a year.",
            hint="The longest schedule is 366 days; for less often, refresh the table by hand.",
            position=position,
        )
    if seconds < minimum_seconds:
        _refuse_too_short(f"{_shown(text)} is", minimum_seconds, position)
    return Every(int(seconds) if seconds.denominator == 1 else float(seconds))


def _refuse_too_short(subject: str, minimum_seconds: float, position: Position | None) -> NoReturn:
    shortest = Every(minimum_seconds)
    _refuse(
        f"{subject} shorter than the shortest schedule allowed, {shortest}.",
        hint=f"Write '{shortest}' or longer, or lower the setting min_schedule_seconds.",
        position=position,
        code="schedule_too_short",
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _duration_seconds(text: str, position: Position | None) -> Fraction:
    seconds, at, units = Fraction(0), 0, set[str]()
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None:
            negative = re.match(r"\s*[-\u2212]", text[at:])
            _refuse(
                f"{_shown(text)} is {'a negative duration' if negative else 'not a schedule'}.",
                position=position,
            )
        unit = _UNITS.get(term[2].lower())
        if unit is None:
            _refuse(f"{_shown(term[2])} is not a unit of time.", hint=_unit_hint(), position=position)
        if unit in units:
            _refuse(f"{_shown(text)} gives {unit}s twice.", position=position)
        units.add(unit)
        seconds += Fraction(term[1]) * _UNIT_SECONDS[unit]
        at = term.end()
    if not units:
        _refuse("The schedule is empty.", position=position)
    return seconds


def _unit_hint() -> str:
    return f"The units are {', '.join(f'{unit}s' for unit in _UNIT_SECONDS)}, or s, m, h, d, w, y."


def _cron(expression: str, time_zone: str, minimum_seconds: float, position: Position | None) -> Cron:
    fields = expression.split()
    if len(fields) != 5 and not (len(fields) == 1 and expression.startswith("@")):
        _refuse(
            f"{_shown(expression)} is not a cron expression: it has {len(fields)} fields, not 5.",
            hint="Give minute, hour, day of month, month and day of week, such as '*/5 * * * *'.",
            position=position,
        )
    if varying := _VARYING.search(expression):
        _refuse(
            f"{_shown(expression)} has the field {varying[0]}, which stands for a time chosen at random.",
            hint="Name the time, such as 17 for the minute.",
            position=position,
        )
    cron = Cron(" ".join(fields), time_zone)
    try:
        if _shortest_gap(cron) < minimum_seconds:
            _refuse_too_short(
                f"The time between two runs of {_shown(expression)} is", minimum_seconds, position
            )
    except CroniterBadDateError:
        _refuse(
            f"The cron expression {_shown(expression)} never fires.",
            hint="Give a day that exists in that month.",
            position=position,
        )
    except (CroniterError, ValueError, KeyError) as error:
        _refuse(
            f"{_shown(expression)} is not a cron expression: {str(error).rstrip('.')}.",
            hint="Give five fields, such as '*/5 * * * *' or '0 6 * * MON-FRI'.",
            position=position,
        )
    return cron


def _shortest_gap(cron: Cron) -> float:
    """The shortest time between the next few runs, in seconds."""
    runs = [cron.next_after(datetime.now(UTC))]
    for _ in range(5):
        runs.append(cron.next_after(runs[-1]))
    return min((after - before).total_seconds() for before, after in pairwise(runs))


@cache
def _zones() -> dict[str, str]:
    return {zone.lower(): zone for zone in available_timezones()}


def _known_zone(time_zone: str, position: Position | None) -> str:
    zone = _zones().get(time_zone.strip().lower())
    if zone is None:
        _refuse(
            f"There is no time zone {_shown(time_zone)}.",
            hint="Use a name of the IANA database, such as 'Europe/Berlin' or 'UTC'.",
            position=position,
        )
    return zone
