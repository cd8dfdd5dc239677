"""Which columns of its sources a query reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from headrace.sql.names import TableName
from headrace.sql.references import DIALECT, Reference
from headrace.sql.stars import stars_for_columns


def columns_used(
    query: exp.Query,
    references: Sequence[Reference],
    schemas: Mapping[TableName, Sequence[str]],
) -> dict[TableName, tuple[str, ...]]:
    """For each table the columns that the query reads, in the table's order; in doubt a column is read."""
    used = _written(query, references, schemas)
    named = _excepted(query) | _doubtful(query)
    whole = _pivoted(query, references) | _read_whole(query, references)
    return {
        name: tuple(
            column
            for column in schemas[name]
            if name in whole or column in columns or column.lower() in named
        )
        for name, columns in used.items()
    }


def _doubtful(query: exp.Query) -> set[str]:
    """Names in HAVING and ORDER BY: one of the SELECT list, or, inside an aggregate, a column."""
    clauses = query.find_all(exp.Having, exp.Order)
    return {column.name.lower() for clause in clauses for column in clause.find_all(exp.Column)}


def _excepted(query: exp.Query) -> set[str]:
    """The names in `* EXCEPT (…)`: what is left out must be there."""
    stars = query.find_all(exp.Star)
    parts = (part for star in stars for column in star.args.get("except_") or () for part in column.parts)
    return {part.name.lower() for part in parts}


def _pivoted(query: exp.Query, references: Sequence[Reference]) -> set[TableName]:
    """The tables of a FROM with a PIVOT, which groups by every column that it does not name."""
    froms = {id(pivot.parent_select) for pivot in query.find_all(exp.Pivot)}
    return {reference.name for reference in references if id(reference.node.parent_select) in froms}


def _read_whole(query: exp.Query, references: Sequence[Reference]) -> set[TableName]:
    """The tables whose columns get other names, and all of them where a name is computed."""
    if any(call.name.lower() == "identifier" for call in query.find_all(exp.Anonymous)):
        return {reference.name for reference in references}
    aliases = ((reference, reference.node.args.get("alias")) for reference in references)
    return {reference.name for reference, alias in aliases if alias is not None and alias.columns}


def _written(
    query: exp.Query, references: Sequence[Reference], schemas: Mapping[TableName, Sequence[str]]
) -> dict[TableName, tuple[str, ...]]:
    if any(join.method == "NATURAL" for join in query.find_all(exp.Join)):
        # The columns it joins by are written nowhere.
        return _by_name(query, references, schemas)
    with suppress(SqlglotError, RecursionError, KeyError, AttributeError, ValueError):
        return _by_scope(query, references, schemas)
    return _by_name(query, references, schemas)


def _by_scope(
    query: exp.Query, references: Sequence[Reference], schemas: Mapping[TableName, Sequence[str]]
) -> dict[TableName, tuple[str, ...]]:
    stand_ins = {id(reference.node): f"__hr_source_{i}" for i, reference in enumerate(references)}
    tables = {stand_ins[id(reference.node)]: reference.name for reference in references}
    copied = _with_stand_ins(query, stand_ins)
    qualified = qualify(
        copied,
        dialect=DIALECT,
        schema={
            stand_in: {column.lower(): "unknown" for column in schemas[name]}
            for stand_in, name in tables.items()
        },
        quote_identifiers=False,
        validate_qualify_columns=False,
    )
    if any(stars_for_columns(qualified)):
        raise ValueError("a star inside an expression, which stands for all columns")
    used: dict[TableName, set[str]] = {reference.name: set() for reference in references}
    for scope in traverse_scope(qualified):
        for column in scope.columns:
            _note_use(scope, column, tables, schemas, used)
    return {name: _in_order(schemas[name], columns) for name, columns in used.items()}


def _with_stand_ins(query: exp.Query, stand_ins: Mapping[int, str]) -> exp.Query:
    copied = query.copy()
    for node, twin in zip(query.find_all(exp.Table), copied.find_all(exp.Table), strict=True):
        if stand_in := stand_ins.get(id(node)):
            if not twin.alias:
                twin.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
            twin.set("this", exp.to_identifier(stand_in))
            twin.set("db", None)
            twin.set("catalog", None)
    return copied


def _note_use(
    scope: Scope,
    column: exp.Column,
    tables: Mapping[str, TableName],
    schemas: Mapping[TableName, Sequence[str]],
    used: dict[TableName, set[str]],
) -> None:
    if column.args.get("db"):
        # Behind the name of a schema: the table may be another one than what has the bare name here.
        for homonym in used:
            if homonym.table.lower() == column.table.lower():
                used[homonym].add(column.name.lower())
    source = scope.sources.get(column.table) if column.table else None
    if isinstance(source, exp.Table):
        if name := tables.get(source.name):
            used[name].add(column.name.lower())
        return
    if source is None:
        # A lambda's variable, a lateral alias or a struct's field: any of its parts may be a column.
        parts = {part.name.lower() for part in column.parts}
        for name in used:
            used[name] |= parts & {known.lower() for known in schemas[name]}


def _by_name(
    query: exp.Query, references: Sequence[Reference], schemas: Mapping[TableName, Sequence[str]]
) -> dict[TableName, tuple[str, ...]]:
    everything = any(stars_for_columns(query)) or any(
        join.method == "NATURAL" for join in query.find_all(exp.Join)
    )
    mentioned = {identifier.name.lower() for identifier in query.find_all(exp.Identifier)}
    return {
        reference.name: tuple(
            column for column in schemas[reference.name] if everything or column.lower() in mentioned
        )
        for reference in references
    }


def _in_order(columns: Sequence[str], wanted: set[str]) -> tuple[str, ...]:
    return tuple(column for column in columns if column.lower() in wanted)
