"""Apply a change to a stream table's Delta table, in one commit that carries the frontier."""

from __future__ import annotations

from headrace.storage.apply.change import WEIGHT, TableChange
from headrace.storage.apply.choose import Choice, Path, Sizes, choose_path
from headrace.storage.apply.limits import Limits
from headrace.storage.apply.replace import FEW_ROWS, replace_rows
from headrace.storage.apply.run import Applied, apply_change

__all__ = [
    "FEW_ROWS",
    "WEIGHT",
    "Applied",
    "Choice",
    "Limits",
    "Path",
    "Sizes",
    "TableChange",
    "apply_change",
    "choose_path",
    "replace_rows",
]
