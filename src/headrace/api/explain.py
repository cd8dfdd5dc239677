"""Say how a stream table is maintained, and why so."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.api.checks import Checked
from headrace.catalog import StreamTable
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName


@dataclass(frozen=True)
class Explanation:
    """How a stream table is, or would be, refreshed; prints as text."""

    stream_table: str
    mode: str
    reason: str
    text: str

    def __str__(self) -> str:
        return self.text


def explain_table(table: StreamTable, analysis: Analysis) -> Explanation:
    """Explain a stream table that exists."""
    frontier = table.frontier or {}

    def version(name: TableName) -> str:
        pinned = frontier.get(str(name))
        return f"VERSION AS OF {pinned.version}" if pinned else ""

    return _explanation(table.name, table.effective_mode, table.mode_reason, analysis, analysis.pinned(version))


def explain_checked(name: TableName, checked: Checked) -> Explanation:
    """Explain a stream table before it is created."""
    analysis = checked.analysis
    return _explanation(name, checked.effective_mode, checked.mode_reason, analysis, analysis.expanded)


def _explanation(name: TableName, mode: str, reason: str, analysis: Analysis, query: str) -> Explanation:
    lines = [f"Stream table {name}", f"Refresh: {mode} ({reason})", "Sources:"]
    for source, columns in analysis.sources.items():
        lines.append(f"  {source} ({', '.join(columns)})")
    for view in analysis.views:
        lines.append(f"  view {view}, expanded")
    if analysis.refusals:
        lines.append("Not maintainable incrementally:")
        for refusal in analysis.refusals:
            place = f" at {refusal.position}" if refusal.position else ""
            lines.append(f"  [{refusal.code}] {refusal.construct}{place}: {refusal.reason} {refusal.hint}")
    lines += [f"Notice: {notice}" for notice in analysis.notices]
    lines += ["Query:", query]
    return Explanation(str(name), mode, reason, "\n".join(lines))
