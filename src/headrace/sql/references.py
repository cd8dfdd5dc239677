"""Which names in a query are tables, and which are CTEs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from headrace.errors import HeadraceError, Position
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName
from headrace.sql.position import position_at, span

DIALECT = VerbatimSpark


@dataclass(frozen=True)
class Reference:
    """One table name in a query's text, from `start` to `end`."""

    name: TableName
    start: int
    end: int
    node: exp.Table

    @property
    def aliased(self) -> bool:
        return bool(self.node.alias)

    @property
    def keeps_its_form(self) -> bool:
        """Whether what follows the name (a sample, a version) allows no subquery in its place."""
        return bool(self.node.args.get("sample") or self.node.args.get("version"))


def tokenize(text: str) -> list[Token]:
    """The tokens of a text, or a syntax error with its place."""
    try:
        return sqlglot.tokenize(text, dialect=DIALECT)
    except TokenError as error:
        raise HeadraceError(
            "syntax_error",
            f"The text cannot be read: {str(error).splitlines()[0]}",
            hint="Check for an open quote or comment.",
            position=Position(1, 1),
        ) from None


def parse_query(text: str) -> exp.Query:
    """The tree of one query, or a syntax error with its place.

    >>> parse_query("SELECT FROM WHERE")
    Traceback (most recent call last):
    ...
    headrace.errors.HeadraceError: [syntax_error] ...
    """
    _refuse_pipes(text)
    try:
        trees = sqlglot.parse(text, dialect=DIALECT)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        description = str(first.get("description") or "the query is not SQL").split(" but got <")[0]
        raise HeadraceError(
            "syntax_error",
            f"The query cannot be parsed near {first.get('highlight') or 'its end'!r}: {description}.",
            hint="Check the text at this place.",
            position=Position(int(first.get("line") or 1), int(first.get("col") or 1)),
        ) from None
    queries = [tree for tree in trees if tree is not None]
    if len(queries) != 1:
        raise HeadraceError(
            "not_a_query",
            f"The text holds {len(queries)} statements.",
            hint="A stream table is defined by exactly one query.",
            position=Position(1, 1),
        )
    query = queries[0]
    if isinstance(query, exp.Query):
        return _with_any_as_call(query)
    # SQLGlot reads some queries of Spark's (TABLE t) as something else: only Spark can tell.
    code = "syntax_error" if isinstance(query, (exp.Command, exp.Alias)) else "not_a_query"
    raise HeadraceError(
        code,
        "The text is not a query.",
        hint="A stream table is defined by SELECT, WITH, VALUES or a set operation.",
        position=Position(1, 1),
    )


def _refuse_pipes(text: str) -> None:
    """SQLGlot turns some steps of a pipe into a query that means something else."""
    for token in tokenize(text):
        if token.token_type is TokenType.PIPE_GT:
            raise HeadraceError(
                "syntax_error",
                "Pipe syntax (|>) is not read.",
                hint="Write the query as SELECT … FROM …, with subqueries in the place of steps.",
                position=position_at(text, token.start),
            )


def _with_any_as_call(query: exp.Query) -> exp.Query:
    """ANY(x) is an aggregate, unless it follows LIKE, or holds a query or a list."""
    for quantifier in list(query.find_all(exp.Any)):
        inner = quantifier.this
        follows_like = isinstance(quantifier.parent, (exp.Like, exp.ILike)) and quantifier.arg_key != "this"
        if isinstance(inner, exp.Paren) and not follows_like:
            quantifier.replace(exp.Anonymous(this="ANY", expressions=[inner.this]))
    return query


def table_references(query: exp.Expr, current_schema: str) -> Iterator[Reference]:
    """Every name in the query that is a table or a view and no CTE, in the order of the text.

    >>> query = parse_query("WITH c AS (SELECT * FROM c) SELECT * FROM c JOIN s.d ON true")
    >>> [str(reference.name) for reference in table_references(query, "shop")]
    ['shop.c', 's.d']
    """
    found = []
    for node in query.find_all(exp.Table):
        parts = node.parts
        if not parts or not all(isinstance(part, exp.Identifier) for part in parts) or _is_cte(node):
            continue
        place = _name_span(node)
        if place is not None:
            name = TableName.of(tuple(part.name for part in parts), current_schema)
            found.append(Reference(name, *place, node))
    yield from sorted(found, key=lambda reference: reference.start)


def _name_span(node: exp.Table) -> tuple[int, int] | None:
    places = [place for part in node.parts if (place := span(part))]
    return (min(start for start, _ in places), max(end for _, end in places)) if places else None


def _is_cte(node: exp.Table) -> bool:
    if len(node.parts) > 1:
        return False
    return visible_cte(node, node.name) is not None


def visible_cte(node: exp.Expr, name: str) -> exp.CTE | None:
    """The CTE that a bare name means at this place: the innermost one whose definition came before."""
    wanted = name.lower()
    child, parent = node, node.parent
    inside: exp.Expr | None = None
    while parent is not None:
        if isinstance(parent, exp.With):
            inside = child
        elif with_ := parent.args.get("with_"):
            for cte in with_.expressions:
                if cte is inside and not with_.recursive:
                    break
                if cte.alias.lower() == wanted:
                    return cte  # type: ignore[no-any-return]  # SQLGlot types no arguments
            inside = None
        child, parent = parent, parent.parent
    return None


def qualified_columns(query: exp.Expr, references: list[Reference]) -> Iterator[tuple[exp.Column, int, int]]:
    """Columns written `schema.table.column`, with the span of the part before the table's name."""
    names = {reference.name.parts for reference in references if not reference.aliased}
    for column in query.find_all(exp.Column):
        parts = column.parts
        lowered = tuple(part.name.lower() for part in parts)
        for length in (2, 3):
            if len(parts) <= length or not _names_table(lowered[:length], names):
                continue
            start, keep = span(parts[0]), span(parts[length - 1])
            if start and keep:
                yield column, start[0], keep[0]
            break


def _names_table(parts: tuple[str, ...], names: set[tuple[str, ...]]) -> bool:
    return parts in names or (len(parts) == 3 and parts[0] == "spark_catalog" and parts[1:] in names)
