"""Queries of one row, over which a LIMIT leaves nothing open."""

from __future__ import annotations

from sqlglot import exp

from headrace.sql.functions import AGGREGATES, GENERATORS

# Clauses that may turn the one row of aggregates, or the rows of FROM, into several.
_MULTIPLYING = ("group", "laterals", "pivots")


def cuts_rows(query: exp.Query) -> bool:
    """Whether a LIMIT or OFFSET may take rows away.

    >>> from sqlglot import parse_one
    >>> from headrace.sql.dialect import VerbatimSpark
    >>> texts = "SELECT COUNT(*) FROM t LIMIT 5", "SELECT a FROM t LIMIT 5", "SELECT COUNT(*) FROM t LIMIT 0"
    >>> [cuts_rows(parse_one(text, dialect=VerbatimSpark)) for text in texts]
    [False, True, True]
    """
    limit = query.args.get("limit")
    if query.args.get("offset"):
        return True
    if limit is None:
        return False
    count = limit.expression
    return not (isinstance(count, exp.Literal) and count.is_int and int(count.name) > 0 and _one_row(query))


def _one_row(relation: exp.Expr | None) -> bool:
    """Whether a query gives at most one row, whatever its sources hold."""
    if isinstance(relation, exp.Subquery):
        return not relation.args.get("joins") and not relation.args.get("pivots") and _one_row(relation.this)
    if not isinstance(relation, exp.Select) or any(relation.args.get(clause) for clause in _MULTIPLYING):
        return False
    calls = [_calls(item) for item in relation.expressions]
    if any(GENERATORS & names for names in calls):
        return False
    if any(AGGREGATES & names for names in calls):
        return True
    from_ = relation.args.get("from_")
    joined = [join.this for join in relation.args.get("joins") or ()]
    return from_ is not None and all(_one_row(part) for part in (from_.this, *joined))


def _calls(item: exp.Expr) -> set[str]:
    """The functions that an item calls itself: not in its subqueries, nor as window functions."""
    inner = (exp.Query, exp.Window)
    found = item.walk(prune=lambda node: isinstance(node, inner))
    return {str(node.this).lower() for node in found if isinstance(node, exp.Anonymous)}
