"""Which table a Spark statement is aimed at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Position
from headrace.sql.ddl import parse_statement
from headrace.sql.statements import Passthrough, TargetWrite


def writes(text: str) -> tuple[TargetWrite, ...]:
    statement = parse_statement(text)
    assert isinstance(statement, Passthrough)
    assert statement.text == text
    return statement.target_writes


# Each statement aims at shop.t, by the verb beside it.
AIMED_AT_ONE = [
    ("INSERT INTO shop.t VALUES (1)", "INSERT INTO"),
    ("insert into table shop.t select 1", "INSERT INTO"),
    ("INSERT INTO shop.t (a, b) SELECT 1, 2", "INSERT INTO"),
    ("INSERT INTO shop.t REPLACE WHERE a = 1 SELECT 1", "INSERT INTO"),
    ("INSERT WITH SCHEMA EVOLUTION INTO shop.t SELECT 1", "INSERT INTO"),
    ("INSERT OVERWRITE shop.t SELECT 1", "INSERT OVERWRITE"),
    ("INSERT OVERWRITE TABLE shop.t PARTITION (d = 1) SELECT 1", "INSERT OVERWRITE"),
    ("-- why\n/* and /* how */ */ INSERT INTO shop.t TABLE x", "INSERT INTO"),
    ("WITH x AS (SELECT 1), y(a) AS (SELECT 2) INSERT INTO shop.t TABLE x", "INSERT INTO"),
    ("WITH update AS (SELECT 1) DELETE FROM shop.t WHERE a IN (TABLE update)", "DELETE"),
    ("WITH x AS (SELECT 1) FROM x INSERT INTO shop.t SELECT *", "INSERT INTO"),
    ("FROM (SELECT * FROM o) s INSERT OVERWRITE TABLE shop.t SELECT *", "INSERT OVERWRITE"),
    ("UPDATE shop.t SET a = 1", "UPDATE"),
    ("UPDATE shop.t AS x SET x.a = 1 WHERE x.b", "UPDATE"),
    ("DELETE FROM shop.t", "DELETE"),
    ("DELETE FROM `shop`.`t` WHERE a", "DELETE"),
    ("DELETE FROM shop . /* here */ t", "DELETE"),
    ("MERGE INTO shop.t USING s ON a = b WHEN MATCHED THEN DELETE", "MERGE"),
    (
        "MERGE WITH SCHEMA EVOLUTION INTO shop.t x USING s ON x.a = s.a WHEN NOT MATCHED THEN INSERT *",
        "MERGE",
    ),
    ("TRUNCATE TABLE shop.t", "TRUNCATE"),
    ("ALTER TABLE shop.t ADD COLUMN x INT", "ALTER"),
    ("ALTER TABLE shop.t RENAME TO shop.u", "ALTER"),
    ("ALTER VIEW shop.t AS SELECT 1", "ALTER"),
    ("DROP TABLE shop.t", "DROP"),
    ("DROP TABLE IF EXISTS shop.t PURGE", "DROP"),
    ("DROP VIEW shop.t", "DROP"),
    ("DROP MATERIALIZED VIEW IF EXISTS shop.t", "DROP"),
    ("CREATE TABLE shop.t (a INT)", "CREATE TABLE"),
    ("CREATE TABLE IF NOT EXISTS shop.t (a INT)", "CREATE TABLE IF NOT EXISTS"),
    ("CREATE OR REPLACE TABLE shop.t USING delta AS SELECT 1", "CREATE OR REPLACE TABLE"),
    ("REPLACE TABLE shop.t AS SELECT 1", "REPLACE TABLE"),
    ("CREATE EXTERNAL TABLE shop.t (a INT)", "CREATE TABLE"),
    ("CREATE OR REPLACE VIEW shop.t AS SELECT 1", "CREATE OR REPLACE VIEW"),
    ("LOAD DATA LOCAL INPATH '/x' OVERWRITE INTO TABLE shop.t", "LOAD DATA"),
    ("COPY INTO shop.t FROM '/x' FILEFORMAT = CSV", "COPY"),
    ("RESTORE TABLE shop.t TO VERSION AS OF 3", "RESTORE"),
    ("RESTORE shop.t TO TIMESTAMP AS OF '2026-01-01'", "RESTORE"),
    ("OPTIMIZE shop.t ZORDER BY (a)", "OPTIMIZE"),
    ("VACUUM shop.t RETAIN 0 HOURS", "VACUUM"),
    ("REORG TABLE shop.t APPLY (PURGE)", "REORG"),
    ("CONVERT TO DELTA shop.t", "CONVERT"),
    ("COMMENT ON TABLE shop.t IS 'x'", "COMMENT"),
    ("MSCK REPAIR TABLE shop.t", "MSCK"),
    ("DELETE FROM IDENTIFIER('shop.t')", "DELETE"),
    ("DELETE FROM IDENTIFIER('shop' || '.`t`')", "DELETE"),
    ("DELETE FROM IDENTIFIER('shop').t", "DELETE"),
    ("EXECUTE IMMEDIATE 'DELETE FROM shop.t WHERE a = ?' USING 1", "DELETE"),
    ("BEGIN SELECT 1; DELETE FROM shop.t; END", "DELETE"),
    ("l: BEGIN IF a THEN TRUNCATE TABLE shop.t; END IF; END", "TRUNCATE"),
    ("BEGIN EXECUTE IMMEDIATE 'DROP TABLE shop.t'; END", "DROP"),
]


@pytest.mark.parametrize(("text", "verb"), AIMED_AT_ONE)
def test_the_target_is_found(text: str, verb: str) -> None:
    assert [(write.name, write.verb, write.kind) for write in writes(text)] == [
        (("shop", "t"), verb, "table")
    ]


@pytest.mark.parametrize(("text", "verb"), AIMED_AT_ONE)
def test_in_any_case_and_after_comments(text: str, verb: str) -> None:
    shouted = f" -- first\n{text.replace('shop', 'SHOP')} ;".replace("DELETE", "Delete").replace(
        "INTO", "into"
    )
    assert [(write.name[0].lower(), write.verb) for write in writes(shouted)] == [("shop", verb)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM shop.t",
        "WITH x AS (SELECT 1) SELECT count(*) FROM shop.t",
        "TABLE shop.t",
        "FROM shop.t SELECT a",
        "EXPLAIN DELETE FROM shop.t",
        "DESCRIBE shop.t",
        "REFRESH TABLE shop.t",
        "CACHE TABLE shop.t",
        "ANALYZE TABLE shop.t COMPUTE STATISTICS",
        "CREATE VIEW IF NOT EXISTS shop.t AS SELECT 1",
        "CREATE OR REPLACE TEMP VIEW t AS SELECT 1",
        "CREATE TEMPORARY VIEW t AS SELECT 1",
        "CREATE SCHEMA shop",
        "SELECT 'DELETE FROM shop.t'",
        "SET x = DELETE",
        "USE shop",
        "EXECUTE IMMEDIATE 'SELECT 1' INTO x",
        "EXECUTE IMMEDIATE",
        "DELETE FROM",
        "INSERT INTO",
        "FROM x INSERT INTO",
        "ALTER",
        "BEGIN MERGE_it: BEGIN SELECT 1; END; END",
    ],
)
def test_reading_and_session_statements_have_no_target(text: str) -> None:
    assert writes(text) == ()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("FROM o INSERT INTO a SELECT x INSERT OVERWRITE b.c SELECT y", ["a", "b.c"]),
        ("FROM o JOIN (SELECT 1) INSERT INTO TABLE a SELECT (1) INSERT INTO b SELECT 2", ["a", "b"]),
        (
            "BEGIN INSERT INTO a VALUES (1); IF x THEN DELETE FROM b; ELSE DROP TABLE c; END IF; END",
            ["a", "b", "c"],
        ),
        ("BEGIN MERGE INTO a USING s ON x WHEN MATCHED THEN UPDATE SET y = 1; DROP TABLE b; END", ["a", "b"]),
    ],
)
def test_several_targets(text: str, names: list[str]) -> None:
    assert [".".join(write.name) for write in writes(text)] == names


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("DELETE FROM delta.`/lake/shop.db/t`", "/lake/shop.db/t"),
        ("INSERT INTO TABLE DELTA.`s3://b/t` SELECT 1", "s3://b/t"),
        ("INSERT OVERWRITE DIRECTORY '/lake/t' USING parquet SELECT 1", "/lake/t"),
        ("INSERT OVERWRITE LOCAL DIRECTORY '/lake/t' SELECT 1", "/lake/t"),
        ("VACUUM '/lake/t'", "/lake/t"),
        ("OPTIMIZE '/lake/t'", "/lake/t"),
        ("DELETE FROM shop.t", None),
        ("DELETE FROM delta.orders", None),
    ],
)
def test_paths(text: str, path: str | None) -> None:
    assert [write.path for write in writes(text)] == [path]


@pytest.mark.parametrize(
    ("text", "verb"),
    [("DROP SCHEMA shop CASCADE", "DROP SCHEMA"), ("drop database if exists shop", "DROP DATABASE")],
)
def test_a_whole_schema(text: str, verb: str) -> None:
    assert [(write.name, write.verb, write.kind) for write in writes(text)] == [(("shop",), verb, "schema")]


@pytest.mark.parametrize(
    "text",
    ["DELETE FROM IDENTIFIER(:name)", "DROP TABLE IDENTIFIER(v)", "UPDATE IDENTIFIER('a' || v) SET x = 1"],
)
def test_a_name_that_only_spark_can_know(text: str) -> None:
    assert [(write.name, write.kind) for write in writes(text)] == [((), "dynamic")]


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("EXECUTE IMMEDIATE statement", "statement"),
        ("EXECUTE IMMEDIATE 'DELETE FROM ' || name USING 1 AS a", "'DELETE FROM ' || name"),
        (
            "BEGIN DECLARE v STRING; EXECUTE IMMEDIATE concat('DROP TABLE ', v) INTO x; END",
            "concat('DROP TABLE ', v)",
        ),
    ],
)
def test_a_statement_that_only_spark_can_know(text: str, expression: str) -> None:
    (write,) = writes(text)
    assert (write.name, write.verb, write.kind) == ((), "EXECUTE IMMEDIATE", "statement")
    assert write.expression == expression


def test_the_position_is_that_of_the_name() -> None:
    (write,) = writes("WITH x AS (SELECT 1)\n  INSERT INTO\n    shop.t TABLE x")
    assert write.position == Position(3, 5)


PIECES = [
    *"().;:,'`",
    "x",
    *("INSERT", "INTO", "FROM", "WITH", "AS", "BEGIN", "END", "IDENTIFIER", "THEN", "DELETE"),
]


@given(st.sampled_from(["SELECT", "FROM", "BEGIN", "WITH"]), st.lists(st.sampled_from(PIECES)))
def test_any_tokens_give_an_answer(first: str, rest: list[str]) -> None:
    assert isinstance(parse_statement(" ".join([first, *rest])), Passthrough)
