"""The service: ticks by the clock and by new versions, until it is told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from headrace.catalog import Catalog, StreamTable
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.refresh.recover import recover_all
from headrace.refresh.run import Refresher
from headrace.scheduler.dispatch import OnOutcome
from headrace.scheduler.network import Network
from headrace.scheduler.overseer import Overseer
from headrace.scheduler.plan import Memory, Plan, plan_due, plan_tables, timed_table
from headrace.scheduler.report import Outcome
from headrace.scheduler.run import Scheduler
from headrace.scheduler.tick import Tick
from headrace.scheduler.wake import Wakes
from headrace.sql.names import TableName

_log = logging.getLogger("headrace.service")
# How often the logs of sources are looked at for the tables that a new version wakes.
_WATCH_SECONDS = 0.1
_LONGEST_PAUSE = 15.0


class Service:
    """Keeps the stream tables of one catalog fresh, together with other services on the same catalog."""

    def __init__(
        self,
        catalog: Catalog,
        refresher: Refresher,
        scheduler: Scheduler,
        *,
        sync: Callable[[], None],
        reload: Callable[[], Settings | None] = lambda: None,
        on_outcome: OnOutcome = lambda _tick, _name, _outcome: None,
    ) -> None:
        self._catalog = catalog
        self._refresher = refresher
        self._scheduler = scheduler
        self._sync = sync
        self._reload = reload
        self._tell = on_outcome
        self.overseer = Overseer(catalog)
        self._dispatcher = scheduler.dispatcher(self._on_outcome)
        self._retries = scheduler.retries()
        self._wakes = Wakes(refresher.sources)
        self._ticks: list[tuple[Tick, ExitStack]] = []
        self._stop = threading.Event()
        self._began = datetime.now(UTC)
        self._looked = time.monotonic()
        self._next_look = 0.0
        self._next_recovery = 0.0
        self._trouble: str | None = None
        self._failures = 0
        self._has_remembered = False

    @property
    def settings(self) -> Settings:
        return self._scheduler.settings

    def stop(self) -> None:
        """Begin nothing more and end when what is under way has ended; any thread may ask for it."""
        self._stop.set()
        self._dispatcher.wake()

    def run(self) -> None:
        """Work until `stop`."""
        try:
            while not self._stop.is_set():
                pause = self._turn()
                self._step(pause)
        finally:
            try:
                self._dispatcher.drain("the service is stopping")
            finally:
                self._close_ticks(every=True)

    def health(self) -> Mapping[str, Any]:
        """Say whether the service does its work."""
        silent = time.monotonic() - self._looked
        is_stuck = silent > max(30.0, 10 * self.settings.scheduler_interval_ms / 1000)
        trouble = self._trouble or ("the loop does not turn" if is_stuck else None)
        return {
            "status": "failing" if trouble else ("stopping" if self._stop.is_set() else "ok"),
            "trouble": trouble,
            "running": sorted(str(name) for name in list(self._dispatcher.running)),
            "seconds_since_look": round(silent, 3),
        }

    def metrics(self) -> str:
        """Give the metrics as of now; without a catalog, those of the last look."""
        try:
            network, tables = self._scheduler.networks.look()
            running = len(self._dispatcher.running)
            self.overseer.measure(network, tables, now=datetime.now(UTC), running=running)
        except HeadraceError as error:
            _log.debug("metrics are old: %s", error)
        return self.overseer.metrics.render()

    def _turn(self) -> float:
        """Look for work once; give the seconds until the next look."""
        try:
            self._take_settings()
            pause = self._look() if self.settings.enabled else 1.0
        except Exception as error:  # noqa: BLE001 - whatever happens to one look, the service goes on
            return self._pause_after(error)
        if self._trouble is not None:
            _log.warning("working again after: %s", self._trouble)
        self._trouble, self._failures, self._looked = None, 0, time.monotonic()
        return pause

    def _pause_after(self, error: Exception) -> float:
        self._failures += 1
        self._looked = time.monotonic()
        if self._failures == 1 or str(error) != self._trouble:
            is_known = isinstance(error, HeadraceError)
            _log.warning("cannot look for work: %s", error, exc_info=None if is_known else error)
        self._trouble = str(error)
        self._next_look = 0.0
        return min(_LONGEST_PAUSE, 0.25 * (1 << min(self._failures, 6)))

    def _step(self, pause: float) -> None:
        try:
            self._dispatcher.step(pause)
            self._close_ticks()
        except Exception as error:  # noqa: BLE001 - whatever happens to one outcome, the service goes on
            is_known = isinstance(error, HeadraceError)
            _log.warning(
                "cannot write down how a refresh ended: %s", error, exc_info=None if is_known else error
            )
            self._trouble = str(error)

    def _look(self) -> float:
        """Plan what is due, if anything may be."""
        if not self._wakes.notice() and time.monotonic() < self._next_look:
            return self._pause()
        now = datetime.now(UTC)
        self._remember()
        self._recover()
        self._sync()
        network, tables = self._scheduler.networks.look()
        self._wakes.follow(network, tables, self.overseer.tried)
        self.overseer.look(network, tables, now=now, since=self._began)
        busy = self._dispatcher.busy
        memory = Memory(busy, self.overseer.tried, self.overseer.stretch)
        policy = self.settings.diamond_schedule_policy
        clock = self._scheduler.clock
        again = self._retries.ready(network, tables, now) - busy
        plan = plan_due(network, tables, clock, at=now, now=now, policy=policy, memory=memory, again=again)
        self._start(network, tables, plan)
        self._catch_up(now)
        timed = [timed_table(table, network, memory, now) for table in tables.values()]
        times = [clock.next_tick(timed, now), self._retries.next_time(now)]
        upcoming = min((one for one in times if one is not None), default=None)
        longest = self.settings.scheduler_interval_ms / 1000
        wait = longest if upcoming is None else (upcoming - datetime.now(UTC)).total_seconds()
        self._next_look = time.monotonic() + min(longest, max(0.01, wait))
        return self._pause()

    def _catch_up(self, now: datetime) -> None:
        """Refresh what new versions of sources woke: IMMEDIATE tables, and what may work again."""
        if not self._wakes.notice():
            return
        network, tables = self._scheduler.networks.look()
        busy = self._dispatcher.busy
        woken = self._wakes.take(network, tables, busy)
        self._start(network, tables, plan_tables(network, tables, woken, moment=now, busy=busy))

    def _pause(self) -> float:
        until = max(0.0, self._next_look - time.monotonic())
        return min(until, _WATCH_SECONDS) if self._wakes.is_watching else until

    def _start(self, network: Network, tables: Mapping[TableName, StreamTable], plan: Plan | None) -> None:
        for part in plan.parts if plan is not None else ():
            self._start_part(network, tables, part)

    def _start_part(self, network: Network, tables: Mapping[TableName, StreamTable], plan: Plan) -> None:
        with ExitStack() as locks:
            tick = locks.enter_context(self._scheduler.begin(network, tables, plan))
            settled = {name: outcome for name, outcome in tick.outcomes.items() if outcome.is_current}
            self._dispatcher.add(tick)
            # A tick that could not be begun, since the catalog went away, must not keep its locks.
            self._ticks.append((tick, locks.pop_all()))
        self.overseer.metrics.add("ticks_total")
        for name, outcome in settled.items():
            self._on_outcome(tick, name, outcome)

    def _close_ticks(self, *, every: bool = False) -> None:
        for tick, locks in self._ticks:
            if every or tick.is_done:
                locks.close()
        self._ticks = [pair for pair in self._ticks if not (every or pair[0].is_done)]

    def _remember(self) -> None:
        """Take up what services before this one knew, once the catalog can be asked."""
        if not self._has_remembered:
            self.overseer.remember()
            self._has_remembered = True

    def _recover(self) -> None:
        """Take over from dead processes: adopt what they committed, mark what they left as failed."""
        now = time.monotonic()
        if now >= self._next_recovery:
            ttl = self.settings.lease_ttl_seconds
            recover_all(self._catalog, ttl_seconds=ttl)
            self._next_recovery = now + ttl / 3
        self._scheduler.forget_old()

    def _take_settings(self) -> None:
        settings = self._reload()
        if settings is None or settings == self.settings:
            return
        self._scheduler.use(settings)
        self._refresher.use(settings)
        self._next_look = 0.0
        _log.info("settings were read anew")

    def _on_outcome(self, tick: Tick, name: TableName, outcome: Outcome) -> None:
        self.overseer.note(tick, name, outcome)
        self._retries.note(name, outcome, moment=tick.moment, now=datetime.now(UTC))
        self._tell(tick, name, outcome)
