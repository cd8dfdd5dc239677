"""One tick under way: which tables may start, what is pinned for its moment, and how each ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from headrace.catalog import Frontier, SourceVersion
from headrace.scheduler.gate import Gate, make_gates
from headrace.scheduler.network import Network
from headrace.scheduler.plan import Plan
from headrace.scheduler.report import Outcome, TickReport, skipped
from headrace.sql.names import TableName


class Tick:
    """The state of one plan; it starts nothing itself and is used by one thread."""

    def __init__(
        self,
        plan: Plan,
        network: Network,
        pins: Mapping[str, SourceVersion],
        *,
        before: Mapping[TableName, datetime | None] | None = None,
        full: Iterable[TableName] = (),
        patience: float = math.inf,
    ) -> None:
        self.moment = plan.moment
        self.pins = dict(pins)
        self.network = network
        self.full = frozenset(full)
        # How many seconds a table that another process keeps is waited for.
        self.patience = patience
        # The data timestamps at the time of planning, and the locks of diamonds that others have.
        self.before = dict(before or {})
        self.elsewhere: dict[TableName, str] = {}
        # How to give back the locks that we have: each as soon as the tables of its diamond have ended.
        self.locks: dict[frozenset[TableName], Callable[[], None]] = {}
        # What other processes have read for the tables that they brought to the moment.
        self.read_elsewhere: dict[TableName, Frontier] = {}
        self.outcomes: dict[TableName, Outcome] = {}
        self._began = time.perf_counter()
        self._started: set[TableName] = set()
        inside = set(plan.tables)
        self._waits = {
            name: {one for one in network.graph.upstreams[name] if one in inside} for name in plan.tables
        }
        self.gates: dict[TableName, Gate] = make_gates(network, inside)
        for name, reason in plan.blocked.items():
            self.outcomes[name] = skipped(name, reason)

    @property
    def open(self) -> set[TableName]:
        """The tables that have not ended yet."""
        return self._waits.keys() - self.outcomes.keys()

    @property
    def is_done(self) -> bool:
        return not self.open

    def pins_for(self, name: TableName) -> Mapping[str, SourceVersion]:
        """Give the versions that a table shall read: those that another process has read above it, and ours.

        Where clocks differ, a process may pin the same moment before a commit that another one still sees.
        """
        above = self.network.graph.upstream_of([name])
        pins = dict(self.pins)
        for one in reversed(self.network.in_order(one for one in above if one in self.read_elsewhere)):
            pins |= self.read_elsewhere[one]
        return pins

    def take_ready(self) -> list[TableName]:
        """Give the tables that may start now, each once."""
        ready = [name for name in self._waits if name not in self._started and self._may_start(name)]
        self._started.update(ready)
        return ready

    def _may_start(self, name: TableName) -> bool:
        return not self._waits[name] and name not in self.outcomes

    def finish(self, name: TableName, outcome: Outcome, pin: SourceVersion | None) -> dict[TableName, str]:
        """Note how a table ended; give the readers that are skipped for it, with the reason."""
        reasons = self._note(name, outcome, pin)
        still = self.open if self.locks else set()
        for diamond in [one for one in self.locks if one.isdisjoint(still)]:
            self.locks.pop(diamond)()
        return reasons

    def _note(self, name: TableName, outcome: Outcome, pin: SourceVersion | None) -> dict[TableName, str]:
        self.outcomes[name] = outcome
        self._leave_gate(name, outcome)
        if outcome.is_current and pin is not None:
            self.pins[str(name)] = pin
            for reader in self.network.graph.readers[name]:
                if reader in self._waits:
                    self._waits[reader].discard(name)
            return {}
        reasons = {}
        below = self.network.graph.downstream_of([name]) & self.open
        for reader in self.network.in_order(below):
            reasons[reader] = f"{name}, which it reads, {_what_happened(outcome)}"
            self.outcomes[reader] = skipped(reader, reasons[reader])
            self._leave_gate(reader, self.outcomes[reader])
        return reasons

    def _leave_gate(self, name: TableName, outcome: Outcome) -> None:
        if name in self.gates:
            self.gates[name].leave(name, None if outcome.is_current else _what_happened(outcome))

    def report(self) -> TickReport:
        return TickReport(
            data_timestamp=self.moment,
            outcomes=tuple(self.outcomes.values()),
            duration_ms=(time.perf_counter() - self._began) * 1000,
        )


def _what_happened(outcome: Outcome) -> str:
    if outcome.error is not None:
        return f"failed: {outcome.error.message}"
    return f"was skipped: {outcome.reason}"
