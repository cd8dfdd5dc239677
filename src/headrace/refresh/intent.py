"""What a refresh would do, without doing it: the decision and its statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.catalog import Action, StreamTable
from headrace.delta.statements import Route, Statements, changed_with_groups, tried_statements
from headrace.plan.build import Plan
from headrace.plan.nodes import State
from headrace.plan.render import Binding
from headrace.refresh.inputs import DRIVER_ROWS
from headrace.refresh.task import Decision, Task
from headrace.sources.pins import at_version
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName

# Whether a route can be taken shows when the change is there, and a dry run reads none.
_NOT_TAKEN = {
    Route.KEPT: f"where the state of these groups cannot be kept, or more than {DRIVER_ROWS:,} change",
    Route.STATE: f"where the state cannot be kept, or more than {DRIVER_ROWS:,} groups change",
    Route.FIRST: "where the first rows are more than the driver holds, or of a type that Spark must order, "
    f"or more than {DRIVER_ROWS:,} rows change below them",
}


@dataclass(frozen=True)
class OtherRoute:
    """A route that is taken where those before it cannot be."""

    when: str
    route: str
    statements: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "\n".join([f"-- Else, {self.when}: by {self.route}", *_written(self.statements)])


@dataclass(frozen=True)
class RefreshPlan:
    """A dry run: the action, the reason, and each statement with its purpose; prints as text.

    The statements are those of the route that is tried first; the others follow in their order.

    Relations in the statements are named by what they will hold; the changes of a source are read from its
    log and files.
    """

    stream_table: str
    action: Action
    reason: str
    statements: tuple[tuple[str, str], ...] = ()
    otherwise: tuple[OtherRoute, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.stream_table}: {self.action} ({self.reason})", *_written(self.statements)]
        return "\n".join([*lines, *map(str, self.otherwise)])


def _written(statements: tuple[tuple[str, str], ...]) -> list[str]:
    return [f"-- {purpose}\n{sql};" for purpose, sql in statements]


def plan_refresh(
    task: Task, decision: Decision, plan_of: Callable[[StreamTable, Analysis], Plan]
) -> RefreshPlan:
    """List the statements of a decision; those of a change by each route that a refresh may take."""
    name, reason = str(task.table.name), decision.reason
    match decision.action:
        case Action.NO_DATA:
            return RefreshPlan(name, decision.action, reason)
        case Action.DIFFERENTIAL:
            routes = _routes(task, decision, plan_of(task.table, task.analysis))
            if not routes:
                return RefreshPlan(name, decision.action, f"{reason}; no change can reach the result")
            first, *others = routes
            reason = f"{reason}; by {first.route}"
            return RefreshPlan(name, decision.action, reason, first.statements, tuple(others))
    query = task.analysis.bound(lambda source: at_version(source, task.frontier[str(source)].version))
    return RefreshPlan(name, decision.action, reason, (("all rows of the query", query),))


def _routes(task: Task, decision: Decision, plan: Plan) -> list[OtherRoute]:
    """Give the routes in the order in which they are tried, each with when those before it are not taken."""
    changed, bind = frozenset(decision.changed), _relation(task)
    routes: list[OtherRoute] = []
    when = ""
    for statements in tried_statements(plan, changed):
        routes.append(OtherRoute(when, _route(statements, changed), tuple(statements.shown(bind))))
        when = _NOT_TAKEN.get(statements.route, "")
    return routes


def _route(statements: Statements, changed: frozenset[TableName]) -> str:
    """Name a route, and what may follow it for the query over groups that are kept inside."""
    if statements.kept is None:
        return statements.route
    inside = changed_with_groups(statements.kept, changed)
    after = [_route(one, inside) for one in tried_statements(statements.kept.plan, inside)]
    return f"{statements.route}, then {', else '.join(after)}" if after else statements.route


def _relation(task: Task) -> Binding:
    old = task.table.frontier or {}

    def bind(name: TableName, state: State) -> str:
        before, now = old[str(name)].version, task.frontier[str(name)].version
        if state is State.CHANGE:
            return f"`{name} @ changes after version {before} up to {now}`"
        return f"`{name} @ version {before if state is State.OLD else now}`"

    return bind
