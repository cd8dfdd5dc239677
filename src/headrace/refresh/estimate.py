"""What a choice between the change and the whole is made by: rows now, and what the history measured."""

from __future__ import annotations

from headrace.catalog import Catalog, SourceVersion
from headrace.delta.statements import Route, change_statements
from headrace.plan.build import Plan
from headrace.refresh.choice import Figures, gather, measured_of
from headrace.refresh.sizes import RowCounts
from headrace.refresh.task import Decision, Task
from headrace.sources.changes import estimate_changes
from headrace.sources.registry import Sources
from headrace.sql.names import TableName


class Estimates:
    """Estimates refreshes of one connection, which counts the rows of each source once."""

    def __init__(self, catalog: Catalog, sources: Sources) -> None:
        self._catalog = catalog
        self._sources = sources
        self._row_counts = RowCounts()

    def figures(self, task: Task, changed: list[TableName], plan: Plan) -> Figures:
        """Expect something of both ways, from the change, the operators it meets, and earlier refreshes."""
        old = task.table.frontier or {}
        change_rows = source_rows = 0
        for name in changed:
            source, now = self._sources.find(name), task.frontier[str(name)]
            change_rows += estimate_changes(source, old[str(name)], now).rows
            source_rows += self.rows_of(name, now) or 0
        measured = measured_of(self._catalog, task.table)
        route = next(change_statements(plan, frozenset(changed)), None)
        by_group = route is not None and route.route is Route.REPLACEMENT
        in_sources = self.rows_in_sources(task)
        return gather(change_rows, source_rows, measured, in_sources, whole_groups=by_group)

    def rows_of(self, name: TableName, at: SourceVersion) -> int | None:
        """Count the rows of a source; None where it does not say."""
        return self._row_counts.of(self._sources.find(name), at)

    def of_full(self, task: Task, decision: Decision) -> dict[str, object]:
        """What is kept of a full refresh, so that later ones know how much of its time was its own."""
        details: dict[str, object] = {"rows_in_sources": self.rows_in_sources(task)}
        if decision.failed_change_ms is not None:
            details["failed_change_ms"] = decision.failed_change_ms
        return details

    def rows_in_sources(self, task: Task) -> int | None:
        """Count the rows of all sources; None where one of them does not say."""
        total = 0
        for name in task.analysis.sources:
            rows = self.rows_of(name, task.frontier[str(name)])
            if rows is None:
                return None
            total += rows
        return total
