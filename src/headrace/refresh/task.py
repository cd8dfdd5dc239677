"""One refresh under way: the table, the versions it will reflect, and what was decided."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.catalog import Action, Frontier, Lease, Status, StreamTable
from headrace.catalog.records import StreamTableChanges
from headrace.refresh.choice import Figures
from headrace.refresh.result import RefreshResult
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName
from headrace.storage.marker import Marker
from headrace.storage.table import Storage


@dataclass(frozen=True)
class Decision:
    """What a refresh will do and why."""

    action: Action
    reason: str
    changed: tuple[TableName, ...] = ()
    alert: str = ""
    figures: Figures | None = None
    is_choice: bool = False
    """Whether AUTO recomputes though it could take the change."""
    failed_change_ms: float | None = None
    """What was spent on the change before it turned out to be impossible."""


class Withheld(Exception):  # noqa: N818 - what a gate says, never shown as an error
    """A commit must not happen now, for a reason outside the table."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


Gate = Callable[[Action], None]
"""Called right before a commit; it may wait, and raises Withheld to forbid it."""


@dataclass
class Attempt:
    """A refresh from its first moment; `refresh` is its row in the history once it has one.

    Once its contents are `committed`, nothing that fails may write them again. `tried` is what it set out to
    do, and stays known when that fails. `base` is the version of the storage that it starts from: what others
    commit after that is not to be overwritten.
    """

    table: StreamTable
    lease: Lease | None
    moment: datetime
    clock: float
    gate: Gate | None = None
    will_retry: bool = False
    base: int | None = None
    refresh: int | None = None
    committed: bool = False
    tried: Action | None = None
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def is_dry_run(self) -> bool:
        """Tell whether nothing is to be done: such an attempt holds no lease."""
        return self.lease is None

    def pass_gate(self, action: Action) -> None:
        """Make sure that the commit may happen: the lease is still ours, and nobody withholds it."""
        if self.gate is not None:
            self.gate(action)
        self.ensure_held()

    def ensure_held(self) -> None:
        """Make sure that nobody else is at this table by now."""
        assert self.lease is not None, "only a dry run has none, and it commits nothing"
        self.lease.ensure_held()


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything one refresh reads is pinned here before it starts."""

    attempt: Attempt
    analysis: Analysis
    frontier: Frontier
    storage: Storage

    @property
    def table(self) -> StreamTable:
        return self.attempt.table

    def marker(self, refresh: int, decision: Decision) -> Marker:
        """Make the note that the commit carries."""
        return Marker(
            stream_table=self.table.id,
            refresh=refresh,
            action=str(decision.action),
            reason=decision.reason,
            frontier=self.frontier,
            data_timestamp=self.attempt.moment,
            started_at=self.attempt.started,
        )

    def state_marker(self, frontier: Frontier) -> Marker:
        """Make the note that a commit of the hidden state carries."""
        return Marker(
            stream_table=self.table.id,
            refresh=self.attempt.refresh or 0,
            action="STATE",
            reason="state of the groups",
            frontier=frontier,
            data_timestamp=self.attempt.moment,
            started_at=self.attempt.started,
        )

    def progress(self) -> StreamTableChanges:
        """Say what a refresh that went well changes in the catalog, which keeps a suspended table so."""
        return {
            "status": Status.ACTIVE,
            "frontier": self.frontier,
            "data_timestamp": self.attempt.moment,
        }

    def result(
        self, decision: Decision, *, inserted: int = 0, deleted: int = 0, jobs: int = 0
    ) -> RefreshResult:
        """Tell what was done, up to this moment."""
        return RefreshResult(
            stream_table=str(self.table.name),
            action=decision.action,
            reason=decision.reason,
            rows_inserted=inserted,
            rows_deleted=deleted,
            delta_row_count=inserted + deleted,
            data_timestamp=self.attempt.moment,
            frontier=self.frontier,
            duration_ms=(time.perf_counter() - self.attempt.clock) * 1000,
            spark_jobs=jobs,
        )
