"""Bring the groups inside a query up to date, and read them as sources of the rest of it."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.types import LongType, StructField, StructType

from headrace.catalog import SourceVersion
from headrace.delta.kept import KeptGroups, KeptPlan
from headrace.plan.hidden import WEIGHT
from headrace.refresh.by_state import MovedGroups, moved_groups
from headrace.refresh.inputs import Beside, Inputs
from headrace.sources.changes import DRIVER, SourceChange
from headrace.sources.consolidate import consolidate


def with_groups(kept: KeptPlan, inputs: Inputs, *, most: int) -> Inputs | None:
    """Give the inputs of the query over its groups; None where some state cannot serve.

    The state goes ahead of the stream table: whoever finds it there, since the refresh failed after all,
    builds it anew.
    """
    for groups in kept.groups:
        moved = moved_groups(groups.state, inputs, most=most)
        if moved is None:
            return None
        inputs = _with(groups, moved, inputs)
    return inputs


def _with(groups: KeptGroups, moved: MovedGroups, inputs: Inputs) -> Inputs:
    kept, table_id = moved.kept, moved.kept.table_id
    inputs.task.attempt.ensure_held()
    version = kept.apply(
        moved.change, inputs.task.state_marker(inputs.task.frontier), inputs.spark, base=moved.version
    )
    beside = Beside(
        kept.storage.log, SourceVersion(moved.version, table_id), SourceVersion(version, table_id)
    )
    rows, changes = consolidate(moved.sides), dict(inputs.changes)
    if rows.num_rows:
        schema = kept.schema
        changes[groups.source] = SourceChange(
            columns=tuple(schema.names),
            rows=rows.select([*schema.names, WEIGHT]),
            frame=None,
            gained=0,
            lost=0,
            only_adds=False,
            method="state",
            place=DRIVER,
            schema=StructType([*schema.fields, StructField(WEIGHT, LongType(), nullable=False)]),
        )
    return replace(inputs, changes=changes, beside={**inputs.beside, groups.source: beside})
