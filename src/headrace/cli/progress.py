"""How far a run is, as a line at the foot of a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from headrace.scheduler.tick import Tick
    from headrace.sql.names import TableName


class Progress:
    """The tables of one run: how many are done, which are under way, how many wait."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tick: Tick | None = None
        self._tables: list[TableName] = []
        self._running: Mapping[TableName, float] = {}

    def begin(self, tick: Tick, running: Mapping[TableName, float]) -> None:
        """Follow a run from now on; `running` holds its tables that are under way."""
        self._tables = [*tick.outcomes, *tick.network.in_order(tick.open)]
        self._running, self._tick = running, tick

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the line while a block runs, on a terminal only."""
        if not self._console.is_terminal:
            yield
            return
        with Live(
            get_renderable=lambda: Text(self.line(), overflow="ellipsis", no_wrap=True),
            console=self._console,
            refresh_per_second=4,
            transient=True,
        ):
            yield

    def line(self) -> str:
        """Say it as of now; another thread may be at the tables."""
        if self._tick is None:
            return "looking for what is due …"
        outcomes = self._tick.outcomes
        # Looked up one by one: the dictionaries change while this runs.
        ended = [outcomes[name] for name in self._tables if name in outcomes]
        running = [name for name in self._tables if name in self._running and name not in outcomes]
        states = Counter(str(outcome.state).lower() for outcome in ended)
        done = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
        parts = [f"{len(ended):,} of {len(self._tables):,} done{f' ({done})' if done else ''}"]
        if running:
            parts.append(f"refreshing {', '.join(map(str, running))}")
        waiting = len(self._tables) - len(ended) - len(running)
        return "; ".join([*parts, *([f"{waiting:,} waiting"] if waiting else [])])
