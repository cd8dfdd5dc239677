"""One size of table and one size of change: every query in every mode, on the same changes, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import headrace
from headrace.bench.measure import Timings, in_turn
from headrace.bench.workload import Cell, Changing

MODES = ("FULL", "DIFFERENTIAL", "AUTO")
APPEND = "append"


class MismatchError(Exception):
    """A stream table differed from its query, or was not refreshed as its mode says."""


@dataclass
class Matrix:
    """Stream tables of all queries in all modes over one workload, measured cell by cell."""

    hr: headrace.Headrace
    workload: Changing
    queries: Sequence[str]
    modes: Sequence[str] = MODES
    report: Callable[[str], None] = print

    def create(self) -> None:
        """Create the stream tables that are not there yet, and load them."""
        for query in self.queries:
            for mode in self.modes:
                self.hr.create_stream_table(
                    self._table(query, mode),
                    self.workload.query(query),
                    refresh_mode=mode,
                    if_not_exists=True,
                )

    def measure(self, cell: Cell, rounds: int) -> Iterator[dict[str, object]]:
        """Change the sources round by round, refresh every table after each, and give medians by query."""
        timings: dict[str, Timings] = {query: Timings() for query in self.queries}
        actions: dict[str, set[str]] = {query: set() for query in self.queries}
        jobs: dict[str, int] = {}
        appends = Timings()
        for number in range(rounds + 1):
            self.workload.change(cell)
            appends.time(APPEND, lambda: self.workload.append(cell.changes))
            for query in self.queries:
                for mode in in_turn(self.modes, number):
                    result = self._refreshed(query, mode)
                    timings[query].add(mode, result.duration_ms / 1000)
                    if mode == "AUTO":
                        actions[query].add(str(result.action))
                    if mode == "DIFFERENTIAL":
                        jobs[query] = result.spark_jobs
            self.report(f"  round {number} of {rounds} done")
        for query in self.queries:
            self.verify(query)
            yield self._row(query, cell, timings[query], appends, sorted(actions[query]), jobs.get(query))

    def refresh(self, query: str, mode: str) -> float:
        """Refresh one table; give the seconds it took."""
        return self._refreshed(query, mode).duration_ms / 1000

    def _refreshed(self, query: str, mode: str) -> headrace.RefreshResult:
        """Refresh a table, which may not do silently what another mode is measured for."""
        result = self.hr.refresh_stream_table(self._table(query, mode))
        if mode == "DIFFERENTIAL" and str(result.action) not in ("DIFFERENTIAL", "NO_DATA"):
            raise MismatchError(f"{query} in mode {mode} was refreshed by {result.action}: {result.reason}")
        return result

    def drop(self) -> None:
        for query in self.queries:
            for mode in self.modes:
                self.hr.drop_stream_table(self._table(query, mode))

    def _row(
        self,
        query: str,
        cell: Cell,
        timings: Timings,
        appends: Timings,
        auto: Sequence[str],
        jobs: int | None,
    ) -> dict[str, object]:
        seconds = {mode: round(timings.median(mode), 3) for mode in self.modes}
        append = appends.median(APPEND)
        row: dict[str, object] = {
            "rows": cell.rows,
            "change": f"{cell.share:.1%}",
            "pattern": cell.pattern if cell.kind == "mixed" else f"{cell.pattern}, adds",
            "query": query,
            **seconds,
            APPEND: round(append, 3),
        }
        if "FULL" in seconds and "DIFFERENTIAL" in seconds:
            row["speed-up"] = round(seconds["FULL"] / seconds["DIFFERENTIAL"], 2)
            row["of append"] = round(seconds["DIFFERENTIAL"] / append, 2)
        if "AUTO" in seconds:
            best = min(seconds[mode] for mode in self.modes if mode != "AUTO")
            row |= {"AUTO of best": round(seconds["AUTO"] / best, 2), "AUTO took": ", ".join(auto)}
        return row | {"jobs": jobs}

    def verify(self, query: str) -> None:
        """Compare the stream tables of a query with it."""
        for mode in self.modes:
            found = self.hr.verify(self._table(query, mode))
            if not found.ok:
                raise MismatchError(
                    f"{query} in mode {mode}: {found.missing:,} rows missing, {found.extra:,} extra"
                )

    def _table(self, query: str, mode: str) -> str:
        return f"{self.workload.schema}.{query.replace(' + ', '_').replace(' ', '_')}_{mode.lower()}"
