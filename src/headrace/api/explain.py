"""Say how a stream table is maintained, and why so."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.api.checks import Checked
from headrace.catalog import StreamTable
from headrace.delta.compile import compile_change
from headrace.delta.statements import change_statements
from headrace.plan.build import Plan
from headrace.plan.nodes import State
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName


@dataclass(frozen=True)
class Explanation:
    """How a stream table is, or would be, refreshed; prints as text."""

    stream_table: str
    mode: str
    reason: str
    operators: tuple[str, ...]
    statements: tuple[tuple[str, str], ...]
    text: str

    def __str__(self) -> str:
        return self.text


def explain_table(table: StreamTable, analysis: Analysis, plan: Plan) -> Explanation:
    """Explain a stream table that exists, with its sources at its frontier."""
    frontier = table.frontier or {}

    def version(name: TableName) -> str:
        pinned = frontier.get(str(name))
        return f"VERSION AS OF {pinned.version}" if pinned else ""

    query = analysis.pinned(version)
    return _explanation(table.name, table.effective_mode, table.mode_reason, analysis, plan, query)


def explain_checked(name: TableName, checked: Checked) -> Explanation:
    """Explain a stream table before it is created."""
    analysis = checked.analysis
    return _explanation(
        name, checked.effective_mode, checked.mode_reason, analysis, checked.plan, analysis.expanded
    )


def _explanation(
    name: TableName, mode: str, reason: str, analysis: Analysis, plan: Plan, query: str
) -> Explanation:
    operators, route, statements = _change(plan) if not analysis.refusals else ((), "", ())
    lines = [f"Stream table {name}", f"Refresh: {mode} ({reason})", "Sources:"]
    lines += [f"  {source} ({', '.join(columns)})" for source, columns in analysis.sources.items()]
    lines += [f"  view {view}, expanded" for view in analysis.views]
    if analysis.refusals:
        lines.append("Not maintainable incrementally:")
        lines += [f"  {refusal}" for refusal in analysis.refusals]
    lines += [f"Notice: {notice}" for notice in analysis.notices]
    if operators:
        lines.append("Operators, each with the rule that gives its change:")
        lines += [f"  {line}" for line in operators]
    lines += ["Query:", query]
    if statements:
        lines.append(f"Statements of a refresh, when every source has changed, by {route}:")
        lines += [f"-- {purpose}\n{sql};" for purpose, sql in statements]
    return Explanation(str(name), mode, reason, operators, statements, "\n".join(lines))


def _change(plan: Plan) -> tuple[tuple[str, ...], str, tuple[tuple[str, str], ...]]:
    changed = frozenset(plan.analysis.sources)
    first = next(change_statements(plan, changed), None)
    if first is None:
        return (), "", ()
    steps = tuple(str(step) for step in compile_change(plan, changed).explain())
    return steps, first.route, tuple(first.shown(_placeholder))


def _placeholder(name: TableName, state: State) -> str:
    """Name a relation by what it will hold: `` `orders @ old` ``."""
    return f"`{name} @ {state.value}`"
