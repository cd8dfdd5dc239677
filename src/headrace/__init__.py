"""Stream tables for Apache Spark: defined by a query, kept up to date at a cost that follows what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, Position

if TYPE_CHECKING:
    from headrace.api import Headrace, connect
    from headrace.refresh.result import RefreshResult

__version__ = "0.1.0"
__all__ = ["Headrace", "HeadraceError", "Position", "RefreshResult", "__version__", "connect"]


def __getattr__(name: str) -> Any:
    """Import Spark only when somebody connects, so that `headrace --help` answers at once."""
    if name in {"connect", "Headrace"}:
        import headrace.api

        return getattr(headrace.api, name)
    if name == "RefreshResult":
        from headrace.refresh.result import RefreshResult

        return RefreshResult
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
