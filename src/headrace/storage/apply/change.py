"""A stream table's change as it is handed over for applying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.errors import HeadraceError
from headrace.storage.identity import Integers

WEIGHT = "__hr_weight"


@dataclass(frozen=True)
class Located:
    """Where rows are in a version of a table: their positions by file."""

    version: int
    positions: Mapping[str, Integers]


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """A signed multiset: the table's columns and a weight, one row per distinct value, no weight zero.

    A small one is Arrow on the driver, a large one a DataFrame. `key` names columns in which no two stored
    rows agree, if there are such: rows are then found by them alone. `located` says where the
    lost rows are, if somebody has looked. `is_held` says that Spark keeps the frame's rows already.
    """

    rows: pa.Table | None = None
    frame: DataFrame | None = None
    key: tuple[str, ...] = ()
    located: Located | None = None
    is_held: bool = False

    def __post_init__(self) -> None:
        if (self.rows is None) == (self.frame is None):
            raise ValueError("a change is either rows or a frame")
        names = self.rows.column_names if self.rows is not None else self.frame.columns  # type: ignore[union-attr]  # one of both is there
        missing = {WEIGHT, *self.key} - set(names)
        if missing:
            raise ValueError(f"the change lacks the columns {sorted(missing)}")

    @cached_property
    def gains(self) -> pa.Table:
        """The rows to add, each as often as its weight says, without the weight."""
        assert self.rows is not None
        return repeat(self.rows.filter(pc.greater(self.rows[WEIGHT], 0)))

    @cached_property
    def losses(self) -> pa.Table:
        """The rows to take away, with how many copies of each."""
        assert self.rows is not None
        lost = self.rows.filter(pc.less(self.rows[WEIGHT], 0))
        return lost.set_column(lost.column_names.index(WEIGHT), WEIGHT, pc.negate(lost[WEIGHT]))


def repeat(rows: pa.Table) -> pa.Table:
    """Write every row out as often as its weight says.

    >>> repeat(pa.table({"a": ["x", "y"], "__hr_weight": [2, 1]}))["a"].to_pylist()
    ['x', 'x', 'y']
    """
    plain = rows.drop_columns([WEIGHT])
    if rows.num_rows == 0 or pc.max(rows[WEIGHT]).as_py() == 1:
        return plain
    counts = rows[WEIGHT].to_numpy()
    return plain.take(pa.array(range(rows.num_rows)).to_numpy().repeat(counts))


def rows_missing(location: str, missing: int) -> HeadraceError:
    return HeadraceError(
        "storage_lacks_rows",
        f"The Delta table at {location} lacks {missing} rows that the change takes away.",
        hint="Its contents differ from the query at its frontier: refresh it with full=True.",
    )
