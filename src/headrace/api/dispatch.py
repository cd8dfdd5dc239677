"""`hr.sql`: one statement in, one DataFrame out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from headrace.api.define import Definition
from headrace.api.guard import refuse_writes
from headrace.api.views import see_through
from headrace.errors import HeadraceError
from headrace.refresh.failure import query_error
from headrace.refresh.result import RefreshResult
from headrace.sql import statements as st
from headrace.sql.ddl import parse_statement
from headrace.sql.names import TableName
from headrace.sql.tokens import tokenize

if TYPE_CHECKING:
    from headrace.api.connection import Headrace

# Statements after which a view or an external table may have come or gone; a script may hold any of them.
_DEFINES = frozenset({"CREATE", "DROP", "ALTER", "REPLACE", "CONVERT", "BEGIN", "EXECUTE"})


def run_statement(hr: Headrace, text: str) -> DataFrame:
    """Carry out one statement."""
    match parse_statement(text):
        case st.Passthrough() as statement:
            return hr.follow_writes(statement.target_writes, lambda: _pass_through(hr, statement))
        case st.CreateStreamTable() as create:
            return _say(hr, hr.define(definition_of(hr, create)))
        case st.AlterStreamTable() as alter:
            return _say(hr, _alter(hr, alter))
        case st.AlterStreamTables(action=action):
            return _say(hr, _alter_all(hr, suspended=isinstance(action, st.Suspend)))
        case st.DropStreamTable() as drop:
            return _say(hr, _drop(hr, drop))
        case st.RefreshStreamTable(name=name, full=full, upstream=upstream):
            result = hr.refresh_stream_table(hr.qualify(name).sql, full=full, upstream=upstream)
            return refresh_frame(hr, result)
        case st.ShowStreamTables():
            return hr.stream_tables().select("name", "status", "refresh_mode", "schedule", "data_timestamp")
        case st.DescribeStreamTable(name=name):
            return _describe(hr, name)
        case st.ShowRefreshHistory(name=name):
            return hr.refresh_history(hr.qualify(name).sql if name else None)
        case st.ExplainStreamTable(name=name):
            return _plan(hr, str(hr.explain(hr.qualify(name).sql)))
        case st.ExplainCreate(create=create):
            return _plan(hr, str(hr.explain_definition(definition_of(hr, create))))
        case other:
            raise HeadraceError(
                "not_available",
                f"{type(other).__name__} is not available in this version.",
                hint="Read Delta tables and stream tables for now.",
            )


def definition_of(hr: Headrace, create: st.CreateStreamTable) -> Definition:
    """Turn the statement into what the definer wants."""
    options = dict(create.options)
    return Definition(
        name=hr.qualify(create.name),
        query=create.query,
        current_schema=hr.current_schema(),
        schedule=create.schedule,
        refresh_mode=create.refresh_mode,
        initialize=bool(options.pop("initialize", True)),
        or_replace=create.or_replace,
        if_not_exists=create.if_not_exists,
        cluster_by=create.cluster_by,
        comment=create.comment,
        options={key: str(value) for key, value in options.items()},
        name_position=create.name_position,
        query_position=create.query_position,
        schedule_position=create.schedule_position,
    )


def refresh_frame(hr: Headrace, result: RefreshResult) -> DataFrame:
    """Show a refresh's result as one row."""
    return hr.frames.frame(
        [
            (
                result.stream_table,
                str(result.action),
                result.reason,
                result.rows_inserted,
                result.rows_deleted,
                result.data_timestamp,
                result.duration_ms,
            )
        ],
        "stream_table string, action string, reason string, rows_inserted bigint, rows_deleted bigint, "
        "data_timestamp timestamp, duration_ms double",
    )


def _pass_through(hr: Headrace, statement: st.Passthrough) -> DataFrame:
    def evaluate(expression: str) -> str | None:
        try:
            value: str | None = hr.spark.sql(f"SELECT CAST({expression} AS STRING)").collect()[0][0]
        except (AnalysisException, ParseException):
            # A variable of a script, which is declared only while the script runs.
            return None
        return value

    try:
        seen = partial(see_through, hr.spark)
        refuse_writes(hr.catalog, statement.target_writes, hr.qualify, evaluate, seen)
        if (dropped := _unmade(hr, statement)) is not None:
            return _say(hr, f"dropped {dropped}")
        result = hr.spark.sql(hr.frames.bind(statement.text))
    except (AnalysisException, ParseException) as error:
        raise query_error(error) from error
    if _first_word(statement.text) in _DEFINES:
        hr.remember_relations()
    return result


def _unmade(hr: Headrace, statement: st.Passthrough) -> TableName | None:
    """Drop what only the catalog knows, where the statement drops such a view or table."""
    if _first_word(statement.text) == "DROP":
        for write in statement.target_writes:
            if write.kind == "table" and len(write.name) <= 3 and hr.drop_unmade(write.name):
                return hr.qualify(write.name)
    return None


def _first_word(text: str) -> str:
    """Give a statement's verb, past any comments.

    >>> _first_word("/* hm */ create view v AS SELECT 1 AS x")
    'CREATE'
    """
    return next((token.text.upper() for token in tokenize(text)), "")


def _alter(hr: Headrace, alter: st.AlterStreamTable) -> str:
    name = hr.qualify(alter.name)
    match alter.action:
        case st.SetSchedule(schedule=schedule, position=position):
            hr.definer.set_schedule(name, schedule, position)
            return f"the schedule of {name} was changed"
        case st.SetRefreshMode(refresh_mode=mode):
            hr.definer.set_mode(name, mode)
            return f"the refresh mode of {name} was changed"
        case st.SetQuery(query=query, query_position=position):
            hr.notify(hr.definer.set_query(name, query, hr.current_schema(), position))
            return f"{name} has another query and was loaded anew"
        case st.Suspend():
            hr.definer.suspend(name)
            return f"{name} is suspended"
        case st.Resume():
            hr.definer.resume(name)
            return f"{name} is resumed"
        case st.Rename(to=to, position=position):
            new = hr.qualify(to)
            hr.definer.rename(name, new, position)
            return f"{name} is now {new}"


def _alter_all(hr: Headrace, *, suspended: bool) -> str:
    names = hr.alter_stream_tables(suspended=suspended)
    done = "suspended" if suspended else "resumed"
    return f"{done} {', '.join(names)}" if names else f"there was nothing to be {done}"


def _drop(hr: Headrace, drop: st.DropStreamTable) -> str:
    name = hr.qualify(drop.name)
    if drop.if_exists and hr.catalog.get(name) is None:
        return f"there is no stream table {name}; nothing was changed"
    dropped = hr.definer.drop(name, cascade=drop.cascade)
    return f"dropped {', '.join(map(str, dropped))}"


def _describe(hr: Headrace, parts: tuple[str, ...]) -> DataFrame:
    table = hr.catalog.find(hr.qualify(parts))
    facts = hr.stream_tables().filter(f"name = '{table.name}'").collect()[0].asDict()
    rows = [(key, None if value is None else str(value)) for key, value in facts.items()]
    rows += [(f"column {name}", type_) for name, type_ in table.columns]
    for edge in hr.catalog.dependencies(table.name):
        rows.append((f"reads {edge.source}", ", ".join(edge.columns_used) or edge.kind))
    return hr.frames.frame(rows, "property string, value string")


def _plan(hr: Headrace, text: str) -> DataFrame:
    return hr.frames.frame([(line,) for line in text.splitlines()], "plan string")


def _say(hr: Headrace, sentence: str) -> DataFrame:
    return hr.frames.frame([(sentence,)], "result string")
