"""What a refresh will do, and why: nothing, the change, or the whole."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from headrace.catalog import Action, Catalog, RefreshMode, SourceVersion
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.refresh.choice import FIRST_LOAD, choose_full
from headrace.refresh.definition import Definitions
from headrace.refresh.estimate import Estimates
from headrace.refresh.failure import storage_missing
from headrace.refresh.task import Decision, Task
from headrace.refresh.watch import why_reinitialize
from headrace.sources.changes import SourceChange, estimate_changes
from headrace.sources.registry import Sources
from headrace.sql.names import TableName

# A change is looked at before recomputing while its files have at most so many bytes, and it has at most so
# many rows or this part of its source.
_FEW_BYTES = 32 << 20
_FEW_CHANGED = 50_000
_PART = 0.25


class Decider:
    """Decides by what the logs of the sources say, and where AUTO may choose, by what it expects."""

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        sources: Sources,
        definitions: Definitions,
        estimates: Estimates,
    ) -> None:
        self._catalog = catalog
        self.settings = settings
        self._sources = sources
        self._definitions = definitions
        self._estimates = estimates

    def decide(self, task: Task, *, full: bool) -> Decision:
        """Look at what happened to the sources since the frontier."""
        table = task.table
        if not table.location:
            raise storage_missing(table)
        if table.reinitialize_reason:
            return Decision(Action.REINITIALIZE, table.reinitialize_reason)
        if full:
            return Decision(Action.FULL, "asked for")
        if not task.storage.exists():
            raise storage_missing(table)
        if table.frontier is None:
            return Decision(Action.FULL, FIRST_LOAD)
        changed = self._sources.changed(table.frontier, task.frontier, task.analysis.sources)
        redescribed = self._sources.redescribed(table.frontier, task.frontier, task.analysis.sources)
        if changed or redescribed or task.analysis.views:
            decision = self._decide_on_changes(task, changed, redescribed)
            if decision is not None:
                return decision
        if task.analysis.time_dependent:
            return Decision(Action.FULL, "the query depends on the current time")
        what = "no column that the query uses changed" if changed else "no source changed"
        return Decision(Action.NO_DATA, what)

    def _decide_on_changes(
        self, task: Task, changed: list[TableName], redescribed: list[TableName]
    ) -> Decision | None:
        """Take the change or the whole, as the mode says or as it is cheaper."""
        table, what = task.table, f"{', '.join(map(str, changed))} changed"
        looked_at = list(dict.fromkeys((*changed, *redescribed)))
        read = self._definitions.columns_read(table, task.analysis)
        anew = why_reinitialize(self._sources, table, task.analysis, task.frontier, looked_at, read)
        if anew:
            return Decision(Action.REINITIALIZE, anew, alert="reinitialize_needed")
        if not changed:
            return None
        if table.effective_mode == "FULL":
            if self._reaches_nothing(task, changed):
                return None
            return Decision(Action.FULL, f"{what}; {table.mode_reason}")
        plan = self._definitions.plan(table, task.analysis)
        try:
            figures = self._estimates.figures(task, changed, plan)
        except HeadraceError as error:
            if error.code != "history_lost":
                raise
            return load_anew(error)
        if table.refresh_mode is RefreshMode.AUTO:
            threshold = self.settings.change_ratio_threshold
            cheaper, remark = choose_full(self._catalog, table, figures, threshold)
            if cheaper and self._reaches_nothing(task, changed):
                return None
            if cheaper:
                return Decision(Action.FULL, f"{what}; {cheaper}", figures=figures, is_choice=True)
            what = f"{what}; {remark}" if remark else what
        return Decision(Action.DIFFERENTIAL, what, tuple(changed), figures=figures)

    def _reaches_nothing(self, task: Task, changed: list[TableName]) -> bool:
        """Tell whether no column that the query uses changed, where that is soon found out.

        It is worth a small part of what recomputing takes, for which all of the sources is read. A dry run
        reads nothing.
        """
        if task.attempt.is_dry_run or not self._follows_from_values(task):
            return False
        frontier = task.table.frontier or {}
        # What is wrong with the change does not concern a query that is computed anew.
        with suppress(HeadraceError, OSError, pa.ArrowException):
            return all(
                self._is_unchanged(
                    name, frontier[str(name)], task.frontier[str(name)], task.analysis.sources[name]
                )
                for name in changed
            )
        return False

    def _is_unchanged(
        self, name: TableName, old: SourceVersion, new: SourceVersion, columns: Sequence[str]
    ) -> bool:
        source = self._sources.find(name)
        estimate = estimate_changes(source, old, new)
        most = max(_FEW_CHANGED, _PART * (self._estimates.rows_of(name, new) or 0))
        if estimate.rows > most or estimate.bytes > _FEW_BYTES:
            return False
        change = self._sources.changes.held(source, old, new, columns)
        return isinstance(change, SourceChange) and change.is_empty

    def _follows_from_values(self, task: Task) -> bool:
        """Tell whether equal values in the columns in use make an equal result."""
        if not self._definitions.follows_from_values(task.analysis):
            return False
        # Two maps are equal whatever the order of their entries, which a query may show.
        plan = self._definitions.plan(task.table, task.analysis)
        for source, columns in task.analysis.sources.items():
            types = plan.types_of(source)
            if any("map<" in types.get(column, types.get(column.lower(), "map<")) for column in columns):
                return False
        return True


def load_anew(lost: HeadraceError) -> Decision:
    """Load anew where a source was swept between the look at its history and the reading of it."""
    return Decision(Action.REINITIALIZE, lost.message, alert="reinitialize_needed")
