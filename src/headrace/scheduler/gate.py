"""The gate before a commit: the tables through which a diamond is read become visible together."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from headrace.refresh.task import Withheld
from headrace.scheduler.network import Network
from headrace.sql.names import TableName


class Gate:
    """Holds computed changes back until all of its tables have theirs; one failure withholds the rest.

    A table that computes while it writes (a full refresh) may fail until it has committed: those go first,
    and the changes that are ready follow when they are through.
    """

    def __init__(self, tables: Iterable[TableName]) -> None:
        self._condition = threading.Condition()
        self._awaited = set(tables)
        self._writing: set[TableName] = set()
        self._failure: str | None = None

    def pass_through(self, name: TableName, *, computes_while_writing: bool) -> None:
        """Wait for the others; raise Withheld when one of them failed."""
        with self._condition:
            self._awaited.discard(name)
            if computes_while_writing:
                self._writing.add(name)
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._decided(computes_while_writing))
            if self._failure is not None:
                raise Withheld(self._failure)

    def leave(self, name: TableName, failure: str | None) -> None:
        """Note that a table has ended, whether or not it came to the gate."""
        with self._condition:
            self._awaited.discard(name)
            self._writing.discard(name)
            if failure is not None and self._failure is None:
                self._failure = f"{name}, which is read together with it, {failure}"
            self._condition.notify_all()

    def close(self, reason: str) -> None:
        """Let nobody through from now on."""
        with self._condition:
            self._failure = self._failure or reason
            self._condition.notify_all()

    def _decided(self, computes_while_writing: bool) -> bool:
        if self._failure is not None:
            return True
        return not self._awaited and (computes_while_writing or not self._writing)


def make_gates(network: Network, tables: set[TableName]) -> dict[TableName, Gate]:
    """Make a gate for each wave of each diamond: its tables that stand equally far above the tip.

    A table never waits for one nearer to the tip, which may read it; so no two waves wait for each other.
    """
    gates: dict[TableName, Gate] = {}
    for group in network.groups:
        members = group & tables
        waves: dict[int, list[TableName]] = {}
        distance: dict[TableName, int] = {}
        for name in reversed(network.in_order(members)):
            below = [distance[one] for one in network.graph.readers[name] if one in members]
            distance[name] = 1 + max(below, default=-1)
            waves.setdefault(distance[name], []).append(name)
        for wave in waves.values():
            if len(wave) > 1:
                gate = Gate(wave)
                gates |= dict.fromkeys(wave, gate)
    return gates
