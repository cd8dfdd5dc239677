"""Changes inside a change, computed on the driver before what they meet.

A join whose right side changes reads all left rows that the change may touch. Many of its rows cancel each
other out: a supplier's order changes, and he still has one that is open; an average moves, and hardly a
customer comes to its other side. So such a change is computed first and netted out, and what is left of it
says which rows are needed of the tables around it.

Any changes of one relation whose sums are equal stand for each other, so the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.delta.parts import made_scan
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import Aggregate, Filter, Join, Node, Project, Scan, UnionAll, walk
from headrace.refresh.on_driver import Typed

Given: TypeAlias = Mapping[str, Typed]
"""What was computed before, by the name under which plans read it."""
ComputeChange: TypeAlias = Callable[[Node, Given], pa.Table | None]
"""Computes a change, netted out; None where that is for Spark."""


@dataclass(frozen=True)
class Staged:
    """A plan that reads what was computed before."""

    root: Node
    given: Given


def in_stages(root: Node, compute: ComputeChange) -> Staged | None:
    """Compute the changes inside a plan, inner ones first; None where one of them is for Spark."""
    inside = {id(node) for node in _read_as_changes(root) if node is not root and _joins(node)}
    if not inside:
        return Staged(root, {})
    made: dict[int, Node] = {}
    given: dict[str, Typed] = {}
    for node in walk(root):
        rebuilt = node.with_inputs(tuple(made[id(child)] for child in node.inputs))
        if id(node) in inside:
            rows = compute(rebuilt, given)
            if rows is None:
                return None
            name = f"stage{len(given) + 1}"
            given[name] = rows, from_arrow_schema(rows.schema)
            rebuilt = made_scan(name, tuple((column, column) for column in node.columns))
        made[id(node)] = rebuilt
    return Staged(made[id(root)], given)


def _read_as_changes(root: Node) -> Iterator[Node]:
    """The changes that say which rows are needed of another relation."""
    for node in walk(root):
        match node:
            case Join(kind="inner"):
                # The inputs of joins are taken in the order of their sizes, not of the plan.
                yield from (one for one in node.inputs if WEIGHT in one.columns and not _is_join(one))
            case Join():
                yield from (one for one in node.inputs if WEIGHT in one.columns)
            case Aggregate(aggregates=(), child=Project(child=below)) | Aggregate(aggregates=(), child=below):
                if WEIGHT in below.columns:
                    yield below


def _is_join(node: Node) -> bool:
    while isinstance(node, Filter):
        node = node.child
    return isinstance(node, Join)


def _joins(node: Node) -> bool:
    """Tell whether a change is more than rows of one source, one by one."""
    return any(not isinstance(one, (Scan, Project, Filter, UnionAll)) for one in walk(node))
