"""Starts each table of the ticks under way as soon as those it reads are done, most urgent first."""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from headrace.catalog import Action, Catalog, SourceVersion
from headrace.errors import HeadraceError
from headrace.refresh.blame import Blame, blame
from headrace.refresh.run import Refresher
from headrace.scheduler.attempt import Attempted, attempt_refresh
from headrace.scheduler.report import Outcome, skipped
from headrace.scheduler.tick import Tick
from headrace.scheduler.workers import Workers
from headrace.sql.names import TableName

_log = logging.getLogger(__name__)

# What may pass by itself is tried so often within one tick.
TRIES = 3
_FIRST_PAUSE = 0.5
# How soon to look again at a table that another process is refreshing: at first, and at the latest.
_FIRST_LOOK, _LAST_LOOK = 0.02, 0.2
# Tables without a lag of their own or of a reader come last.
_NO_LAG = float("inf")

OnOutcome = Callable[[Tick, TableName, Outcome], None]


@dataclass(order=True)
class _Job:
    """A table that may start at a time; of two, the one with the shorter lag comes first."""

    lag: float
    number: int
    tick: Tick = field(compare=False)
    name: TableName = field(compare=False)
    tries: int = field(default=0, compare=False)
    pause: float = field(default=_FIRST_LOOK, compare=False)
    """Until the next look, where another process is at it."""
    held_since: float | None = field(default=None, compare=False)


