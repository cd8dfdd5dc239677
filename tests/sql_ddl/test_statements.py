"""Stream-table statements: every form of the grammar, and every way to get it wrong."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headrace.errors import HeadraceError, Position
from headrace.sql.ddl import parse_statement
from headrace.sql.statements import (
    AlterAction,
    AlterStreamTable,
    CreateSource,
    CreateStreamTable,
    DescribeStreamTable,
    DropSource,
    DropStreamTable,
    ExplainCreate,
    ExplainStreamTable,
    Passthrough,
    RefreshStreamTable,
    Rename,
    Resume,
    SetQuery,
    SetRefreshMode,
    SetSchedule,
    ShowRefreshHistory,
    ShowStreamTables,
    Suspend,
)


def create(text: str) -> CreateStreamTable:
    statement = parse_statement(text)
    assert isinstance(statement, CreateStreamTable)
    return statement


def error(text: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        parse_statement(text)
    return caught.value


def test_the_whole_of_create() -> None:
    text = """
        CREATE STREAM TABLE IF NOT EXISTS shop.`Daily Totals`
          SCHEDULE '5 minutes'
          REFRESH MODE differential
          WITH (initialize = false)
          CLUSTER BY (day, `shop id`)
          COMMENT 'one row a day; it''s small'
        AS SELECT day, sum(x) AS x -- by day
           FROM sales GROUP BY day ; -- done
    """
    statement = create(text)
    assert statement == CreateStreamTable(
        name=("shop", "Daily Totals"),
        query="SELECT day, sum(x) AS x -- by day\n           FROM sales GROUP BY day",
        query_offset=text.index("SELECT"),
        query_position=Position(8, 12),
        name_position=Position(2, 43),
        if_not_exists=True,
        schedule="5 minutes",
        schedule_position=Position(3, 11),
        refresh_mode="DIFFERENTIAL",
        options={"initialize": False},
        cluster_by=("day", "shop id"),
        comment="one row a day; it's small",
    )


def test_the_least_of_create() -> None:
    statement = create("create stream table t as table s")
    assert (statement.name, statement.query) == (("t",), "table s")
    assert (statement.or_replace, statement.if_not_exists, statement.options) == (False, False, {})
    assert statement.cluster_by == ()
    assert (statement.schedule, statement.refresh_mode, statement.comment) == (None, None, None)


CLAUSES = {
    "SCHEDULE '90s'": ("schedule", "90s"),
    "REFRESH MODE FULL": ("refresh_mode", "FULL"),
    "WITH (initialize = true)": ("options", {"initialize": True}),
    "CLUSTER BY (a)": ("cluster_by", ("a",)),
    "COMMENT 'c'": ("comment", "c"),
}


@pytest.mark.parametrize("order", list(itertools.permutations(CLAUSES))[::7])
def test_clauses_come_in_any_order(order: tuple[str, ...]) -> None:
    statement = create(f"CREATE OR REPLACE STREAM TABLE t {' '.join(order)} AS SELECT 1")
    assert statement.or_replace
    assert {clause: (field, getattr(statement, field)) for clause, (field, _) in CLAUSES.items()} == CLAUSES


@pytest.mark.parametrize(
    ("clause", "schedule"),
    [
        ("SCHEDULE '5 minutes'", "5 minutes"),
        ('schedule "5 minutes"', "5 minutes"),
        ("SCHEDULE CRON '*/5 * * * *'", "CRON '*/5 * * * *'"),
        ("SCHEDULE CRON '0 6 * * *' TIME ZONE 'Europe/Rome'", "CRON '0 6 * * *' TIME ZONE 'Europe/Rome'"),
        ("SCHEDULE CRON 'it''s'", "CRON 'it''s'"),
        ("SCHEDULE DOWNSTREAM", "DOWNSTREAM"),
        ("TARGET_LAG = '1 hour'", "1 hour"),
        ("target_lag = downstream", "DOWNSTREAM"),
    ],
)
def test_schedules_in_create_and_alter(clause: str, schedule: str) -> None:
    assert create(f"CREATE STREAM TABLE t {clause} AS SELECT 1").schedule == schedule
    assert parse_statement(f"ALTER STREAM TABLE t SET {clause}") == AlterStreamTable(
        ("t",), SetSchedule(schedule, Position(1, 26)), Position(1, 20)
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "FROM s SELECT a",
        "FROM s |> WHERE a > 1 |> SELECT a",
        "VALUES (1), (2)",
        "TABLE s",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "SELECT ';' AS `a;b` /* ; */ FROM s",
        "SELECT as FROM s",
    ],
)
def test_the_query_is_kept_as_written(query: str) -> None:
    for ending in ("", ";", " ;\n; -- end", "\n/* end; */"):
        statement = create(f"CREATE STREAM TABLE t AS\n\n{query}{ending}")
        assert statement.query == query
        assert statement.query_position == Position(3, 1)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("t", ("t",)),
        ("Shop.T", ("Shop", "T")),
        ("cat.shop.t", ("cat", "shop", "t")),
        ("`a.b`.`c``d`", ("a.b", "c`d")),
        ("shop . t", ("shop", "t")),
        ("`; DROP TABLE x --`", ("; DROP TABLE x --",)),
        ("`größe`", ("größe",)),
        ("schedule", ("schedule",)),
        ("IDENTIFIER('shop.t')", ("shop", "t")),
        ("identifier", ("identifier",)),
    ],
)
def test_names(written: str, name: tuple[str, ...]) -> None:
    assert create(f"CREATE STREAM TABLE {written} AS SELECT 1").name == name
    assert parse_statement(f"DROP STREAM TABLE {written}") == DropStreamTable(name, Position(1, 19))


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("SUSPEND", Suspend()),
        ("resume", Resume()),
        ("SET REFRESH MODE immediate", SetRefreshMode("IMMEDIATE")),
        ("AS SELECT 2;", SetQuery("SELECT 2", 26, Position(1, 27))),
        ("RENAME TO shop.u", Rename(("shop", "u"), Position(1, 34))),
    ],
)
def test_alter(text: str, action: AlterAction) -> None:
    statement = parse_statement(f"ALTER STREAM TABLE s.t {text}")
    expected = AlterStreamTable(("s", "t"), action, Position(1, 20))
    assert statement == expected


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("DROP STREAM TABLE t", DropStreamTable(("t",), Position(1, 19))),
        (
            "drop stream table if exists t cascade;",
            DropStreamTable(("t",), Position(1, 29), if_exists=True, cascade=True),
        ),
        ("REFRESH STREAM TABLE t", RefreshStreamTable(("t",), Position(1, 22))),
        ("Refresh Stream Table t Full", RefreshStreamTable(("t",), Position(1, 22), full=True)),
        ("SHOW STREAM TABLES", ShowStreamTables()),
        ("DESCRIBE STREAM TABLE t", DescribeStreamTable(("t",), Position(1, 23))),
        ("DESC STREAM TABLE t", DescribeStreamTable(("t",), Position(1, 19))),
        ("SHOW REFRESH HISTORY", ShowRefreshHistory()),
        ("SHOW REFRESH HISTORY FOR s.t", ShowRefreshHistory(("s", "t"), Position(1, 26))),
        ("EXPLAIN STREAM TABLE t", ExplainStreamTable(("t",), Position(1, 22))),
        (
            "CREATE SOURCE o FROM POSTGRES OPTIONS (url 'postgresql://h/d', table 'public.orders')",
            CreateSource(
                ("o",), "POSTGRES", {"url": "postgresql://h/d", "table": "public.orders"}, Position(1, 15)
            ),
        ),
        (
            "create source o from postgres options ('URL' = 'u', fetch.size = 10, ssl true, f -1.5)",
            CreateSource(
                ("o",), "POSTGRES", {"url": "u", "fetch.size": 10, "ssl": True, "f": -1.5}, Position(1, 15)
            ),
        ),
        ("DROP SOURCE s.o", DropSource(("s", "o"), Position(1, 13))),
    ],
)
def test_the_other_statements(text: str, statement: Any) -> None:
    assert parse_statement(text) == statement
    spaced = f"/* x */ {text.replace(' ', '  ', 1)} ;;"
    assert type(parse_statement(spaced)) is type(statement)


def test_explain_create_is_the_create_it_explains() -> None:
    for words in ("CREATE STREAM TABLE", "CREATE OR REPLACE STREAM TABLE"):
        explained = parse_statement(f"EXPLAIN {words} t SCHEDULE DOWNSTREAM AS SELECT 1")
        assert isinstance(explained, ExplainCreate)
        assert explained.create.schedule == "DOWNSTREAM"
        assert explained.create.or_replace == ("REPLACE" in words)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "DESCRIBE stream",
        "DESCRIBE stream.t",
        "CREATE TABLE stream (a INT)",
        "CREATE STREAMING TABLE t AS SELECT 1",
        "SHOW TABLES",
        "EXPLAIN SELECT 1",
        "EXPLAIN CREATE TABLE t AS SELECT 1",
        "REFRESH TABLE t",
        "SET a = it's",
        "SELECT 'CREATE STREAM TABLE t AS SELECT 1'",
        "-- CREATE STREAM TABLE\nSELECT 1",
        "`CREATE` STREAM TABLE",
        "this is not SQL at all",
    ],
)
def test_the_rest_is_sparks_and_stays_as_it_is(text: str) -> None:
    assert parse_statement(text).__class__ is Passthrough
    assert getattr(parse_statement(text), "text", None) == text


WRONG = [
    ("CREATE STREAM t AS SELECT 1", "Expected TABLE, found t", (1, 15)),
    ("CREATE STREAM TABLE", "Expected a table name, found the end", (1, 20)),
    ("CREATE STREAM TABLE AS SELECT 1", "Expected a table name, found AS", (1, 21)),
    ("CREATE STREAM TABLE 'a' AS SELECT 1", "Expected a table name, found 'a'", (1, 21)),
    ("CREATE STREAM TABLE s. AS SELECT 1", "Expected the next part of the name", (1, 24)),
    ("CREATE STREAM TABLE s.t.\n", "Expected the next part of the name", (2, 1)),
    ("CREATE STREAM TABLE t", "found the end of the statement", (1, 22)),
    ("CREATE STREAM TABLE t SELECT 1", "found SELECT", (1, 23)),
    ("CREATE STREAM TABLE t AS", "Expected a query", (1, 25)),
    ("CREATE STREAM TABLE t AS ;", "Expected a query, found ;", (1, 26)),
    ("CREATE STREAM TABLE t AS DROP TABLE x", "Expected a query, found DROP", (1, 26)),
    ("CREATE STREAM TABLE t AS WITH x AS (SELECT 1)\nDELETE FROM y", "can only read", (1, 26)),
    ("CREATE STREAM TABLE t AS FROM x INSERT INTO y SELECT 1", "can only read", (1, 26)),
    ("CREATE STREAM TABLE t AS\nSELECT 'x", "string opens here", (2, 8)),
    ("CREATE STREAM TABLE t AS SELECT `x", "quoted name opens here", (1, 33)),
    ("CREATE STREAM TABLE t AS SELECT 1 /* x", "comment opens here", (1, 35)),
    ("CREATE STREAM TABLE t AS SELECT 1; SELECT 2", "found SELECT", (1, 36)),
    ("CREATE OR REPLACE STREAM TABLE IF NOT EXISTS t AS SELECT 1", "contradict", (1, 32)),
    ("CREATE STREAM TABLE t SCHEDULE AS SELECT 1", "a duration in quotes, CRON or DOWNSTREAM", (1, 32)),
    ("CREATE STREAM TABLE t SCHEDULE 5 minutes AS SELECT 1", "found 5", (1, 32)),
    ("CREATE STREAM TABLE t SCHEDULE CRON AS SELECT 1", "Expected a cron expression in quotes", (1, 37)),
    ("CREATE STREAM TABLE t SCHEDULE CRON '* * * * *' TIME 'UTC' AS SELECT 1", "Expected ZONE", (1, 54)),
    ("CREATE STREAM TABLE t TARGET_LAG '1m' AS SELECT 1", "Expected =", (1, 34)),
    ("CREATE STREAM TABLE t SCHEDULE '1m' TARGET_LAG = '2m' AS SELECT 1", "SCHEDULE is given twice", (1, 37)),
    ("CREATE STREAM TABLE t COMMENT 'a' COMMENT 'b' AS SELECT 1", "COMMENT is given twice", (1, 35)),
    ("CREATE STREAM TABLE t REFRESH AUTO AS SELECT 1", "Expected MODE", (1, 31)),
    ("CREATE STREAM TABLE t REFRESH MODE FAST AS SELECT 1", "AUTO, DIFFERENTIAL, FULL or IMMEDIATE", (1, 36)),
    ("CREATE STREAM TABLE t CLUSTER BY () AS SELECT 1", "Expected a column name", (1, 35)),
    ("CREATE STREAM TABLE t CLUSTER BY (a b) AS SELECT 1", "Expected , or )", (1, 37)),
    ("CREATE STREAM TABLE t WITH () AS SELECT 1", "Expected the name of an option", (1, 29)),
    ("CREATE STREAM TABLE t WITH (initialize) AS SELECT 1", "found )", (1, 39)),
    ("CREATE STREAM TABLE t WITH (initialize = maybe) AS SELECT 1", "found maybe", (1, 42)),
    ("CREATE STREAM TABLE t WITH (initialize = true, INITIALIZE = true) AS SELECT 1", "twice", (1, 48)),
    ("ALTER STREAM TABLE t", "SET, SUSPEND, RESUME, AS or RENAME TO", (1, 21)),
    ("ALTER STREAM TABLE t SET", "SCHEDULE or REFRESH MODE", (1, 25)),
    ("ALTER STREAM TABLE t RENAME u", "Expected TO", (1, 29)),
    ("ALTER STREAM TABLE t SUSPEND RESUME", "Expected the end of the statement", (1, 30)),
    ("DROP STREAM TABLE t RESTRICT", "Expected the end of the statement", (1, 21)),
    ("REFRESH STREAM TABLE t FULLY", "Expected the end of the statement", (1, 24)),
    ("SHOW STREAM TABLE", "Expected TABLES", (1, 13)),
    ("SHOW REFRESH HISTORY t", "Expected the end of the statement", (1, 22)),
    ("EXPLAIN STREAM TABLE", "Expected a table name", (1, 21)),
    ("EXPLAIN CREATE STREAM TABLE t", "found the end", (1, 30)),
    ("CREATE SOURCE o FROM MYSQL OPTIONS (a 1)", "Expected POSTGRES, found MYSQL", (1, 22)),
    ("CREATE SOURCE o FROM POSTGRES", "Expected OPTIONS", (1, 30)),
    ("CREATE SOURCE o FROM POSTGRES OPTIONS (url 'a', url 'b')", "twice", (1, 49)),
    ("DROP SOURCE", "Expected the name of the source", (1, 12)),
    ("", "no statement", (1, 1)),
    (" -- nothing\n", "no statement", (2, 1)),
    (";", "no statement", (1, 1)),
]


@pytest.mark.parametrize(("text", "says", "place"), WRONG)
def test_syntax_errors(text: str, says: str, place: tuple[int, int]) -> None:
    found = error(text)
    assert found.code == "syntax_error"
    assert says in found.message
    assert found.position == Position(*place)
    assert found.hint


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("CREATE STREAM TABLE t SCHEDUL '1m' AS SELECT 1", "Did you mean SCHEDULE?"),
        ("CREATE STREAM TABLE t REFRESH_MODE AUTO AS SELECT 1", "Did you mean REFRESH MODE?"),
        ("CREATE STREAM TABLE t REFRESH MODE DIFFERENTAL AS SELECT 1", "Did you mean DIFFERENTIAL?"),
        ("CREATE STREAM TABLE t WITH (initialise = false) AS SELECT 1", "Did you mean initialize?"),
        ("CREATE STREAM TABLE t WITH (colour = 'red') AS SELECT 1", "The options are: initialize."),
        ("CREATE STREAM TABLE t WITH (initialize = 3) AS SELECT 1", "Give initialize = true or false."),
        ("CREATE STREAM TABLE t AS SELECT 1; SELECT 2", "Send one statement at a time."),
        ("CREATE STREAM TABLE t AS SELECT 'x", "Close it with '."),
        ("DROP STREAM TABLE", "Write: DROP STREAM TABLE [IF EXISTS] name [CASCADE]"),
    ],
)
def test_hints(text: str, suggestion: str) -> None:
    assert error(text).hint == suggestion


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE STREAM TABLE t WITH (initialise = false) AS SELECT 1", "unknown_option"),
        ("CREATE STREAM TABLE t WITH (initialize = 'perhaps') AS SELECT 1", "invalid_option"),
        ("CREATE STREAM TABLE `` AS SELECT 1", "invalid_name"),
        ("DROP STREAM TABLE IDENTIFIER('a..b')", "invalid_name"),
    ],
)
def test_other_codes(text: str, code: str) -> None:
    found = error(text)
    assert (found.code, found.position is not None) == (code, True)


def test_an_option_may_be_a_string() -> None:
    assert create("CREATE STREAM TABLE t WITH ('initialize' 'FALSE') AS SELECT 1").options == {
        "initialize": False
    }
