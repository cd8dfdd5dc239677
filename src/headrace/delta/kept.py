"""Groups inside a query as tables of their own, of which the rest is a query.

A scalar subquery, a join with grouped rows or the first of some groups would read all rows of every group
that a change touches, or of all groups. Where the groups' state is kept, as it is for groups at the root, it
is a table like any other: its change is known, and it is small.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from headrace.delta.keyed import root_groups
from headrace.delta.state import StatePlan, groups_state, state_plan
from headrace.plan.build import Plan
from headrace.plan.expressions import col, columns_in, substitute
from headrace.plan.nodes import Aggregate, Node, Project, Scan, free_columns, sources, walk
from headrace.plan.types import column_types
from headrace.sql.names import TableName

_SCHEMA = "__hr_kept"


@dataclass(frozen=True, eq=False)
class KeptGroups:
    """Groups that are kept, and the name by which plans read them."""

    source: TableName
    state: StatePlan
    node: Node
    """The groups as they stand in the query."""


@dataclass(frozen=True, eq=False)
class KeptPlan:
    """A query over groups that are kept, inner ones first: they may read those before them."""

    groups: tuple[KeptGroups, ...]
    plan: Plan


def is_kept(name: TableName) -> bool:
    """Tell whether a name stands for groups that are kept."""
    return name.schema == _SCHEMA


@lru_cache(maxsize=1024)
def kept_plan(plan: Plan) -> KeptPlan | None:
    """The query over its inner groups; None where it has none that can be kept, or reads them already."""
    if plan.groups:
        return None
    # Groups at the root have a route of their own, by which the result itself is found.
    at_root = root_groups(plan.root)[1] if state_plan(plan) is not None else None
    made: dict[int, Node] = {}
    kept: list[KeptGroups] = []
    types: dict[TableName, dict[str, str]] = {}
    labels = 0
    for node in walk(plan.root):
        rebuilt = node.with_inputs(tuple(made[id(child)] for child in node.inputs))
        state, so_far = None, replace(plan, groups=dict(types))
        if isinstance(rebuilt, Aggregate) and node is not at_root and _is_worth_it(rebuilt):
            state = groups_state(so_far, rebuilt)
        if state is not None:
            assert isinstance(rebuilt, Aggregate)
            # What reads these groups is told apart by what they are, too.
            digest = hashlib.sha256(state.definition.encode()).hexdigest()[:12]
            one = KeptGroups(TableName(_SCHEMA, f"groups_{digest}"), state, node)
            below = column_types(so_far, rebuilt.child)
            keys = {name: below.get(key) for name, key in zip(state.keys, rebuilt.keys, strict=True)}
            types[one.source] = {name: type_ for name, type_ in keys.items() if type_}
            types[one.source] |= {column.name: column.type for column in state.columns}
            if all(one.source != other.source for other in kept):
                kept.append(one)
            labels += 1
            rebuilt = _read(one, str(labels))
        made[id(node)] = rebuilt
    if not kept:
        return None
    return KeptPlan(tuple(kept), replace(plan, root=made[id(plan.root)], groups=types))


@lru_cache(maxsize=1024)
def state_plans(plan: Plan) -> tuple[StatePlan, ...]:
    """All states that a query may keep, by whichever of its routes."""
    kept = kept_plan(plan)
    inner = [groups.state for groups in kept.groups] if kept is not None else []
    at_root = [state_plan(plan), state_plan(kept.plan) if kept is not None else None]
    return (*inner, *(state for state in at_root if state is not None))


def _is_worth_it(groups: Aggregate) -> bool:
    """Tell whether groups are of tables, and more than the keys that occur there."""
    return bool(groups.aggregates) and bool(sources(groups)) and not free_columns(groups)


def _read(groups: KeptGroups, label: str) -> Node:
    """The rows of the groups from their table; columns are unique in a plan, so these have a label."""
    state = groups.state
    used = columns_in(*(item for _, item in state.outputs))
    columns = [*state.keys, *(column.name for column in state.columns)]
    names = {column: f"{column}_{label}" for column in columns if column in used}
    scan = Scan(groups.source, tuple((name, column) for column, name in names.items()))
    values: dict[str, exp.Expr] = {column: col(name) for column, name in names.items()}
    return Project(scan, tuple((name, substitute(item, values)) for name, item in state.outputs))