class Dispatcher:
    """Carries any number of ticks at once; all but the refreshes themselves happens in one thread."""

    def __init__(
        self,
        catalog: Catalog,
        refresher: Refresher,
        workers: Workers,
        on_outcome: OnOutcome = lambda _tick, _name, _outcome: None,
    ) -> None:
        self._catalog = catalog
        self._refresher = refresher
        self._workers = workers
        self._on_outcome = on_outcome
        self._ticks: list[Tick] = []
        self._ready: list[_Job] = []
        self._later: list[tuple[float, int, _Job]] = []
        self._events: queue.SimpleQueue[tuple[_Job, Attempted] | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._abandoned: str | None = None
        self.running: dict[TableName, float] = {}

    @property
    def busy(self) -> set[TableName]:
        """The tables of all ticks under way that have not ended yet."""
        return {name for tick in self._ticks for name in tick.open}

    def add(self, tick: Tick) -> None:
        """Take a tick on; what it skips from the start is written down."""
        skipped = {name: one.reason for name, one in tick.outcomes.items() if not one.is_current}
        self._note_skipped(tick, skipped)
        self._ticks.append(tick)
        self._collect_ready(tick)

    def run(self, tick: Tick) -> None:
        """Carry one tick to its end; who breaks it off leaves nothing of it under way."""
        try:
            self.add(tick)
            while not tick.is_done:
                self.step(None)
        except BaseException:
            self.drain("the run was broken off")
            raise

    def step(self, timeout: float | None, *, start: bool = True) -> None:
        """Start what there is room for, then wait for one event, at most so many seconds."""
        self._wake_later()
        if start:
            self._start_ready()
        pause = timeout
        if self._later:
            until = max(0.0, self._later[0][0] - time.monotonic())
            pause = until if pause is None else min(pause, until)
        if start and self._ready:
            # The work of others may take all the room, and nobody tells us when it ends.
            pause = _LAST_LOOK if pause is None else min(pause, _LAST_LOOK)
        try:
            event = self._events.get(timeout=pause) if pause != 0 else self._events.get_nowait()
        except queue.Empty:
            return
        if event is not None:
            self._end(*event)
        self._ticks = [tick for tick in self._ticks if not tick.is_done]

    def abandon(self, reason: str) -> None:
        """Begin nothing more: what has not started is left as it is, and nobody waits for it at a gate."""
        self._abandoned = reason
        self._ready.clear()
        self._later.clear()
        for tick in self._ticks:
            for name in tick.network.in_order(tick.open - self.running.keys()):
                if name in tick.open:
                    tick.finish(name, skipped(name, reason), None)

    def drain(self, reason: str) -> None:
        """Begin nothing more, and wait until what runs has ended."""
        self.abandon(reason)
        gates = {gate for tick in self._ticks for gate in tick.gates.values()}
        try:
            while self.running:
                self._step_quietly()
        finally:
            # Where the wait is interrupted, nobody listens any more to those that others wait for.
            for gate in gates:
                gate.close(reason)

    def _step_quietly(self) -> None:
        try:
            self.step(1.0, start=False)
        except Exception as error:  # noqa: BLE001 - the others must come to their end whatever happens to one
            _log.warning("cannot write down how a refresh ended: %s", error)

    def wake(self) -> None:
        """End the wait of `step`, from any thread."""
        self._events.put(None)

    def _start_ready(self) -> None:
        while self._ready:
            job = self._ready[0]
            if not self._workers.start(partial(self._work, job), partial(self._tell, job)):
                return
            heapq.heappop(self._ready)
            self.running[job.name] = time.monotonic()

    def _tell(self, job: _Job, done: Attempted) -> None:
        self._events.put((job, done))

    def _work(self, job: _Job) -> Attempted:
        gate = job.tick.gates.get(job.name)

        def hold(action: Action) -> None:
            assert gate is not None
            with self._workers.waiting():
                self.wake()
                gate.pass_through(job.name, computes_while_writing=action is not Action.DIFFERENTIAL)

        return attempt_refresh(
            self._catalog,
            self._refresher,
            job.tick,
            job.name,
            gate=hold if gate is not None else None,
            is_first=job.tries == 0,
            is_last=job.tries + 1 == TRIES,
        )

    def _end(self, job: _Job, done: Attempted) -> None:
        self.running.pop(job.name, None)
        if done.outcome is None and self._abandoned is not None:
            self._finish(job.tick, job.name, skipped(job.name, self._abandoned), None)
            return
        if done.outcome is None:
            self._wait_for_others(job)
            return
        job.held_since = None
        job.tries += 1
        error = done.outcome.error
        may_pass = error is not None and blame(error) is Blame.SYSTEM
        if may_pass and job.tries < TRIES and self._abandoned is None:
            pause = _FIRST_PAUSE * 2**job.tries
            self._again(job, pause * random.uniform(0.5, 1.5))
            return
        if done.read is not None:
            job.tick.read_elsewhere[job.name] = done.read
        self._finish(job.tick, job.name, replace(done.outcome, attempts=job.tries), done.pin)

    def _wait_for_others(self, job: _Job) -> None:
        """Look again soon, or give up what they have kept for longer than the tick waits for anything."""
        now = time.monotonic()
        job.held_since = now if job.held_since is None else job.held_since
        if now - job.held_since >= job.tick.patience:
            self._finish(job.tick, job.name, Outcome(stream_table=str(job.name), error=_kept(job)), None)
            return
        self._again(job, job.pause)
        job.pause = min(2 * job.pause, _LAST_LOOK)

    def _finish(self, tick: Tick, name: TableName, outcome: Outcome, pin: SourceVersion | None) -> None:
        reasons = tick.finish(name, outcome, pin)
        # What may start is known before anything is written: the catalog may be away.
        self._collect_ready(tick)
        self._on_outcome(tick, name, outcome)
        self._note_skipped(tick, reasons)

    def _note_skipped(self, tick: Tick, reasons: dict[TableName, str]) -> None:
        if not reasons:
            return
        self._catalog.note_skipped(reasons, tick.moment)
        for name in reasons:
            self._on_outcome(tick, name, tick.outcomes[name])

    def _collect_ready(self, tick: Tick) -> None:
        for name in tick.take_ready():
            lag = tick.network.paces[name].lag
            heapq.heappush(
                self._ready, _Job(_NO_LAG if lag is None else lag, next(self._numbers), tick, name)
            )

    def _again(self, job: _Job, pause: float) -> None:
        heapq.heappush(self._later, (time.monotonic() + pause, job.number, job))

    def _wake_later(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappush(self._ready, heapq.heappop(self._later)[2])


def _kept(job: _Job) -> HeadraceError:
    return HeadraceError(
        "stream_table_busy",
        f"Another process has kept {job.name} for {job.tick.patience:g} seconds and has not ended.",
        hint="Try again when it has.",
    )
