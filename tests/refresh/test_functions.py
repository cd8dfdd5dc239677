"""Functions that are computed on the driver give what Spark gives, value and type."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest
from sqlglot import parse_one

from headrace import Headrace
from headrace.refresh.arrow_functions import _FUNCTIONS, in_session
from headrace.refresh.arrow_kinds import NotInArrow
from headrace.refresh.arrow_values import column_of
from headrace.sql.dialect import VerbatimSpark
from tests.conftest import holds, refreshed, rows

ZONE = "spark.sql.session.timeZone"
ORDER = "spark.sql.functionResolution.sessionOrder"
UTC = {ZONE: "UTC", ORDER: "second"}.__getitem__
TEXTS = ["", " ", "a", " Ab ", "\ta\n", "0", "Hello, World", "  two  words  ", "x" * 40, None]
FOREIGN = ["é", " ß ", "日本語", "😀!", "\u00a0x\u2003", "e\u0301", "", None]
NUMBERS = [0, 1, -1, 2, -2, 7, -7, 2**31 - 1, -(2**31) + 1, None]
SCHEMA = pa.schema(
    [
        *(("s", pa.string()), ("r", pa.string()), ("i", pa.int32()), ("n", pa.int64()), ("k", pa.int16())),
        *(("d", pa.date32()), ("e", pa.date32()), ("p", pa.decimal128(9, 2))),
        ("u", pa.string()),
        *(("t", pa.timestamp("us", "UTC")), ("w", pa.timestamp("us"))),
    ]
)
EXPRESSIONS = [
    *(
        "upper(s)",
        "UCASE(s)",
        "lower(s)",
        "lcase(s)",
        "length(s)",
        "len(s)",
        "char_length(s)",
        "character_length(s)",
    ),
    *("trim(s)", "ltrim(s)", "rtrim(s)", "concat(s, r)", "concat(s)", "s || r", "s || '-' || r"),
    *("concat(upper(s), lower(r), 'z')", "length(trim(s) || r)", "trim(s) = trim(r)", "upper('ab')"),
    *("length(u)", "trim(u)", "rtrim(u)", "u || s", "greatest(u, s)", "least(u, r)", "nullif(u, s)"),
    *("i % 3", "i % -3", "n % 7", "n % i7", "k % 2", "mod(i, 4)", "k % n7", "-7 % 3", "i % -1"),
    *("abs(i)", "abs(n)", "abs(k)", "nullif(i, 7)", "nullif(s, r)", "nullif(i, n)", "nullif(p, 1)"),
    *("greatest(i, 5)", "least(i, n)", "greatest(s, r)", "least(d, e)", "greatest(p, i)", "least(i, n, k)"),
    *("year(d)", "quarter(d)", "month(d)", "day(d)", "dayofmonth(d)", "dayofyear(d)"),
    *("EXTRACT(YEAR FROM d)", "EXTRACT(month FROM d)", "EXTRACT(QUARTER FROM d)", "EXTRACT(DAY FROM d)"),
    *("trunc(d, 'YEAR')", "trunc(d, 'yy')", "trunc(d, 'QUARTER')", "trunc(d, 'MM')", "trunc(d, 'month')"),
    *("trunc(d, 'WEEK')", "datediff(d, e)", "date_diff(e, d)", "datediff(d, DATE '2024-02-29')"),
    *("CAST(t AS DATE)", "to_date(t)", "date(t)", "to_date(d)", "CAST(d AS DATE)", "year(t)", "month(t)"),
    *("hour(t)", "minute(t)", "EXTRACT(HOUR FROM t)", "trunc(t, 'MM')", "datediff(t, d)", "hour(w)"),
    *("date_trunc('YEAR', t)", "date_trunc('quarter', t)", "date_trunc('MM', t)", "date_trunc('week', t)"),
    *("date_trunc('day', t)", "date_trunc('HOUR', t)", "date_trunc('minute', t)"),
    *("CAST(w AS DATE)", "date_trunc('DD', t) = t", "EXTRACT(MINUTE FROM w)"),
    *("CASE WHEN month(d) = 2 THEN upper(s) ELSE lower(r) END", "year(d) = 2024 AND i % 2 = 1"),
]


def _rows(random: Random, count: int) -> pa.Table:
    first, last = date(1, 1, 1), date(9999, 12, 31)
    days = [first, last, date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(1582, 10, 4), None]
    days += [first + timedelta(days=random.randrange((last - first).days)) for _ in range(60)]
    small = [number for number in NUMBERS if number is None or abs(number) < 2**15]
    times = [datetime(2024, 2, 29, 23, 59, 59, 999999), datetime(1969, 12, 31, 23, 30), datetime(1970, 1, 1)]
    times += [datetime(1, 1, 2, 3, 4, 5, 6), datetime(9999, 12, 31, 12, 30), datetime(1582, 10, 10, 1)]
    times += [times[0] - timedelta(seconds=random.randrange(10**10)) for _ in range(60)]
    columns = {
        "s": [random.choice(TEXTS) for _ in range(count)],
        "r": [random.choice(TEXTS) for _ in range(count)],
        "u": [random.choice([*TEXTS, *FOREIGN]) for _ in range(count)],
        "i": [random.choice(NUMBERS) for _ in range(count)],
        "n": [random.choice([*NUMBERS, 2**63 - 1, -(2**63) + 1]) for _ in range(count)],
        "k": [random.choice(small) for _ in range(count)],
        "d": [random.choice(days) for _ in range(count)],
        "e": [random.choice(days) for _ in range(count)],
        "t": [random.choice([*times, None]) for _ in range(count)],
        "w": [random.choice([*times, None]) for _ in range(count)],
        "p": [None if one is None else Decimal(one % 1000) / 100 for one in random.choices(NUMBERS, k=count)],
    }
    return pa.table(columns, schema=SCHEMA)


def test_functions_give_what_spark_gives(lake: Headrace) -> None:
    given = _rows(Random(5), 400)
    given = given.append_column("i7", pa.array([7, -7] * 200, pa.int32()))
    given = given.append_column("n7", pa.array([2, -5] * 200, pa.int64()))
    zone = lake.spark.conf.get(ZONE)
    lake.spark.conf.set(ZONE, "UTC")
    try:
        frame = lake.spark.createDataFrame(given)
        shown = (f"{text} AS c{place}" for place, text in enumerate(EXPRESSIONS))
        wanted = frame.selectExpr(*shown).toArrow()
    finally:
        lake.spark.conf.set(ZONE, zone or "UTC")
    for place, text in enumerate(EXPRESSIONS):
        with in_session(UTC):
            found = column_of(parse_one(text, dialect=VerbatimSpark), given)
        assert found.type == wanted.schema.field(place).type, text
        assert found.to_pylist() == wanted.column(place).to_pylist(), text
    called = " ".join(EXPRESSIONS).lower()
    assert not {name for name, _ in _FUNCTIONS if f"{name}(" not in called}, "every function is tried"


@pytest.mark.parametrize(
    "text",
    [
        *("upper(s)", "lower(s)", "upper('é')", "i % 0", "mod(i, z)", "abs(i)", "length(i)", "concat(s, i)"),
        *("trim('a' FROM s)", "trim(BOTH FROM s)", "trunc(d, s)", "trunc(d, 'DECADE')", "trunc(i, 1)"),
        *("nullif(s, i)", "greatest(b, b)", "greatest(i, s)", "month(s)", "datediff(d, s)", "concat()"),
        *("p % 2", "abs(p)", "EXTRACT(WEEK FROM d)", "EXTRACT(DAY FROM s)", "lpad(s, 1)"),
        *(
            "datediff(DAY, d, d)",
            "ltrim('a', s)",
            "to_date(s)",
            "to_date(d, 'y')",
            "CAST(s AS DATE)",
            "hour(d)",
        ),
        *(
            "date_trunc('day', d)",
            "date_trunc('SECOND', t)",
            "date_trunc(s, t)",
            "date_trunc('day', w)",
            "least(t, t)",
        ),
    ],
)
def test_what_only_spark_knows_is_left_to_it(text: str) -> None:
    given = pa.table(
        {
            "s": pa.array(["straße"]),
            "i": pa.array([-(2**31)], pa.int32()),
            "z": pa.array([0], pa.int32()),
            "d": pa.array([date(2024, 1, 1)]),
            "b": pa.array([True]),
            "t": pa.array([0], pa.timestamp("us", "UTC")),
            "w": pa.array([0], pa.timestamp("us")),
            "p": pa.array([Decimal(1)], pa.decimal128(9, 2)),
        }
    )
    with pytest.raises(NotInArrow), in_session(UTC):
        column_of(parse_one(text, dialect=VerbatimSpark), given)


@pytest.mark.parametrize(
    "text",
    [
        *("year(d)", "trunc(d, 'MM')", "dayofyear(d)", "EXTRACT(YEAR FROM t)", "date_trunc('MONTH', t)"),
        *("CAST(t AS DATE)", "length(s)", "s LIKE '_'", "nullif(e, e) + INTERVAL '1' DAY"),
    ],
)
def test_what_arrow_takes_for_something_else_is_left_to_spark(text: str) -> None:
    """Years are numbers of 16 bits to Arrow, and letters are those of valid texts."""
    day = 35_804_721
    given = pa.table(
        {
            "d": pa.array([day], pa.int32()).cast(pa.date32()),
            "t": pa.array([day * 86_400_000_000], pa.timestamp("us", "UTC")),
            "s": pa.array([b"caf\xe9"], pa.binary()).view(pa.string()),
        }
    )
    text = text.replace("(e, e)", "(DATE '2024-01-01', DATE '2024-01-01')")
    with pytest.raises(NotInArrow), in_session(UTC):
        column_of(parse_one(text, dialect=VerbatimSpark), given)


@pytest.mark.parametrize("zone", ["Europe/Berlin", ""])
def test_hours_of_another_zone_are_left_to_spark(zone: str) -> None:
    given = pa.table({"t": pa.array([0], pa.timestamp("us", "UTC")), "w": pa.array([0], pa.timestamp("us"))})
    for text in ("CAST(t AS DATE)", "hour(t)", "date_trunc('day', t)", "year(t)"):
        with pytest.raises(NotInArrow), in_session(lambda name: zone if name == ZONE else ""):
            column_of(parse_one(text, dialect=VerbatimSpark), given)
    with in_session(lambda name: zone if name == ZONE else ""):
        assert column_of(parse_one("hour(w)", dialect=VerbatimSpark), given).to_pylist() == [0]


def test_a_change_through_functions_starts_no_job(lake: Headrace) -> None:
    lake.sql("CREATE TABLE sales (id INT, day DATE, shop STRING, amount INT) USING delta")
    lake.sql(
        "INSERT INTO sales SELECT id, DATE '2024-01-01' + CAST(id AS INT), 'shop ' || id % 5, id % 9"
        " FROM range(400)"
    )
    query = (
        "SELECT trunc(day, 'MM') AS month, upper(trim(shop)) AS shop, SUM(amount % 4) AS s, COUNT(*) AS n "
        "FROM sales WHERE length(shop) > 3 GROUP BY trunc(day, 'MM'), upper(trim(shop))"
    )
    lake.create_stream_table("months", query, refresh_mode="DIFFERENTIAL")
    for write in (
        "INSERT INTO sales VALUES (1000, DATE '2024-02-29', ' Shop 2', 7), (1001, NULL, NULL, 3)",
        "UPDATE sales SET amount = amount + 1, shop = 'Shop 9' WHERE id % 50 = 3",
        "DELETE FROM sales WHERE id % 7 = 3 OR id = 1000",
        "INSERT INTO sales VALUES (1002, DATE '2024-02-29', 'Straße', 7)",
    ):
        before = rows(lake, "SELECT * FROM months")
        lake.sql(write)
        result = refreshed(lake, "months")
        assert result.action == "DIFFERENTIAL"
        assert (result.spark_jobs > 0) == ("Straße" in write)
        assert rows(lake, "SELECT * FROM months") != before
        assert holds(lake, "months")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_days_are_those_of_the_session(lake: Headrace, zone: str) -> None:
    """A sale shortly after midnight in one zone is one of the day before in another."""
    was = lake.spark.conf.get(ZONE) or "UTC"
    lake.spark.conf.set(ZONE, zone)
    try:
        lake.sql("CREATE TABLE sales (at TIMESTAMP, amount INT) USING delta")
        lake.sql("INSERT INTO sales VALUES (TIMESTAMP '2024-03-10T01:30:00Z', 1), (NULL, 2)")
        query = (
            "SELECT CAST(at AS DATE) AS day, date_trunc('HOUR', at) AS hour, SUM(amount) AS s, COUNT(*) AS n "
            "FROM sales GROUP BY CAST(at AS DATE), date_trunc('HOUR', at)"
        )
        lake.create_stream_table("hours", query, refresh_mode="DIFFERENTIAL")
        for write in (
            "INSERT INTO sales SELECT TIMESTAMP '2024-03-10T01:10:00Z' + make_dt_interval(0, id), 1"
            " FROM range(9)",
            "DELETE FROM sales WHERE at < TIMESTAMP '2024-03-10T03:00:00Z'",
        ):
            before = rows(lake, "SELECT * FROM hours")
            lake.sql(write)
            result = refreshed(lake, "hours")
            assert result.action == "DIFFERENTIAL"
            assert rows(lake, "SELECT * FROM hours") != before
            assert holds(lake, "hours")
    finally:
        lake.spark.conf.set(ZONE, was)


@pytest.mark.parametrize(("order", "shown"), [("second", "C"), ("first", "<c>")])
def test_functions_of_one_name_come_in_the_session_s_order(lake: Headrace, order: str, shown: str) -> None:
    was = lake.spark.conf.get(ORDER)
    lake.spark.udf.register("upper", lambda text: text and f"<{text}>", "string")
    lake.spark.conf.set(ORDER, order)
    try:
        lake.sql("CREATE TABLE words (w STRING) USING delta")
        lake.sql("INSERT INTO words VALUES ('a'), (NULL)")
        query = "SELECT upper(w) AS u, length(w) AS l FROM words"
        lake.create_stream_table("shouted", query, refresh_mode="DIFFERENTIAL")
        lake.sql("INSERT INTO words VALUES ('c')")
        assert refreshed(lake, "shouted").action == "DIFFERENTIAL"
        assert (shown, 1) in rows(lake, "SELECT * FROM shouted")
        assert holds(lake, "shouted")
    finally:
        lake.spark.conf.set(ORDER, was or "second")
        lake.spark.sql("DROP TEMPORARY FUNCTION upper")
