"""A change by replacement: the keys it touches, and the rows these keys have now.

Where groups or partitions stand at the root of a query, the stream table itself is the old side: delete its
rows of the touched keys, insert the recomputed ones. Q over the old state is then never computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.delta.bykey import distinct_keys, restricted
from headrace.delta.differ import Differ
from headrace.delta.dispatch import RULES
from headrace.delta.parts import made_scan, replaced
from headrace.plan.build import Plan
from headrace.plan.expressions import col
from headrace.plan.nodes import Aggregate, Filter, Node, Project, Window
from headrace.plan.render import Binding, render
from headrace.sql.names import TableName


@dataclass(frozen=True, eq=False)
class KeyedChange:
    """Replace the rows of a stream table whose `keys` occur in `touched` (null-safe) with `rows`."""

    keys: tuple[str, ...]
    touched: Node
    rows: Node

    def keys_sql(self, binding: Binding, *, dialect: str = "spark") -> str:
        """The distinct touched keys, under the names of the output columns."""
        return render(self.touched, binding, dialect=dialect)

    def rows_sql(self, binding: Binding, *, dialect: str = "spark") -> str:
        """The rows that the touched keys have now."""
        return render(self.rows, binding, dialect=dialect)

    def rows_of(self, keys: str) -> Node:
        """The same rows, where an earlier statement of the name `keys` gave the touched keys."""
        (derived,) = self.touched.inputs
        names = tuple((name, shown) for shown, name in zip(self.keys, derived.columns, strict=True))
        return replaced(self.rows, derived, made_scan(keys, names))


def keyed_change(plan: Plan, changed: frozenset[TableName]) -> KeyedChange | None:
    """The change as a replacement by key; None where the root has no key that its output shows."""
    above, base = root_groups(plan.root)
    if base is None:
        return None
    keys = base.keys if isinstance(base, Aggregate) else base.partition
    shown = shown_keys(above, keys)
    differ = Differ(changed, RULES)
    change = differ.change(base.child)
    if not keys or shown is None or change is None:
        return None
    names = tuple(differ.fresh("k") for _ in keys)
    touched = distinct_keys([change], keys, names)
    now = base.with_inputs((restricted(differ.new(base.child), touched, keys, names),))
    renamed = tuple((user, col(name)) for user, name in zip(shown, names, strict=True))
    return KeyedChange(shown, Project(touched, renamed), _over(above, now))


def root_groups(root: Node) -> tuple[list[Node], Aggregate | Window | None]:
    """The row-wise operators at the root, outermost first, and the grouping operator below them."""
    above: list[Node] = []
    node = root
    while isinstance(node, (Project, Filter)):
        above.append(node)
        node = node.child
    return above, node if isinstance(node, (Aggregate, Window)) else None


def shown_keys(above: Sequence[Node], keys: Sequence[str]) -> tuple[str, ...] | None:
    """The names that the keys have in the output, if all of them are there."""
    names = {key: key for key in keys}
    for node in reversed(above):
        if not isinstance(node, Project):
            continue
        passed = {item.name: name for name, item in reversed(node.items) if isinstance(item, exp.Column)}
        if any(name not in passed for name in names.values()):
            return None
        names = {key: passed[name] for key, name in names.items()}
    return tuple(names[key] for key in keys)


def _over(above: Sequence[Node], base: Node) -> Node:
    node = base
    for operator in reversed(above):
        node = operator.with_inputs((node,))
    return node
