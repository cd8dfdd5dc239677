"""What a refresh would do, without doing it: the decision and its statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.catalog import Action, StreamTable
from headrace.delta.statements import change_statements
from headrace.plan.build import Plan
from headrace.plan.nodes import State
from headrace.plan.render import Binding
from headrace.refresh.task import Decision, Task
from headrace.sources.pins import at_version
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName


@dataclass(frozen=True)
class RefreshPlan:
    """A dry run: the action, the reason, and each statement with its purpose; prints as text.

    Relations in the statements are named by what they will hold; the changes of a source are read from its
    log and files.
    """

    stream_table: str
    action: Action
    reason: str
    statements: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.stream_table}: {self.action} ({self.reason})"]
        return "\n".join([*lines, *(f"-- {purpose}\n{sql};" for purpose, sql in self.statements)])


def plan_refresh(
    task: Task, decision: Decision, plan_of: Callable[[StreamTable, Analysis], Plan]
) -> RefreshPlan:
    """List the statements of a decision; those of the change by its cheapest route."""
    name, reason = str(task.table.name), decision.reason
    match decision.action:
        case Action.NO_DATA:
            return RefreshPlan(name, decision.action, reason)
        case Action.DIFFERENTIAL:
            plan = plan_of(task.table, task.analysis)
            first = next(change_statements(plan, frozenset(decision.changed)), None)
            if first is None:
                return RefreshPlan(name, decision.action, f"{reason}; no change can reach the result")
            statements = tuple(first.shown(_relation(task)))
            return RefreshPlan(name, decision.action, f"{reason}; by {first.route}", statements)
    query = task.analysis.bound(lambda source: at_version(source, task.frontier[str(source)].version))
    return RefreshPlan(name, decision.action, reason, (("all rows of the query", query),))


def _relation(task: Task) -> Binding:
    old = task.table.frontier or {}

    def bind(name: TableName, state: State) -> str:
        before, now = old[str(name)].version, task.frontier[str(name)].version
        if state is State.CHANGE:
            return f"`{name} @ changes after version {before} up to {now}`"
        return f"`{name} @ version {before if state is State.OLD else now}`"

    return bind
