"""What one refresh did, as users hold it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from headrace.catalog import Action, Frontier
from headrace.catalog.records import RefreshOutcome


@dataclass(frozen=True, kw_only=True)
class RefreshResult:
    """The outcome of one refresh: what was done, why, how many rows, and what the table now reflects."""

    stream_table: str
    action: Action
    reason: str
    rows_inserted: int = 0
    rows_deleted: int = 0
    delta_row_count: int = 0
    data_timestamp: datetime | None = None
    frontier: Frontier = field(default_factory=dict)
    duration_ms: float = 0.0
    spark_jobs: int = 0

    def outcome(self) -> RefreshOutcome:
        """Give the fields that the history keeps."""
        return {
            "action": self.action,
            "reason": self.reason,
            "rows_inserted": self.rows_inserted,
            "rows_deleted": self.rows_deleted,
            "delta_row_count": self.delta_row_count,
            "data_timestamp": self.data_timestamp,
            "frontier": self.frontier,
            "duration_ms": self.duration_ms,
            "spark_jobs": self.spark_jobs,
        }

    def __str__(self) -> str:
        rows = f"+{self.rows_inserted:,} -{self.rows_deleted:,} rows"
        return f"{self.stream_table}: {self.action} in {self.duration_ms:,.0f} ms, {rows} ({self.reason})"
