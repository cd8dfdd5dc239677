"""Watches how tables fare: counts what happens, notices what falls behind, and raises the alerts for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from headrace.catalog import Action, Alert, Catalog, RefreshState, Status, StreamTable
from headrace.observe.metrics import Metrics
from headrace.scheduler.clock import canonical_period, find_runs, is_ahead
from headrace.scheduler.late import Allowance, allowance
from headrace.scheduler.network import Network
from headrace.scheduler.pace import RECENT, SHORTEST_TROUBLE, doublings_for, is_too_slow, shows_pace
from headrace.scheduler.report import Outcome
from headrace.scheduler.schedule import Cron, Every, Schedule
from headrace.scheduler.tick import Tick
from headrace.sql.names import TableName

_REMEMBERED = 1000
_CATCH_UP = timedelta(hours=1)

DESCRIBED: Mapping[str, tuple[str, str]] = {
    "refreshes_total": ("counter", "Refreshes that this process ended, by state and action."),
    "refresh_seconds_total": ("counter", "Time that refreshes took, by action."),
    "rows_total": ("counter", "Rows that refreshes inserted and deleted."),
    "alerts_total": ("counter", "Alerts that this process raised, by kind."),
    "ticks_total": ("counter", "Ticks that this process began."),
    "running_refreshes": ("gauge", "Refreshes under way in this process."),
    "stream_tables": ("gauge", "Stream tables by status."),
    "lag_seconds": ("gauge", "Age of a stream table's contents."),
    "lag_target_seconds": ("gauge", "Age that the schedule allows."),
    "period_doublings": ("gauge", "How often a table's period was doubled because it falls behind."),
    "consecutive_errors": ("gauge", "Failures of a stream table in a row."),
}


class Overseer:
    """What one scheduler learns of its tables from tick to tick."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.metrics = Metrics(DESCRIBED)
        self.tried: dict[TableName, datetime] = {}
        self.stretch: dict[TableName, int] = {}
        self._durations: dict[TableName, deque[float]] = {}
        self._late: set[TableName] = set()
        self._is_ahead = False
        self._unreadable: set[TableName] = set()
        self._too_slow: set[TableName] = set()
        catalog.on_alert(self._count_alert)

    def remember(self) -> None:
        """Learn from the history what tables took before this process began."""
        for record in reversed(self._catalog.history(limit=_REMEMBERED)):
            if record.state is RefreshState.COMPLETED and record.action and record.duration_ms is not None:
                seconds = record.duration_ms / 1000
                self._note_duration(record.stream_table, record.action, record.reason, seconds)

    def note(self, tick: Tick, name: TableName, outcome: Outcome) -> None:
        """Take in how a table ended."""
        # A moment that lies ahead was not tried then but now.
        self.tried[name] = min(tick.moment, datetime.now(UTC))
        action, result = outcome.action, outcome.result
        self.metrics.add("refreshes_total", state=str(outcome.state), action=str(action or ""))
        if result is None or action is None or outcome.state is not RefreshState.COMPLETED:
            return
        self.metrics.add("refresh_seconds_total", result.duration_ms / 1000, action=str(action))
        self.metrics.add("rows_total", result.rows_inserted, kind="inserted")
        self.metrics.add("rows_total", result.rows_deleted, kind="deleted")
        self._note_duration(name, action, result.reason, result.duration_ms / 1000)
        self._follow_pace(tick.network, name)

    def look(
        self, network: Network, tables: Mapping[TableName, StreamTable], *, now: datetime, since: datetime
    ) -> None:
        """Compare ages with lags; `since` is when somebody began to keep the tables fresh."""
        self._look_ahead(tables, now)
        self._look_at_schedules(network)
        for name, table in tables.items():
            allowed = allowance(network.schedules[name], table.data_timestamp or table.created_at)
            if allowed is None or now <= allowed.until or table.status is Status.SUSPENDED:
                self._late.discard(name)
            # After a time without a service everything is old; that is news once there was time to catch up.
            elif name not in self._late and now - since > min(allowed.length, _CATCH_UP):
                self._late.add(name)
                message = _too_old(table, allowed, network.schedules[name], now)
                self._catalog.raise_alert_once("lag_exceeded", message, name, now=now, since=allowed.until)

    def _look_at_schedules(self, network: Network) -> None:
        """Tell once of each schedule that cannot be read here, as by an older time zone database."""
        for name, error in network.unreadable.items():
            if name not in self._unreadable:
                message = f"{name} is not refreshed by itself, as its schedule cannot be read: {error}"
                self._catalog.raise_alert("refresh_failed", message, name)
        self._unreadable = set(network.unreadable)

    def _look_ahead(self, tables: Mapping[TableName, StreamTable], now: datetime) -> None:
        """Tell once of contents that are of moments still to come: while there are any, ages say little."""
        ahead = [
            table
            for table in tables.values()
            if is_ahead(table.data_timestamp, now) and table.status is not Status.SUSPENDED
        ]
        if ahead and not self._is_ahead:
            first = ahead[0]
            others = f" and of {len(ahead) - 1:,} other tables" if len(ahead) > 1 else ""
            self._catalog.raise_alert(
                "clock_ahead",
                f"The contents of {first.name}{others} are of moments still to come, such as "
                f"{first.data_timestamp}: this clock was set back, or the clock of a writer or of another "
                "service is ahead. They are refreshed nevertheless.",
                first.name if len(ahead) == 1 else None,
            )
        self._is_ahead = bool(ahead)

    def measure(
        self, network: Network, tables: Mapping[TableName, StreamTable], *, now: datetime, running: int
    ) -> None:
        """Set the gauges."""
        # The loop changes it meanwhile, on another thread.
        stretch = self.stretch.copy()
        labelled = {name: {"stream_table": str(name)} for name in tables}
        counts = dict.fromkeys(Status, 0)
        for table in tables.values():
            counts[table.status] += 1
        ages = [
            (labelled[name], max(0.0, (now - table.data_timestamp).total_seconds()))
            for name, table in tables.items()
            if table.data_timestamp is not None
        ]
        targets = [
            (labelled[name], float(schedule.seconds))
            for name, schedule in network.schedules.items()
            if isinstance(schedule, Every) and name in labelled
        ]
        errors = [(labelled[name], float(table.consecutive_errors)) for name, table in tables.items()]
        doublings = [(labelled[name], float(n)) for name, n in stretch.items() if name in labelled]
        self.metrics.replace("running_refreshes", [({}, float(running))])
        self.metrics.replace("stream_tables", [({"status": str(one)}, float(n)) for one, n in counts.items()])
        self.metrics.replace("lag_seconds", ages)
        self.metrics.replace("lag_target_seconds", targets)
        self.metrics.replace("consecutive_errors", errors)
        self.metrics.replace("period_doublings", doublings)

    def _note_duration(self, name: TableName, action: Action, reason: str, seconds: float) -> None:
        """Remember what a refresh took, where that tells how long the next one will take."""
        if shows_pace(action, reason):
            self._durations.setdefault(name, deque(maxlen=RECENT)).append(seconds)

    def _follow_pace(self, network: Network, name: TableName) -> None:
        """Let a table and those that take it along at each of their ticks have the time that it needs."""
        durations = self._durations.get(name)
        if not durations:
            return
        followers = {name}
        if max(durations) > SHORTEST_TROUBLE or self.stretch or self._too_slow:
            followers |= network.graph.downstream_of([name])
        for one in network.in_order(followers):
            match network.schedules[one]:
                case Every(seconds=lag):
                    self._stretch_period(network, one, lag)
                case Cron() as cron:
                    self._tell_too_slow(network, one, cron)

    def _slowest(self, network: Network, name: TableName) -> tuple[float, TableName]:
        """Give the longest of the last refreshes of a table and of all that it takes along, with its name."""
        known = {
            one: max(durations)
            for one in (name, *network.graph.upstream_of([name]))
            if (durations := self._durations.get(one))
        }
        slowest = max(known, key=known.__getitem__, default=name)
        return known.get(slowest, 0.0), slowest

    def _stretch_period(self, network: Network, name: TableName, lag: float) -> None:
        """Double the period of a table that needs most of it, and halve it when it has become quick again."""
        seconds, slowest = self._slowest(network, name)
        before, doublings = self.stretch.get(name, 0), doublings_for(lag, seconds)
        if doublings:
            self.stretch[name] = doublings
        else:
            self.stretch.pop(name, None)
        if doublings > before:
            period = canonical_period(lag).total_seconds()
            longer = canonical_period(lag, stretch=doublings).total_seconds()
            whose = "its period" if slowest == name else f"the period of {name}, which reads it,"
            message = (
                f"{slowest} took {seconds:,.1f} s of {whose} of {period:g} s: "
                f"{name} is refreshed every {longer:g} s until it is quicker"
            )
            self._catalog.raise_alert("falling_behind", message, name)

    def _tell_too_slow(self, network: Network, name: TableName, cron: Cron) -> None:
        """Tell once that a table needs most of the time between two of its runs, which are where they are."""
        seconds, slowest = self._slowest(network, name)
        last, upcoming = find_runs(cron, datetime.now(UTC))
        between = (upcoming - last).total_seconds()
        if not is_too_slow(seconds, between):
            self._too_slow.discard(name)
        elif name not in self._too_slow:
            self._too_slow.add(name)
            message = f"{slowest} took {seconds:,.1f} s of the {between:,.0f} s between two runs of {name}"
            self._catalog.raise_alert("falling_behind", f"{message}: give it a rarer schedule", name)

    def _count_alert(self, alert: Alert) -> None:
        self.metrics.add("alerts_total", kind=alert.kind)


def _too_old(table: StreamTable, allowed: Allowance, schedule: Schedule, now: datetime) -> str:
    age = (now - (table.data_timestamp or table.created_at)).total_seconds()
    if isinstance(schedule, Cron):
        which = f"the run of {allowed.since.isoformat()} has not brought it up to date"
    else:
        which = f"shall be at most {allowed.length.total_seconds():,.0f} s"
    never = ": it was never loaded" if table.data_timestamp is None else ""
    return f"{table.name} is {age:,.0f} s old and {which}{never}"
