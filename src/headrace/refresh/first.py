"""The change of `ORDER BY … LIMIT n` from the stored rows and the change below."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headrace.delta.first import FirstRows
from headrace.delta.statements import Statements
from headrace.plan.hidden import SIDE, WEIGHT
from headrace.refresh.arrow_kinds import NotInArrow, is_known
from headrace.refresh.arrow_windows import sorted_places
from headrace.refresh.inputs import Inputs
from headrace.sources.consolidate import consolidate, weighted
from headrace.storage.apply import TableChange
from headrace.storage.identity import difference
from headrace.storage.read import all_rows


def change_of_first(statements: Statements, inputs: Inputs, *, most: int) -> TableChange | None:
    """Compute the change; None where the stored rows, or those that change below, are not for the driver."""
    first = statements.first
    assert first is not None
    stored = all_rows(inputs.task.storage, most=first.limit)
    # A float that was summed in another order would not be the one that is stored.
    if stored is None or not all(map(is_known, stored.schema.types)):
        return None
    own = dict(first.shown)
    held = stored.rename_columns([own[name] for name in stored.column_names])
    with suppress(NotInArrow, pa.ArrowException):
        moved = _moved(statements, first, inputs, most)
        rows = first_of(first, held, moved) if moved is not None else None
        if rows is None and moved is not None:
            rows = inputs.frame(statements.statement("now")).toArrow().select(held.column_names)
        if rows is not None:
            return TableChange(rows=difference(rows.rename_columns(stored.column_names), stored))
    return None


def _moved(statements: Statements, first: FirstRows, inputs: Inputs, most: int) -> pa.Table | None:
    """What changes below; None where it is too much."""
    rows, inputs = inputs.changed_rows(first.below)
    if rows is None:
        rows = inputs.frame(statements.statement("below")).limit(most + 1).toArrow()
    return rows if rows.num_rows <= most else None


def first_of(first: FirstRows, held: pa.Table, moved: pa.Table) -> pa.Table | None:
    """The first rows now, given those of before and what changed; None where others may come among them."""
    before = weighted(held, 1)
    change = moved.select(before.column_names).cast(before.schema)
    known = consolidate(pa.concat_tables([before, change]))
    # What went without being held came after all that was.
    known = known.filter(pc.greater(known[WEIGHT], 0))
    now = known.drop_columns([WEIGHT]).take(np.repeat(np.arange(len(known)), known[WEIGHT].to_numpy()))
    both = pa.concat_tables([_on_side(now, 0), _on_side(held, 1)])
    # Among equal rows those of now come first.
    ordered = both.take(sorted_places(both, [*first.order, exp.Ordered(this=exp.column(SIDE))]))
    is_held = ordered[SIDE].to_numpy()
    rows = ordered.filter(pa.array(is_held == 0)).drop_columns([SIDE])
    if held.num_rows >= first.limit:
        last = int(np.flatnonzero(is_held)[-1])
        if int((is_held[:last] == 0).sum()) < first.limit:
            return None
    return rows.slice(0, first.limit)


def _on_side(rows: pa.Table, side: int) -> pa.Table:
    return rows.append_column(SIDE, pa.array(np.full(rows.num_rows, side, dtype=np.int8)))
