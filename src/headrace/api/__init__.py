"""What users hold: `connect`, and the connection with its statements and calls."""

from __future__ import annotations

from headrace.api.connect import connect
from headrace.api.connection import Headrace

__all__ = ["Headrace", "connect"]
