"""Statement text to a record: stream-table statements are read here, all others are Spark's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.errors import HeadraceError, Position
from headrace.sql.clauses import (
    read_options,
    read_query,
    read_refresh_mode,
    read_schedule,
    sees_schedule,
    suggest,
    with_options,
)
from headrace.sql.cursor import Cursor
from headrace.sql.script import is_complete, split_statements
from headrace.sql.statements import (
    AlterAction,
    AlterStreamTable,
    AlterStreamTables,
    CreateSource,
    CreateStreamTable,
    DescribeStreamTable,
    DropSource,
    DropStreamTable,
    ExplainCreate,
    ExplainStreamTable,
    OptionValue,
    Passthrough,
    RefreshStreamTable,
    Rename,
    Resume,
    SetQuery,
    SetRefreshMode,
    SetSchedule,
    ShowRefreshHistory,
    ShowStreamTables,
    Statement,
    Suspend,
)
from headrace.sql.tokens import Kind
from headrace.sql.writes import find_writes

__all__ = ["is_complete", "parse_statement", "split_statements"]

_CREATE_USAGE = (
    "CREATE [OR REPLACE] STREAM TABLE [IF NOT EXISTS] name [SCHEDULE '5 minutes'] [REFRESH MODE AUTO] "
    "[WITH (initialize = false)] [CLUSTER BY (column)] [COMMENT 'text'] AS query"
)
_ALTER_USAGE = (
    "ALTER STREAM TABLE name SET SCHEDULE '5 minutes' | SET REFRESH MODE AUTO | SUSPEND | RESUME "
    "| AS query | RENAME TO other"
)
_SOURCE_USAGE = "CREATE SOURCE name FROM POSTGRES OPTIONS (url '…', table 'public.orders')"
_CLAUSES = ("SCHEDULE", "TARGET_LAG", "REFRESH MODE", "WITH", "CLUSTER BY", "COMMENT", "AS")


def parse_statement(text: str) -> Statement:
    """Read one statement.

    >>> parse_statement("refresh stream table shop.totals full;").full
    True
    >>> type(parse_statement("SELECT 1")).__name__
    'Passthrough'
    """
    cursor = Cursor(text)
    if cursor.token.kind is Kind.END or cursor.token.is_symbol(";"):
        raise HeadraceError(
            "syntax_error", "There is no statement here.", hint="Write one.", position=cursor.position
        )
    read = _reader(cursor)
    if read is None:
        return Passthrough(text, find_writes(text))
    statement = read(cursor)
    cursor.finish()
    return statement


def _reader(cursor: Cursor) -> Callable[[Cursor], Statement] | None:
    """Choose who reads the statement by its first words; nobody where it is Spark's."""
    for words, usage, read in _READERS:
        if cursor.accept(*words):
            cursor.usage = usage
            return read
    return None


def _create(cursor: Cursor) -> CreateStreamTable:
    cursor.expect("TABLE")
    return _create_body(cursor, or_replace=False)


def _create_or_replace(cursor: Cursor) -> CreateStreamTable:
    cursor.expect("TABLE")
    return _create_body(cursor, or_replace=True)


@dataclass
class _Clauses:
    """The clauses of CREATE as they come, in any order, each at most once."""

    schedule: str | None = None
    schedule_position: Position | None = None
    refresh_mode: str | None = None
    options: dict[str, OptionValue] = field(default_factory=dict)
    cluster_by: tuple[str, ...] = ()
    comment: str | None = None


def _create_body(cursor: Cursor, *, or_replace: bool) -> CreateStreamTable:
    position = cursor.position
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        raise HeadraceError(
            "syntax_error",
            "OR REPLACE and IF NOT EXISTS contradict each other.",
            hint="Keep the one that you mean.",
            position=position,
        )
    name_position, name = cursor.position, cursor.name()
    clauses = _read_clauses(cursor)
    query = read_query(cursor)
    return CreateStreamTable(
        name=name,
        query=query.text,
        query_offset=query.offset,
        query_position=query.position,
        name_position=name_position,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
        schedule=clauses.schedule,
        schedule_position=clauses.schedule_position,
        refresh_mode=clauses.refresh_mode,
        options=clauses.options,
        cluster_by=clauses.cluster_by,
        comment=clauses.comment,
    )


def _read_clauses(cursor: Cursor) -> _Clauses:
    clauses, seen = _Clauses(), set[str]()
    while not cursor.accept("AS"):
        position = cursor.position
        clause = _read_clause(cursor, clauses)
        if clause in seen:
            raise HeadraceError(
                "syntax_error",
                f"{clause} is given twice.",
                hint="Keep one of the two clauses.",
                position=position,
            )
        seen.add(clause)
    return clauses


def _read_clause(cursor: Cursor, into: _Clauses) -> str:
    """Read one clause into `into` and name it."""
    if sees_schedule(cursor):
        into.schedule_position = cursor.position
        into.schedule = read_schedule(cursor)
        return "SCHEDULE"
    if cursor.accept("REFRESH"):
        cursor.expect("MODE")
        into.refresh_mode = read_refresh_mode(cursor)
        return "REFRESH MODE"
    if cursor.accept("WITH"):
        into.options = with_options(cursor)
        return "WITH"
    if cursor.accept("CLUSTER"):
        cursor.expect("BY")
        into.cluster_by = _columns(cursor)
        return "CLUSTER BY"
    if cursor.accept("COMMENT"):
        into.comment = cursor.string("a comment in quotes")
        return "COMMENT"
    hint = suggest(cursor.token.word, _CLAUSES)
    raise cursor.expected(*_CLAUSES[:-1], "AS and a query", hint=hint)


