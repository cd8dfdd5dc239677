"""Large changes in parts, each computed once.

What a change reads several times is one subplan here and one CTE in its query, but Spark writes every CTE out
wherever it is read. A query that nests deeply then becomes tens of thousands of operators, on which Spark's
planner works for hours. Beyond a size its shared subplans are computed first, each by a statement of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.plan.nodes import Node, Scan, State, walk
from headrace.plan.render import Binding
from headrace.sql.names import TableName, quote

# TPC-H's largest change has 638 operators, and TPC-DS's has 1,877.
MOST_OPERATORS = 700
_WORTH_A_PART = 40
_SCHEMA = "__hr_parts"


@dataclass(frozen=True, eq=False)
class Part:
    """A subplan that is computed by itself; later ones, and the plan, read it by its name."""

    name: str
    node: Node


def operators(root: Node) -> int:
    """How many operators a plan has once all that it shares is written out."""
    sizes: dict[int, int] = {}
    for node in walk(root):
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in node.inputs)
    return sizes[id(root)]


def in_parts(
    root: Node, label: str = "part", *, most: int = MOST_OPERATORS, worth: int = _WORTH_A_PART
) -> tuple[tuple[Part, ...], Node]:
    """Cut a plan of more than `most` operators at subplans that it reads several times, inner ones first."""
    if operators(root) <= most:
        return (), root
    uses: Counter[int] = Counter()
    for node in walk(root):
        uses.update(id(child) for child in node.inputs)
    made: dict[int, Node] = {}
    sizes: dict[int, int] = {}
    parts: list[Part] = []
    for node in walk(root):
        rebuilt = node.with_inputs(tuple(made[id(child)] for child in node.inputs))
        size = 1 + sum(sizes[id(child)] for child in node.inputs)
        if uses[id(node)] > 1 and size >= worth:
            part = Part(f"{label}{len(parts) + 1}", rebuilt)
            parts.append(part)
            rebuilt, size = made_scan(part.name, tuple((name, name) for name in node.columns)), 1
        made[id(node)], sizes[id(node)] = rebuilt, size
    return tuple(parts), made[id(root)]


def made_scan(name: str, names: tuple[tuple[str, str], ...]) -> Node:
    """Read the result of an earlier statement; `names` pairs each column of the plan with the result's."""
    return Scan(made_name(name), names)


def made_name(name: str) -> TableName:
    return TableName(_SCHEMA, name)


def is_made(name: TableName) -> bool:
    """Tell whether a name stands for the result of an earlier statement."""
    return name.schema == _SCHEMA


def with_made(binding: Binding, relations: Mapping[str, str]) -> Binding:
    """Bind the results of earlier statements too; for reading, one that is not there goes by its name."""

    def bind(name: TableName, state: State) -> str:
        if is_made(name):
            return relations.get(name.table) or quote(name.table)
        return binding(name, state)

    return bind


def replaced(root: Node, old: Node, new: Node) -> Node:
    """Put a node in the place of another, wherever it is read."""
    made: dict[int, Node] = {id(old): new}
    for node in walk(root):
        if node is not old:
            made[id(node)] = node.with_inputs(tuple(made[id(child)] for child in node.inputs))
    return made[id(root)]
