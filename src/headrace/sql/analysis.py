"""A query against the schemas of its sources: what it reads, and whether its change can be followed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import TokenType, exp

from headrace.errors import HeadraceError
from headrace.sql.columns_used import columns_used
from headrace.sql.names import TableName, quote
from headrace.sql.position import Edit, apply_edits, position_at
from headrace.sql.references import Reference, parse_query, qualified_columns, table_references, tokenize
from headrace.sql.refusals import Refusal, find_refusals
from headrace.sql.stars import stars_for_columns


@dataclass(frozen=True)
class Column:
    """A column with its Spark type, as in `bigint` or `decimal(10,2)`."""

    name: str
    type: str


@dataclass(frozen=True)
class Table:
    """A base table, or another stream table."""

    name: TableName
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class View:
    """The text of a view and the schema in which its names resolve."""

    name: TableName
    query: str
    current_schema: str
    columns: tuple[Column, ...]


_T = TypeVar("_T")
Resolve = Callable[[TableName], Table | View | None]
Version = Callable[[TableName], str]
Relation = Callable[[TableName], str]


@dataclass(frozen=True)
class Analysis:
    """What a query reads, and why it cannot be maintained incrementally, if so."""

    text: str
    expanded: str
    sources: Mapping[TableName, tuple[str, ...]]
    views: tuple[TableName, ...]
    notices: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    time_dependent: bool
    tree: exp.Query = field(repr=False, compare=False)
    current_schema: str = "default"
    tables: Mapping[TableName, Table] = field(default_factory=dict, repr=False, compare=False)
    view_analyses: Mapping[TableName, Analysis] = field(default_factory=dict, repr=False, compare=False)
    view_columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)

    def pinned(self, version: Version) -> str:
        """The query as written, with every table qualified, at one version, and with the columns it had.

        `version` gives the clause to put after a table's name, such as `VERSION AS OF 5`.
        """
        return self.bound(lambda name: f"{name.sql} {version(name)}".rstrip())

    def bound(self, relation: Relation, plain: Relation | None = None) -> str:
        """The query as written, with the given relation in the place of every table.

        `plain` is for places where only a table's own name can stand; by default it is `relation`.
        """
        plain = plain or relation
        references = list(table_references(self.tree, self.current_schema))
        narrow = not _homonyms(references)
        edits = [self._edit(reference, relation, plain, narrow=narrow) for reference in references]
        if narrow:
            edits += [Edit(start, end, "") for _, start, end in qualified_columns(self.tree, references)]
        return apply_edits(self.text, edits)

    def _edit(self, reference: Reference, relation: Relation, plain: Relation, *, narrow: bool) -> Edit:
        start, end = reference.start, reference.end
        alias = "" if reference.aliased else f" AS {quote(reference.node.name)}"
        if view := self.view_analyses.get(reference.name):
            columns = ", ".join(quote(column) for column in self.view_columns[reference.name])
            inner = f"({view.bound(relation, plain)}\n) AS {quote(reference.name.table)}({columns})"
            return Edit(start, end, f"(SELECT {columns} FROM {inner}){alias}")
        if reference.node.args.get("version"):
            return Edit(start, end, reference.name.sql)
        if not narrow or reference.keeps_its_form:
            return Edit(start, end, plain(reference.name))
        table = relation(reference.name)
        # Only the columns of today: one that the table gains later changes no `*` and no name's meaning.
        used = self.sources[reference.name]
        columns = ", ".join(quote(column) for column in used) or f"1 AS {quote('__hr_nothing')}"
        return Edit(start, end, f"(SELECT {columns} FROM {table}){alias}")


def analyze(
    text: str,
    *,
    current_schema: str,
    resolve: Resolve,
    known: Callable[[], Iterable[TableName]] = tuple,
) -> Analysis:
    """Parse a query, resolve its tables, expand its views, and find what cannot be maintained.

    `known` lists the names that a suggestion for a misspelt table may choose from. A text that SQLGlot cannot
    parse raises `syntax_error`; Spark may still accept it.
    """
    return _analyze(text, current_schema=current_schema, resolve=resolve, known=known, path=())


def _analyze(
    text: str,
    *,
    current_schema: str,
    resolve: Resolve,
    known: Callable[[], Iterable[TableName]],
    path: tuple[TableName, ...],
) -> Analysis:
    text = _without_semicolon(text)
    tokens = tokenize(text)
    tree = parse_query(text)
    references = list(table_references(tree, current_schema))
    found = {reference.name: _resolve(text, reference, resolve, known) for reference in references}
    tables = {name: table for name, table in found.items() if isinstance(table, Table)}
    views = {name: view for name, view in found.items() if isinstance(view, View)}
    schemas = {name: [column.name for column in relation.columns] for name, relation in found.items()}
    used = columns_used(tree, references, schemas)
    nested = {
        name: _expand(view, resolve=resolve, known=known, path=(*path, name)) for name, view in views.items()
    }
    sources = {name: used[name] for name in tables}
    all_tables = dict(tables)
    for inner in nested.values():
        sources = _merge(sources, inner.sources, {**inner.tables, **all_tables})
        all_tables |= inner.tables
    column_names = {column.lower() for columns in schemas.values() for column in columns}
    refusals = find_refusals(text, tokens, tree, columns=column_names)
    refusals += tuple(refusal for inner in nested.values() for refusal in inner.refusals)
    analysis = Analysis(
        text=text,
        expanded="",
        sources=sources,
        views=_distinct([*nested, *(view for inner in nested.values() for view in inner.views)]),
        notices=_distinct(_notices(tree, references, schemas)),
        refusals=refusals,
        time_dependent=any(refusal.code == "time_function" for refusal in refusals),
        tree=tree,
        current_schema=current_schema,
        tables=all_tables,
        view_analyses=nested,
        view_columns={name: tuple(schemas[name]) for name in views},
    )
    object.__setattr__(analysis, "expanded", analysis.pinned(lambda _: ""))
    return analysis


def _without_semicolon(text: str) -> str:
    """Drop the semicolons that end a statement, and comments after them.

    >>> _without_semicolon("SELECT ';' AS a; -- done;")
    "SELECT ';' AS a"
    """
    for token in reversed(tokenize(text)):
        if token.token_type is not TokenType.SEMICOLON:
            break
        text = text[: token.start]
    return text.rstrip()


def _resolve(
    text: str, reference: Reference, resolve: Resolve, known: Callable[[], Iterable[TableName]]
) -> Table | View:
    if relation := resolve(reference.name):
        return relation
    close = difflib.get_close_matches(str(reference.name), [str(name) for name in known()], n=1, cutoff=0.6)
    raise HeadraceError(
        "unknown_table",
        f"There is no table or view {reference.name}.",
        hint=f"Did you mean {close[0]}?" if close else "Check the name and its schema.",
        position=position_at(text, reference.start),
    )


def _expand(
    view: View,
    *,
    resolve: Resolve,
    known: Callable[[], Iterable[TableName]],
    path: tuple[TableName, ...],
) -> Analysis:
    if view.name in path[:-1]:
        raise HeadraceError(
            "circular_view",
            f"The view {view.name} reads itself: {' -> '.join(map(str, path))}.",
            hint="Define the view again without the circle.",
        )
    return _analyze(view.query, current_schema=view.current_schema, resolve=resolve, known=known, path=path)


def _merge(
    left: Mapping[TableName, tuple[str, ...]],
    right: Mapping[TableName, tuple[str, ...]],
    tables: Mapping[TableName, Table],
) -> dict[TableName, tuple[str, ...]]:
    merged = dict(left)
    for name, columns in right.items():
        both = {*merged.get(name, ()), *columns}
        merged[name] = tuple(column.name for column in tables[name].columns if column.name in both)
    return merged


def _homonyms(references: Sequence[Reference]) -> bool:
    """Whether two schemas' tables of one name stand unaliased, so that only the schema tells them apart."""
    bare = {reference.name for reference in references if not reference.aliased}
    return len({name.table for name in bare}) < len(bare)


def _notices(
    tree: exp.Query, references: Sequence[Reference], schemas: Mapping[TableName, Sequence[str]]
) -> list[str]:
    notices = []
    if isinstance(tree, exp.Select) and any(isinstance(item, exp.Star) for item in tree.expressions):
        froms = {id(part.this) for part in (tree.args.get("from_"), *tree.args.get("joins", ())) if part}
        columns = [
            column
            for reference in references
            if id(reference.node) in froms
            for column in schemas[reference.name]
        ]
        listed = ", ".join(columns) if columns else "the columns of today"
        notices.append(f"SELECT * was expanded to {listed}: later columns are not added.")
    elif any(stars_for_columns(tree)):
        notices.append("* was expanded to the columns of today: later columns are not added.")
    if tree.args.get("order") and not tree.args.get("limit") and not tree.args.get("offset"):
        notices.append("ORDER BY without LIMIT is ignored: a table has no order.")
    return notices


def _distinct(items: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(items))