def _columns(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect_symbol("(")
    columns = [cursor.identifier("a column name")]
    while cursor.accept_symbol(","):
        columns.append(cursor.identifier("a column name"))
    if not cursor.accept_symbol(")"):
        raise cursor.expected(",", ")")
    return tuple(columns)


def _alter(cursor: Cursor) -> AlterStreamTable:
    cursor.expect("TABLE")
    position, name = cursor.position, cursor.name()
    return AlterStreamTable(name, _alter_action(cursor), position)


def _alter_all(cursor: Cursor) -> AlterStreamTables:
    if cursor.accept("SUSPEND"):
        return AlterStreamTables(Suspend())
    if cursor.accept("RESUME"):
        return AlterStreamTables(Resume())
    raise cursor.expected("SUSPEND", "RESUME")


def _alter_action(cursor: Cursor) -> AlterAction:
    if cursor.accept("SUSPEND"):
        return Suspend()
    if cursor.accept("RESUME"):
        return Resume()
    if cursor.accept("AS"):
        query = read_query(cursor)
        return SetQuery(query.text, query.offset, query.position)
    if cursor.accept("RENAME"):
        cursor.expect("TO")
        position = cursor.position
        return Rename(cursor.name("the new name"), position)
    if not cursor.accept("SET"):
        raise cursor.expected("SET", "SUSPEND", "RESUME", "AS", "RENAME TO")
    if cursor.accept("REFRESH"):
        cursor.expect("MODE")
        return SetRefreshMode(read_refresh_mode(cursor))
    if not sees_schedule(cursor):
        raise cursor.expected("SCHEDULE", "REFRESH MODE")
    position = cursor.position
    return SetSchedule(read_schedule(cursor), position)


def _drop(cursor: Cursor) -> DropStreamTable:
    cursor.expect("TABLE")
    if_exists = cursor.accept("IF", "EXISTS")
    position, name = cursor.position, cursor.name()
    return DropStreamTable(name, position, if_exists=if_exists, cascade=cursor.accept("CASCADE"))


def _refresh(cursor: Cursor) -> RefreshStreamTable:
    cursor.expect("TABLE")
    position, name = cursor.position, cursor.name()
    full = cursor.accept("FULL")
    return RefreshStreamTable(name, position, full=full, upstream=cursor.accept("WITH", "UPSTREAM"))


def _show_tables(cursor: Cursor) -> ShowStreamTables:
    cursor.expect("TABLES")
    return ShowStreamTables()


def _show_history(cursor: Cursor) -> ShowRefreshHistory:
    if not cursor.accept("FOR"):
        return ShowRefreshHistory()
    position = cursor.position
    return ShowRefreshHistory(cursor.name(), position)


def _describe(cursor: Cursor) -> DescribeStreamTable:
    position = cursor.position
    return DescribeStreamTable(cursor.name(), position)


def _explain(cursor: Cursor) -> ExplainStreamTable:
    cursor.expect("TABLE")
    position = cursor.position
    return ExplainStreamTable(cursor.name(), position)


def _explain_create(cursor: Cursor) -> ExplainCreate:
    return ExplainCreate(_create(cursor))


def _explain_create_or_replace(cursor: Cursor) -> ExplainCreate:
    return ExplainCreate(_create_or_replace(cursor))


def _create_source(cursor: Cursor) -> CreateSource:
    position, name = cursor.position, cursor.name("the name of the source")
    cursor.expect("FROM")
    kind = cursor.accept_any("POSTGRES")
    if not kind:
        raise cursor.expected("POSTGRES")
    cursor.expect("OPTIONS")
    return CreateSource(name, kind, read_options(cursor), position)


def _drop_source(cursor: Cursor) -> DropSource:
    position = cursor.position
    return DropSource(cursor.name("the name of the source"), position)


# The first words decide; Spark has no statement that begins with any of these.
_READERS: tuple[tuple[tuple[str, ...], str, Callable[[Cursor], Statement]], ...] = (
    (("CREATE", "STREAM"), _CREATE_USAGE, _create),
    (("CREATE", "OR", "REPLACE", "STREAM"), _CREATE_USAGE, _create_or_replace),
    (("CREATE", "SOURCE"), _SOURCE_USAGE, _create_source),
    (("ALTER", "STREAM", "TABLES"), "ALTER STREAM TABLES SUSPEND | RESUME", _alter_all),
    (("ALTER", "STREAM"), _ALTER_USAGE, _alter),
    (("DROP", "STREAM"), "DROP STREAM TABLE [IF EXISTS] name [CASCADE]", _drop),
    (("DROP", "SOURCE"), "DROP SOURCE name", _drop_source),
    (("REFRESH", "STREAM"), "REFRESH STREAM TABLE name [FULL] [WITH UPSTREAM]", _refresh),
    (("SHOW", "STREAM"), "SHOW STREAM TABLES", _show_tables),
    (("SHOW", "REFRESH", "HISTORY"), "SHOW REFRESH HISTORY [FOR name]", _show_history),
    # `DESCRIBE stream` alone is Spark's: a table may have that name.
    (("DESCRIBE", "STREAM", "TABLE"), "DESCRIBE STREAM TABLE name", _describe),
    (("DESC", "STREAM", "TABLE"), "DESCRIBE STREAM TABLE name", _describe),
    (("EXPLAIN", "STREAM"), "EXPLAIN STREAM TABLE name", _explain),
    (("EXPLAIN", "CREATE", "STREAM"), f"EXPLAIN {_CREATE_USAGE}", _explain_create),
    (
        ("EXPLAIN", "CREATE", "OR", "REPLACE", "STREAM"),
        f"EXPLAIN {_CREATE_USAGE}",
        _explain_create_or_replace,
    ),
)
