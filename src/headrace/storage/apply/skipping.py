"""Leave out files whose statistics show that no changed row can be in them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.storage.layout import STATISTICS_PREFIX
from headrace.storage.snapshot import DataFile

_YEAR_1000 = -354_285
_YEAR_10000 = 2_932_897
# Writers put a sign before other years, which no longer sort as texts.
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class FileFilter:
    """The values that a change takes away, per column, in order."""

    def __init__(self, losses: pa.Table, match: Sequence[str]) -> None:
        self._values = {
            column: _sorted_values(losses[column]) for column in match if _is_comparable(losses[column])
        }
        self._days = frozenset(column for column in self._values if pt.is_date32(losses[column].type))

    def select(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Keep the files that may hold one of the rows."""
        return [file for file in files if self._may_hold(file)]

    def _may_hold(self, file: DataFile) -> bool:
        return all(self._overlaps(file, column) for column in self._values)

    def _overlaps(self, file: DataFile, column: str) -> bool:
        bounds = _bounds(file, column, are_days=column in self._days)
        if bounds is None:
            return True
        low, high = bounds
        values = self._values[column]
        place = bisect_left(values, low)
        return place < len(values) and bool(values[place] <= high)


def overlapping(files: Iterable[DataFile], ranges: Mapping[str, tuple[Any, Any]]) -> list[DataFile]:
    """Keep the files whose bounds meet the given ranges in all columns.

    >>> file = DataFile({"path": "a", "stats": '{"minValues": {"id": 5}, "maxValues": {"id": 9}}'})
    >>> len(overlapping([file], {"id": (7, 20)})), len(overlapping([file], {"id": (10, 20)}))
    (1, 0)
    """
    return [file for file in files if all(_meets(file, name, *range_) for name, range_ in ranges.items())]


def _meets(file: DataFile, column: str, low: Any, high: Any) -> bool:
    are_days = isinstance(low, date)
    bounds = _bounds(file, column, are_days=are_days)
    if bounds is None:
        return True
    if are_days:
        low, high = low.isoformat(), high.isoformat()
    return bool(low <= bounds[1] and bounds[0] <= high)


def _bounds(file: DataFile, column: str, *, are_days: bool) -> tuple[Any, Any] | None:
    """Give a column's bounds in a file, or None where there are none that compare as the values do.

    >>> far = '{"minValues": {"d": "2026-01-01"}, "maxValues": {"d": "+10001-12-31"}}'
    >>> _bounds(DataFile({"path": "a", "stats": far}), "d", are_days=True)
    """
    low = (file.stats.get("minValues") or {}).get(column)
    high = (file.stats.get("maxValues") or {}).get(column)
    if low is None or high is None:
        return None
    if are_days and not (_DAY.fullmatch(str(low)) and _DAY.fullmatch(str(high))):
        return None
    if isinstance(high, str) and len(high) >= STATISTICS_PREFIX:
        # Writers cut long texts in different ways: what begins like the bound may lie beyond it.
        high = high[:STATISTICS_PREFIX] + "\U0010ffff"
    return low, high


def _is_comparable(column: pa.ChunkedArray) -> bool:
    """Take the types whose bounds every writer records alike, without fractions or rounding."""
    if column.null_count or not len(column):
        return False
    if pt.is_date32(column.type):
        # Dates are compared as texts, which works for years of four digits.
        days = pc.min_max(column.cast(pa.int32()))
        return bool(days["min"].as_py() >= _YEAR_1000 and days["max"].as_py() < _YEAR_10000)
    return bool(pt.is_integer(column.type) or pt.is_string(column.type))


def _sorted_values(column: pa.ChunkedArray) -> list[Any]:
    distinct = column.unique()
    if pt.is_date32(column.type):
        distinct = distinct.cast(pa.string())
    return sorted(distinct.to_pylist())
