"""What is computed in Arrow is what another engine computes, and what Arrow does otherwise is left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)
from sqlglot import exp, parse_one

from headrace.delta.keyed import keyed_change
from headrace.delta.parts import made_name
from headrace.delta.state import state_plan
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import Aggregate, Constant, State
from headrace.refresh import on_driver as driver_module
from headrace.refresh.arrow_groups import aggregated
from headrace.refresh.arrow_kinds import NotInArrow
from headrace.refresh.arrow_values import column_of, value_of
from headrace.refresh.on_driver import OnDriver, Typed, shown_groups
from headrace.refresh.stages import Given, in_stages
from headrace.sources.changes import SourceChange
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName
from tests.algebra.engine import Database, Rows, Subject, bind, name_of
from tests.delta.test_state import TYPED, random_change
from tests.refresh.cases import random_case

CASES = 400


def spark_type(type_: str) -> DataType:
    if type_.startswith("DECIMAL"):
        return DecimalType(10, 2)
    known: dict[str, DataType] = {
        "VARCHAR": StringType(),
        "DOUBLE": DoubleType(),
        "SMALLINT": ShortType(),
        "BIGINT": LongType(),
    }
    return known.get(type_, IntegerType())


def read_table(database: Database, name: TableName, columns: Sequence[str], state: State) -> Typed | None:
    if state is State.OLD:
        return None
    listed = ", ".join(f'"{column}"' for column in columns)
    rows = database.connection.sql(f"SELECT {listed} FROM {bind(name, State.NEW)}").to_arrow_table()
    types = dict(database.schemas[name.table])
    return rows, StructType([StructField(column, spark_type(types[column])) for column in columns])


def source_change(database: Database, table: str) -> SourceChange:
    rows = database.connection.sql(f"FROM {table}_change").to_arrow_table()
    fields = [StructField(name, spark_type(type_)) for name, type_ in database.schemas[table]]
    return SourceChange(
        columns=tuple(field.name for field in fields),
        rows=rows,
        frame=None,
        gained=0,
        lost=0,
        only_adds=False,
        method="",
        place="",
        schema=StructType([*fields, StructField(WEIGHT, LongType())]),
    )


def counted(rows: pa.Table) -> Rows:
    return Counter({tuple(row.values()): 1 for row in rows.to_pylist()})


def check_replacement(subject: Subject, changes: dict[TableName, SourceChange]) -> bool:
    """Compare the rows of the touched keys, where these can be computed on the driver."""
    database = subject.database
    keyed = keyed_change(subject.plan, frozenset(changes))
    if keyed is None:
        return False
    keys = database.connection.sql(keyed.keys_sql(bind, dialect="duckdb")).to_arrow_table()
    given = {made_name("keys"): (keys, from_arrow_schema(keys.schema))}
    on_driver, root = OnDriver(changes, partial(read_table, database), given), keyed.rows_of("keys")
    rows = on_driver.rows(root)
    if rows is None:
        return False
    assert on_driver.without_rows().rows(root) is not None, subject.text
    wanted = Counter(database.run(keyed.rows_sql(bind, dialect="duckdb")))
    assert Counter(tuple(row.values()) for row in rows.to_pylist()) == wanted, subject.text
    return True


def check_stages(subject: Subject, changes: dict[TableName, SourceChange], rows: pa.Table) -> None:
    """Compare a change with what comes out when the changes inside it are computed first."""
    node = subject.compiled(frozenset(changes)).change
    assert node is not None

    def driver(given: Given) -> OnDriver:
        made = {made_name(name): typed for name, typed in given.items()}
        return OnDriver(changes, partial(read_table, subject.database), made)

    staged = in_stages(node, lambda inner, given: driver(given).change(inner))
    assert staged is not None, subject.text
    found = driver(staged.given).change(staged.root)
    assert found is not None, subject.text
    assert counted(found.select(rows.column_names)) == counted(rows), subject.text


def check(subject: Subject, changed: frozenset[TableName]) -> tuple[bool, bool]:
    """Compare what is computed on the driver; tell whether the change and the state were."""
    database = subject.database
    changes = {name: source_change(database, name.table) for name in changed}
    on_driver = OnDriver(changes, partial(read_table, database))
    node = subject.compiled(changed).change
    rows = on_driver.change(node) if node is not None else None
    if rows is not None:
        netted = rows.select([*subject.plan.columns, WEIGHT])
        assert {row[:-1]: row[-1] for row in counted(netted)} == dict(subject.change(changed)), subject.text
        assert node is not None
        assert on_driver.without_rows().change(node) is not None, subject.text
        check_stages(subject, changes, rows)
    check_replacement(subject, changes)
    state = state_plan(subject.plan)
    below = state.input_change(changed) if state is not None else None
    if state is None or below is None:
        return rows is not None, False
    added = on_driver.added(state, below)
    if added is None:
        return rows is not None, False
    assert on_driver.without_rows().added(state, below) is not None, subject.text
    sql = state.change_sql(changed, bind, dialect="duckdb")
    assert counted(added) == Counter(database.run(str(sql))), subject.text
    kept = database.connection.sql(state.initial_sql(lambda n, _: bind(n, State.NEW), dialect="duckdb"))
    sides = kept.to_arrow_table().cast(added.schema)
    sides = sides.append_column(WEIGHT, pa.array(np.ones(sides.num_rows, dtype=np.int64)))
    shown = shown_groups(state, sides)
    if shown is not None:
        weights = {row[:-1]: row[-1] for row in counted(shown)}
        assert weights == dict(subject.planned(State.NEW)), subject.text
    return rows is not None, shown is not None


def test_random_queries_come_out_alike() -> None:
    changes = states = 0
    for seed in range(CASES):
        case = random_case(seed, (0, 1))
        by_change, by_state = check(case.subject, case.changed)
        changes, states = changes + by_change, states + by_state
    assert changes > CASES / 20
    assert states > CASES / 40


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("t", "SELECT id, a * 2 + 1 AS x, s FROM t WHERE NOT (a > 1 OR s = 'y') OR k IN (1, 5)"),
        (
            "t",
            "SELECT CASE WHEN a BETWEEN 1 AND 4 THEN 'some' WHEN a IS NULL THEN s ELSE 'no' END AS c FROM t",
        ),
        ("d", "SELECT k, price * (1 - price) AS p, COALESCE(price, 0) AS q FROM d WHERE price <> 1.50"),
        ("t", "SELECT k, COUNT(*) AS n, SUM(a) AS s, COUNT(a) AS c FROM t WHERE id > 0 GROUP BY k"),
        ("t", "SELECT s, k, SUM(a * 2) AS x FROM t GROUP BY k, s HAVING COUNT(*) > 1"),
        ("t", "SELECT COUNT(*) AS n, SUM(a) AS s FROM t WHERE a < 5"),
        ("d", "SELECT k, SUM(price) AS total, SUM(price * (2 - price)) AS other FROM d GROUP BY k"),
        ("d", "SELECT SUM(IF(k = 1, price, 0)) AS one FROM d HAVING COUNT(*) < 100"),
        ("t", "SELECT id, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY a DESC, s, id) AS n FROM t"),
        (
            "t",
            "SELECT id, RANK() OVER (PARTITION BY k, s ORDER BY a NULLS LAST) AS r, "
            "DENSE_RANK() OVER (PARTITION BY k, s ORDER BY a DESC NULLS FIRST) AS d FROM t",
        ),
        ("t", "SELECT id, a, COUNT(*) OVER (PARTITION BY s) AS n, SUM(a) OVER (PARTITION BY s) AS t FROM t"),
        (
            "d",
            "SELECT k, MAX(price) OVER (PARTITION BY k) AS m, RANK() OVER (ORDER BY price) AS r FROM d",
        ),
        (
            "t",
            "SELECT k, id, a FROM (SELECT k, id, a, ROW_NUMBER() OVER (PARTITION BY k ORDER BY a, id) AS n "
            "FROM t) WHERE n <= 2",
        ),
        (
            "t",
            "SELECT f.id, f.a, d.price FROM (SELECT id, a, k FROM t ORDER BY a, id LIMIT 5) f "
            "JOIN d ON f.k = d.k",
        ),
        ("t", "SELECT t.id, t.s, d.price FROM t JOIN d ON t.k = d.k WHERE d.price > 0 OR t.a = 1"),
        ("t", "SELECT t.id, d.k, d.price FROM t LEFT JOIN d ON t.k = d.k"),
        ("t", "SELECT d.price, COUNT(*) AS n, SUM(t.a) AS s FROM t JOIN d ON t.k = d.k GROUP BY d.price"),
        ("t d", "SELECT t.id, t.s, d.price FROM t JOIN d ON t.k = d.k WHERE d.price > 0 OR t.a = 1"),
        ("t d", "SELECT t.id, d.k, d.price FROM t LEFT JOIN d ON t.k = d.k"),
        ("d", "SELECT t.id, d.k, d.price FROM t LEFT JOIN d ON t.k = d.k"),
        ("t d", "SELECT id, a FROM t WHERE EXISTS (SELECT 1 FROM d WHERE d.k = t.k)"),
        ("t d", "SELECT id, a FROM t WHERE NOT EXISTS (SELECT 1 FROM d WHERE d.k = t.k)"),
        ("t d", "SELECT t.id, d.price FROM t JOIN d ON t.k < d.k"),
        ("t d", "SELECT t.a, COUNT(*) AS n FROM t JOIN d USING (k) GROUP BY t.a"),
        ("t d", "SELECT k FROM t UNION ALL SELECT k FROM d WHERE price > 1"),
        ("t", "SELECT k FROM t UNION ALL SELECT k FROM d WHERE price > 1"),
        ("t", "SELECT id FROM t WHERE k IN (SELECT k FROM t UNION ALL SELECT k FROM d)"),
        ("t", "SELECT id, SUBSTRING(s, 1, 1) AS c FROM t WHERE s NOT LIKE '%y' OR s LIKE '_'"),
        (
            "t d",
            "SELECT t.id, d.price FROM t, d WHERE (t.k = d.k AND t.a > 1) OR (t.k = d.k AND d.price < 2)",
        ),
    ],
)
def test_these_are_computed_on_the_driver(table: str, text: str) -> None:
    random, database = Random(7), Database(TYPED, {})
    # What is joined has NULLs, duplicates and keys that nothing meets.
    database.change(
        {"d": Counter({(1, Decimal("1.50")): 2, (2, None): 1, (None, Decimal(5)): 1, (9, None): 1})}
    )
    subject, tables = Subject(database, text), table.split()
    for _ in range(20):
        database.change({each: random_change(random, database, each) for each in tables})
        by_change, by_state = check(subject, frozenset(map(name_of, tables)))
        is_grouped = "GROUP" in text or ("SUM" in text and "OVER" not in text)
        assert by_state if is_grouped else by_change


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("t", "SELECT k, MIN(a) AS lo, MAX(id) AS hi, COUNT(a) AS c, SUM(a) AS s FROM t GROUP BY k"),
        ("t", "SELECT s, COUNT(*) AS n FROM (SELECT s, k, MAX(a) AS m FROM t GROUP BY s, k) GROUP BY s, m"),
        ("d", "SELECT k, MAX(price) AS hi, SUM(price) AS s, SUM(price * 2) AS x FROM d GROUP BY k"),
        ("t d", "SELECT t.id, g.m FROM t JOIN (SELECT k, MAX(price) AS m FROM d GROUP BY k) g ON t.k = g.k"),
        ("t", "SELECT k, COUNT(DISTINCT a) AS n, COUNT(DISTINCT s) AS m FROM t GROUP BY k"),
        ("t", "SELECT MAX(a) AS m, MIN(id) AS i, COUNT(a) AS n, COUNT(DISTINCT k) AS d FROM t"),
        ("t d", "SELECT id, s FROM t WHERE id NOT IN (SELECT k FROM d WHERE k > 0)"),
    ],
)
def test_groups_are_computed_on_the_driver(table: str, text: str) -> None:
    random, database = Random(11), Database(TYPED, {})
    subject, tables = Subject(database, text), table.split()
    changes = 0
    for _ in range(20):
        database.change({each: random_change(random, database, each) for each in tables})
        by_change, _ = check(subject, frozenset(map(name_of, tables)))
        assert by_change
        changes += bool(subject.change(frozenset(map(name_of, tables))))
    assert changes > 10


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, MAX(a) AS m, COUNT(*) AS n FROM t GROUP BY k HAVING COUNT(*) > 1",
        "SELECT s, COUNT(DISTINCT a) AS n FROM t WHERE id > 0 GROUP BY s",
        "SELECT t.k, MIN(d.price) AS lo FROM t JOIN d ON t.k = d.k GROUP BY t.k",
    ],
)
def test_the_groups_of_touched_keys_are_computed_on_the_driver(text: str) -> None:
    random, database = Random(13), Database(TYPED, {})
    database.change({"d": Counter({(1, Decimal("1.50")): 2, (2, None): 1, (None, Decimal(5)): 1})})
    subject, some = Subject(database, text), 0
    for _ in range(20):
        database.change({"t": random_change(random, database, "t")})
        assert check_replacement(subject, {name_of("t"): source_change(database, "t")})
        some += bool(subject.change(frozenset({name_of("t")})))
    assert some > 4


@pytest.mark.parametrize(
    "aggregate", ["SUM(DISTINCT i)", "MAX(s)", "AVG(i)", "SUM(x)", "FIRST(i)", "SUM(big)", "AVG(short)"]
)
def test_aggregates_that_spark_may_compute_otherwise(aggregate: str) -> None:
    short = pa.array([Decimal(1), Decimal(2)], pa.decimal128(10, 2))
    rows = pa.table({"i": [1, 2], "s": ["a", "b"], "x": [1.0, 2.0], "big": [1 << 61] * 2, "short": short})
    below = Constant(exp.Null(), tuple(rows.column_names))
    parsed = parse_one(aggregate, dialect=VerbatimSpark)
    with pytest.raises(NotInArrow):
        aggregated(Aggregate(below, ("i",), (("a", parsed),)), rows)


def test_groups_by_a_column_that_is_called_like_a_result() -> None:
    rows = pa.table({"max_max": [1, 1], "x": [3, 4]})
    below = Constant(exp.Null(), ("max_max", "x"))
    parsed = parse_one("MAX(x)", dialect=VerbatimSpark)
    found = aggregated(Aggregate(below, ("max_max",), (("max", parsed),)), rows)
    assert found.to_pylist() == [{"max_max": 1, "max": 4}]


def test_averages_are_rounded_as_spark_rounds_them() -> None:
    prices = [Decimal(text) for text in ("0.01", "0.01", "0.02", "-0.01", "-0.01", "-0.02")]
    rows = pa.table({"g": [1, 1, 1, 2, 2, 2], "p": pa.array(prices, pa.decimal128(15, 2))})
    parsed = parse_one("AVG(p)", dialect=VerbatimSpark)
    found = aggregated(Aggregate(Constant(exp.Null(), ("g", "p")), ("g",), (("a", parsed),)), rows)
    assert found["a"].type == pa.decimal128(19, 6)
    assert found["a"].to_pylist() == [Decimal("0.013333"), Decimal("-0.013333")]


def test_wide_decimals_are_compared_where_rounding_makes_no_difference() -> None:
    """No type has room for both sides: Spark rounds the longer one, as it is set."""
    narrow, wide = pa.decimal128(36, 2), pa.decimal128(38, 6)
    condition = parse_one("a > b", dialect=VerbatimSpark)

    def compared(*pairs: tuple[str | None, str | None]) -> list[bool | None]:
        sides = [[None if one is None else Decimal(one) for one in side] for side in zip(*pairs, strict=True)]
        rows = pa.table({"a": pa.array(sides[0], narrow), "b": pa.array(sides[1], wide)})
        assert value_of(condition, rows.slice(0, 0)).to_pylist() == []
        return value_of(condition, rows).to_pylist()

    assert compared(("2", "1.999901"), ("2", "2"), (None, "1"), ("1", "1.5")) == [True, False, None, False]
    assert compared((None, "1"), ("1", None)) == [None, None]
    with pytest.raises(NotInArrow, match="digits"):
        compared(("2", "1.999999"))


def test_rows_without_columns_are_left_to_spark() -> None:
    random, database = Random(3), Database(TYPED, {})
    database.change({"t": random_change(random, database, "t"), "d": Counter({(1, Decimal(1)): 3})})
    text = "SELECT COUNT(*) AS n FROM t CROSS JOIN (SELECT k AS unused FROM d WHERE k > 0) AS e"
    subject = Subject(database, text)
    database.change({"t": random_change(random, database, "t")})
    assert subject.change(frozenset({name_of("t")}))
    check(subject, frozenset({name_of("t")}))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "x + 1.0",
            "x = 1",
            "initcap(s)",
            "s LIKE 'a\\\\_%'",
            "s LIKE s",
            "s LIKE 'a' ESCAPE '!'",
            "SUBSTRING(s, 0, 1)",
            "SUBSTRING(s, i, 1)",
            "EXTRACT(WEEK FROM t)",
            "t + INTERVAL '1' MONTH",
            "DATE '2024-1-1'",
            "DATE '2024-01-01' + INTERVAL -'1' DAY",
            "DATE '2024-01-01' + INTERVAL '1' HOUR",
            "s = 1",
            "i / 2",
            "CAST(i AS STRING)",
            "s = 'it\\'s'",
        ),
        *("i * 2147483647", "d38 * d38", "i <=> 1", "i IN (SELECT 1)", "NULL", "1e3 + i", "t = '2024-01-01'"),
        *("i = 2 = true", "i = 2 IN (true)", "-'5'", "CAST(3 AS BIGINT)"),
    ],
)
def test_what_spark_may_do_otherwise_is_left_to_it(text: str) -> None:
    rows = pa.table(
        {
            "x": pa.array([1.0]),
            "s": pa.array(["a"]),
            "i": pa.array([2], pa.int32()),
            "d38": pa.array([Decimal(1)], pa.decimal128(38, 4)),
            "t": pa.array([0], pa.date32()),
        }
    )
    with pytest.raises(NotInArrow):
        value_of(parse_one(text, dialect=VerbatimSpark), rows)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("DATE '2024-01-31' + INTERVAL '1' MONTH", date(2024, 2, 29)),
        ("DATE '2024-02-29' - INTERVAL '1' YEAR", date(2023, 2, 28)),
        ("DATE '1998-12-01' - INTERVAL '90' DAY", date(1998, 9, 2)),
        ("EXTRACT(YEAR FROM t)", 1970),
        ("SUBSTRING(s, 2, 9)", "\N{LATIN SMALL LETTER E WITH ACUTE}\nx"),
        ("s LIKE '__%x'", True),
        ("s NOT LIKE 'a_'", True),
    ],
)
def test_dates_and_texts(text: str, value: object) -> None:
    rows = pa.table(
        {"s": pa.array(["a\N{LATIN SMALL LETTER E WITH ACUTE}\nx"]), "t": pa.array([3], pa.date32())}
    )
    assert column_of(parse_one(text, dialect=VerbatimSpark), rows).to_pylist() == [value]


@pytest.mark.parametrize("word", ["EXISTS", "NOT EXISTS"])
def test_rows_that_have_a_partner_are_no_pairs(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database({"t": [("id", "INT"), ("k", "INT")], "u": [("k", "INT"), ("j", "INT")]}, {})
    database.change({"u": Counter((i % 2, i) for i in range(50))})
    text = f"SELECT id, k FROM t WHERE {word} (SELECT 1 FROM u WHERE u.k = t.k)"
    subject = Subject(database, text)
    database.change({"t": Counter((i, i % 3) for i in range(40))})
    monkeypatch.setattr(driver_module, "_MOST_JOINED", 60)
    assert check(subject, frozenset({name_of("t")})) == (True, False)
    assert subject.change(frozenset({name_of("t")}))
