"""Collations: which values the query picks among those that are equal and not the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from sqlglot import exp

from headrace.plan.build import Plan
from headrace.plan.expressions import columns_in, function_name
from headrace.plan.nodes import Aggregate, Node, Opaque, Project, SetOperation, TopN, Window, walk
from headrace.plan.rewrites.windows import window_function

# Whose value is the same whichever of equal values it is given.
_COUNTING = frozenset({"count", "count_if", "approx_count_distinct"})
_BINARY = "utf8_binary"
_NAMING = (exp.Collate, exp.Anonymous, exp.DataType)


def collated_source_column(plan: Plan) -> str | None:
    """Name a column of a source that the query uses and whose type has a collation, with its type."""
    for source, used in plan.analysis.sources.items():
        types = plan.types_of(source)
        for column in used:
            if " collate " in types.get(column, types.get(column.lower(), "")):
                return f"{source}.{column}"
    return None


def picks_among_equals(root: Node) -> str | None:
    """Name what shows one of several values that a collation calls equal; which one, only chance decides.

    >>> from headrace.plan.expressions import col
    >>> from headrace.plan.nodes import Scan
    >>> from headrace.sql.names import TableName
    >>> scan = Scan(TableName("default", "t"), (("a", "a"),))
    >>> loose = Project(scan, (("k", exp.Collate(this=col("a"), expression=exp.var("UTF8_LCASE"))),))
    >>> exact = exp.Collate(this=col("k"), expression=exp.var("UTF8_BINARY"))
    >>> picks_among_equals(Project(Aggregate(loose, ("k",)), (("shown", exact),)))
    'GROUP BY, DISTINCT or UNION'
    """
    collated: set[str] = set()
    for node in walk(root):
        if isinstance(node, Opaque):
            if _mentions_collation(node.query.tree):
                return "a query kept as text"
        elif isinstance(node, Project):
            collated |= {name for name, item in node.items if _is_collated(item, collated)}
        elif collated or _mentions_collation(*node.expressions):
            picked = next(_picks(node, root, collated), None)
            if picked is not None:
                return picked
    return None


def _picks(node: Node, root: Node, collated: Set[str]) -> Iterator[str]:
    match node:
        case Aggregate():
            yield from _shown((item for _, item in node.aggregates), collated)
            if _is_read_above(node, root, collated & set(node.keys)):
                # A GROUP BY whose counts nothing reads is planned as DISTINCT is, and so is UNION.
                yield "GROUP BY" if node.aggregates else "GROUP BY, DISTINCT or UNION"
        case Window():
            yield from _shown((window_function(item) for _, item in node.items), collated)
            if _is_read_above(node, root, collated & set(node.columns)):
                yield "OVER"
        case TopN():
            if _is_read_above(node, root, collated & set(node.columns)):
                yield "ORDER BY with LIMIT"
        case SetOperation():
            if collated & set(node.columns):
                yield node.kind.upper()


def _shown(functions: Iterable[exp.Expr], collated: Set[str]) -> Iterator[str]:
    """Name the functions whose value is one of the values that they are given, or made of these."""
    for function in functions:
        name = function_name(function) or ""
        if name not in _COUNTING and _is_collated(function, collated):
            yield name.upper() or "an aggregate"


def _is_read_above(node: Node, root: Node, columns: Set[str]) -> bool:
    """Tell whether an expression above a node reads one of these columns."""
    below = {id(part) for part in walk(node)}
    above = (part for part in walk(root) if id(part) not in below)
    return any(columns & columns_in(*part.expressions) for part in above)


def _is_collated(expression: exp.Expr, collated: Set[str]) -> bool:
    """Tell whether values of an expression may be equal without being the same."""
    match expression:
        case exp.Column():
            return expression.name in collated
        case exp.Collate():
            return _is_loose(expression)
        case exp.Anonymous() if function_name(expression) == "collate":
            return _is_loose(expression)
        case exp.Cast():
            return any(map(_is_loose, expression.to.find_all(exp.DataType)))
        case exp.Predicate() | exp.Connector() | exp.Not():
            return False
    return any(_is_collated(part, collated) for part in expression.iter_expressions())


def _mentions_collation(*expressions: exp.Expr) -> bool:
    return any(_is_loose(part) for expression in expressions for part in expression.find_all(*_NAMING))


def _is_loose(part: exp.Expr) -> bool:
    """Tell whether a COLLATE, its function or a type names another collation than that of the bytes."""
    match part:
        case exp.Collate():
            named = part.expression
        case exp.Anonymous():
            named = part.expressions[-1] if function_name(part) == "collate" else None
        case _:
            named = part.args.get("collate")
    return isinstance(named, exp.Expr) and named.name.lower() != _BINARY
