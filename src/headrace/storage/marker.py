"""The note in a Delta commit that makes it ours: which stream table, which frontier, which refresh."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.catalog import Frontier, decode_frontier, encode_frontier
from headrace.sources.log import Commit

_KEY = "headrace"
# Names our transactions in the log: Spark then refuses one of two refreshes that overlap.
APP_ID = "headrace"


@dataclass(frozen=True)
class Marker:
    """What one commit of a stream table's storage says of itself."""

    stream_table: str
    refresh: int
    action: str
    reason: str
    frontier: Frontier
    data_timestamp: datetime
    started_at: datetime
    # Known before the commit where a change is applied, not where Spark computes the contents while writing.
    rows_inserted: int | None = None
    rows_deleted: int | None = None

    def encode(self) -> str:
        """Write the marker as a commit's user metadata."""
        body: dict[str, Any] = {
            "stream_table": self.stream_table,
            "refresh": self.refresh,
            "action": self.action,
            "reason": self.reason,
            "frontier": json.loads(encode_frontier(self.frontier)),
            "data_timestamp": self.data_timestamp.isoformat(),
            "started_at": self.started_at.isoformat(),
        }
        counts = {"rows_inserted": self.rows_inserted, "rows_deleted": self.rows_deleted}
        body |= {name: count for name, count in counts.items() if count is not None}
        return json.dumps({_KEY: body}, separators=(",", ":"))


def read_marker(commit: Commit) -> Marker | None:
    """Read the marker of a commit, or None where somebody else made it."""
    try:
        body = json.loads(commit.user_metadata)[_KEY]
        return Marker(
            stream_table=str(body["stream_table"]),
            refresh=int(body["refresh"]),
            action=str(body["action"]),
            reason=str(body["reason"]),
            frontier=decode_frontier(json.dumps(body["frontier"])),
            data_timestamp=datetime.fromisoformat(body["data_timestamp"]),
            started_at=datetime.fromisoformat(body["started_at"]),
            rows_inserted=body.get("rows_inserted"),
            rows_deleted=body.get("rows_deleted"),
        )
    except (ValueError, KeyError, TypeError):
        return None
