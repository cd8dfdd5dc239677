"""Every kind of column and layout of a source goes through differential refreshes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headrace
from headrace import Headrace, HeadraceError
from tests.conftest import SMALL, refreshed, rows

# A type, and three values of it.
Typed = tuple[str, str, str, str]

TYPES: Mapping[str, Typed] = {
    "c": ("CHAR(5)", "'a'", "'b '", "''"),
    "vc": ("VARCHAR(5)", "'a'", "'b '", "''"),
    "d": ("DECIMAL(38,10)", f"{'9' * 28}.{'9' * 10}", "-0.0000000001", "CAST(0 AS DECIMAL(38,10))"),
    # The last moment of the last year is what many write for "never".
    "l": (
        "TIMESTAMP_NTZ",
        "TIMESTAMP_NTZ'2026-03-29 02:30:00'",
        "TIMESTAMP_NTZ'0001-01-01 00:00:00.000001'",
        "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
    ),
    "t": (
        "TIMESTAMP",
        "TIMESTAMP'2026-03-29 02:30:00 UTC'",
        "TIMESTAMP'1969-12-31 23:59:59.999999 UTC'",
        "TIMESTAMP'9999-12-30 12:00:00 UTC'",
    ),
    "day": ("DATE", "DATE'2026-03-29'", "DATE'0001-01-01'", "DATE'9999-12-31'"),
    "s": (
        "STRUCT<p: INT, q: STRUCT<r: STRING>>",
        "named_struct('p', 1, 'q', named_struct('r', 'x'))",
        "named_struct('p', NULL, 'q', NULL)",
        "named_struct('p', 1, 'q', named_struct('r', NULL))",
    ),
    "a": (
        "ARRAY<ARRAY<STRING>>",
        "array(array('a', NULL), NULL)",
        "CAST(array() AS ARRAY<ARRAY<STRING>>)",
        "array(array())",
    ),
    "m": ("MAP<STRING, ARRAY<INT>>", "map('k', array(1, NULL), 'l', NULL)", "map('k', array())", "map()"),
    "v": (
        "VARIANT",
        "parse_json('{\"a\": 1}')",
        'parse_json(\'{"a": "x"}\')',
        "parse_json('[1, null]')",
    ),
    "x": ("BINARY", "X'00FF'", "X''", "X'61'"),
    "y": ("BOOLEAN", "true", "false", "false"),
    "z": ("DOUBLE", "DOUBLE('NaN')", "DOUBLE('-0')", "1e308"),
}
TEXT: Mapping[str, Typed] = {"k": ("STRING", "'a'", "'b '", "''")}
NUMBER: Mapping[str, Typed] = {"k": ("INT", "1", "2", "-3")}
MAPPED = (
    "TBLPROPERTIES ('delta.columnMapping.mode' = '{}', 'delta.minReaderVersion' = '2', "
    "'delta.minWriterVersion' = '5')"
)


@dataclass(frozen=True)
class Case:
    """A source of the column id and others, and what its stream tables show of these."""

    columns: Mapping[str, Typed]
    layout: str = ""
    beside: str = ""
    shown: tuple[str, ...] = field(default=())

    @property
    def items(self) -> str:
        return ", ".join(self.shown or self.columns)

    def row(self, number: int, value: int | None) -> str:
        items = (typed[value] if value else "NULL" for typed in self.columns.values())
        return f"SELECT {number} AS id, {', '.join(items)}"

    def assigned(self, value: int | None) -> str:
        return ", ".join(
            f"{name} = {typed[value] if value else 'NULL'}" for name, typed in self.columns.items()
        )


CASES = {
    "every_type": Case(TYPES, shown=tuple("to_json(v) AS v" if name == "v" else name for name in TYPES)),
    "identity_and_generated": Case(
        NUMBER,
        beside=", n BIGINT GENERATED ALWAYS AS IDENTITY, twice INT GENERATED ALWAYS AS (CAST(k * 2 AS INT))",
        shown=("n", "twice", "k"),
    ),
    "mapped_by_name": Case({**TEXT, "s": TYPES["s"], "l": TYPES["l"]}, layout=MAPPED.format("name")),
    "mapped_by_id": Case({**TEXT, "s": TYPES["s"], "l": TYPES["l"]}, layout=MAPPED.format("id")),
    "partitioned": Case(
        {**TEXT, "t": TYPES["t"], "l": TYPES["l"], "d": TYPES["d"], "z": TYPES["z"], "day": TYPES["day"]},
        layout="PARTITIONED BY (t, l, d, z, day)",
    ),
    "clustered": Case(TEXT, layout="CLUSTER BY (id, k)"),
}
QUERIES = {
    "plain": "SELECT id, {} FROM {}",
    "grouped": "SELECT {}, COUNT(*) AS copies FROM {} GROUP BY ALL",
}


def first_rows(case: Case) -> list[str]:
    return [
        case.row(number, value) for number, value in [(1, 1), (1, 1), (2, 2), (3, None), (3, None), (4, 1)]
    ]


def rounds(source: str, case: Case) -> list[list[str]]:
    """Duplicates come, values change and become NULL and are some again, duplicates go."""
    names = f"{source} (id, {', '.join(case.columns)})"
    added = " UNION ALL ".join(case.row(number, value) for number, value in [(5, 2), (5, 2), (6, None)])
    return [
        [
            f"INSERT INTO {names} {added}",
            f"UPDATE {source} SET {case.assigned(3)} WHERE id = 2",
            f"DELETE FROM {source} WHERE id = 3",
        ],
        [
            f"UPDATE {source} SET {case.assigned(None)} WHERE id IN (2, 4)",
            f"UPDATE {source} SET {case.assigned(1)} WHERE id = 6",
            f"DELETE FROM {source} WHERE id = 1",
        ],
    ]


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    with headrace.connect(warehouse=tmp_path_factory.mktemp("types"), spark_conf=SMALL) as hr:
        yield hr


@pytest.mark.parametrize("source", CASES)
def test_a_source_of_any_kind_is_followed_by_its_changes(types: Headrace, source: str) -> None:
    case = CASES[source]
    columns = ", ".join(f"{name} {typed[0]}" for name, typed in case.columns.items())
    types.sql(f"CREATE TABLE {source} (id INT, {columns}{case.beside}) USING delta {case.layout}")
    types.sql(f"INSERT INTO {source} (id, {', '.join(case.columns)}) {' UNION ALL '.join(first_rows(case))}")
    tables = {f"{source}_{kind}": query.format(case.items, source) for kind, query in QUERIES.items()}
    for table, query in tables.items():
        types.create_stream_table(table, query, refresh_mode="DIFFERENTIAL")
    for statements in rounds(source, case):
        for statement in statements:
            types.sql(statement)
        for table in tables:
            before = rows(types, f"SELECT * FROM {table}")
            result = refreshed(types, table)
            assert result.action == "DIFFERENTIAL", result.reason
            assert rows(types, f"SELECT * FROM {table}") != before, "the result must really change"


@pytest.mark.parametrize("writer", ["spark", "delta-rs"])
def test_days_beyond_the_year_9999_hide_no_other_row(types: Headrace, writer: str) -> None:
    """Writers put a sign before such a year, by which its text sorts before all others."""
    visits, named, st = (f"{part}_{writer[:5]}" for part in ("visits", "named", "st"))
    types.sql(f"CREATE TABLE {visits} (day DATE, x INT) USING delta")
    types.sql(f"CREATE TABLE {named} (day DATE, name STRING) USING delta")
    if writer == "spark":
        far = "VALUES (DATE'2026-01-01', 1), (DATE'+10001-12-31', 2)"
        types.sql(f"INSERT INTO {visits} SELECT /*+ COALESCE(1) */ * FROM {far}")
    else:
        (location,) = types.sql(f"DESCRIBE DETAIL {visits}").select("location").first()
        days = pa.array([20_454, 2_933_627], pa.int32()).cast(pa.date32())
        rows_ = pa.table({"day": days, "x": pa.array([1, 2], pa.int32())})
        write_deltalake(location, rows_, mode="append")
    queries = {
        "joined": f"SELECT v.x, n.name FROM {visits} v JOIN {named} n ON v.day = n.day",
        "most": f"SELECT unix_date(day) AS d, day, MAX(x) AS x FROM {visits} GROUP BY ALL",
        "last": f"SELECT COUNT(*) AS n, unix_date(MAX(day)) AS d FROM {visits}",
        "nested": f"SELECT x, sort_array(array(day, DATE'2026-01-01')) AS days FROM {visits}",
    }
    settings = types._refresher._settings
    types._refresher.use(settings.model_copy(update={"apply": "spark"}))
    for kind, query in queries.items():
        types.create_stream_table(f"{st}_{kind}", query, refresh_mode="DIFFERENTIAL")
    types._refresher.use(settings)
    types.sql(f"INSERT INTO {named} VALUES (DATE'2026-01-01', 'new year')")
    types.sql(f"INSERT INTO {visits} VALUES (DATE'2026-01-01', 5), (DATE'+10001-12-31', 6)")
    for kind in queries:
        # As text: Python has no such day.
        shown = f"SELECT to_json(struct(*)) FROM {st}_{kind}"
        before = rows(types, shown)
        result = refreshed(types, f"{st}_{kind}")
        assert result.action == "DIFFERENTIAL", result.reason
        assert rows(types, shown) != before, kind
    assert rows(types, f"SELECT * FROM {st}_joined WHERE x < 6") == [(1, "new year"), (5, "new year")]
    assert rows(types, f"SELECT d, x FROM {st}_most") == [(20_454, 5), (2_933_627, 6)]


def test_nested_days_beyond_the_year_9999_are_netted_out(types: Headrace) -> None:
    types.sql("CREATE TABLE far (id INT, days ARRAY<DATE>, at STRUCT<t: TIMESTAMP>) USING delta")
    values = "array(DATE'+12000-01-01'), named_struct('t', TIMESTAMP'+12000-01-01 00:00:00')"
    types.sql(f"INSERT INTO far SELECT 1, {values}")
    types.create_stream_table("st_far", "SELECT id, days, at FROM far", refresh_mode="DIFFERENTIAL")
    types.sql(f"INSERT INTO far SELECT 2, {values}")
    types.sql("UPDATE far SET id = 3 WHERE id = 1")
    assert refreshed(types, "st_far").action == "DIFFERENTIAL"
    shown = "SELECT id, size(days), CAST(days[0] AS STRING) FROM st_far"
    assert rows(types, shown) == [(2, 1, "+12000-01-01"), (3, 1, "+12000-01-01")]


def test_a_variant_inside_another_type_is_told_at_once(types: Headrace) -> None:
    types.sql("CREATE TABLE deep (id INT, s STRUCT<v: VARIANT>, variant STRUCT<variant: INT>) USING delta")
    types.sql("INSERT INTO deep SELECT 1, struct(parse_json('1') AS v), struct(5 AS variant)")
    query = "SELECT id, to_json(s.v) AS v FROM deep"
    with pytest.raises(HeadraceError, match="VARIANT inside struct<v:variant>") as refusal:
        types.create_stream_table("st_deep", query, refresh_mode="DIFFERENTIAL")
    assert refusal.value.code == "ungroupable_type"
    types.create_stream_table("st_deep", query, refresh_mode="AUTO")
    table = types.catalog.find(types.qualify("st_deep"))
    assert (table.effective_mode, "VARIANT inside" in table.mode_reason) == ("FULL", True)
    types.create_stream_table("st_flat", "SELECT id, variant FROM deep", refresh_mode="DIFFERENTIAL")
    types.sql("INSERT INTO deep SELECT 2, struct(parse_json('2') AS v), struct(6 AS variant)")
    assert refreshed(types, "st_deep").action == "FULL"
    assert rows(types, "SELECT * FROM st_deep") == [(1, "1"), (2, "2")]
    assert refreshed(types, "st_flat").action == "DIFFERENTIAL"
    assert rows(types, "SELECT id, variant.variant FROM st_flat") == [(1, 5), (2, 6)]
