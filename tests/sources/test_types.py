"""Every type and table feature that a source may have, through the same checks."""

from __future__ import annotations

from headrace import Headrace
from tests.sources.exact import assert_exact, change, newest, source_of, weights

BOTH = ("files on the driver", "files in Spark")
EVERY_TYPE = (
    "id INT, c CHAR(5), vc VARCHAR(7), d DECIMAL(38,10), ntz TIMESTAMP_NTZ, ts TIMESTAMP, dt DATE, f FLOAT, "
    "x DOUBLE, b BINARY, bo BOOLEAN, sh SMALLINT, ti TINYINT, st STRUCT<a: INT, b: ARRAY<DOUBLE>>, "
    "m MAP<STRING, INT>, ar ARRAY<STRUCT<k: STRING, v: DECIMAL(20,2)>>"
)
EVERY_VALUE = (
    "'ab', 'xy', CAST('1234567890123456789012345678.0123456789' AS DECIMAL(38,10)), "
    "TIMESTAMP_NTZ'0001-01-01 00:00:00.000001', TIMESTAMP'9999-12-31 23:59:59.999999', DATE'0001-01-01', "
    "FLOAT('NaN'), -0.0D, X'00FF', true, 1S, 2Y, "
    "named_struct('a', 1, 'b', array(0.0D, double('NaN'), NULL)), "
    "map('k', 1, 'j', NULL), array(named_struct('k', 'x', 'v', 1.5BD), NULL)"
)


def test_every_type_with_nulls_and_duplicates(lake: Headrace) -> None:
    lake.sql(f"CREATE TABLE t ({EVERY_TYPE}) USING delta")
    nothing = ", ".join(["NULL"] * 15)
    lake.sql(
        f"INSERT INTO t SELECT 1, {EVERY_VALUE} UNION ALL SELECT 1, {EVERY_VALUE} "
        f"UNION ALL SELECT 2, {nothing} UNION ALL SELECT 2, {nothing} UNION ALL SELECT 3, {EVERY_VALUE}"
    )
    lake.sql("DELETE FROM t WHERE id = 3")
    assert_exact(lake, "t", 0, paths=BOTH)
    for found in assert_exact(lake, "t", 1, paths=BOTH).values():
        assert list(weights(lake, found).values()) == [-1]


def test_zero_and_minus_zero_differ_and_nan_is_itself(lake: Headrace) -> None:
    lake.sql("CREATE TABLE t (x DOUBLE, a ARRAY<FLOAT>) USING delta")
    lake.sql("INSERT INTO t VALUES (0.0D, array(float('NaN'))), (double('NaN'), array(0.0F)), (-0.0D, NULL)")
    lake.sql("UPDATE t SET x = -x, a = transform(a, one -> -one)")
    expected = {
        "(0.0, (nan))": -1,
        "(-0.0, (nan))": 1,
        "(nan, (0.0))": -1,
        "(nan, (-0.0))": 1,
        "(-0.0, None)": -1,
        "(0.0, None)": 1,
    }
    for found in assert_exact(lake, "t", 1, paths=BOTH).values():
        assert weights(lake, found) == expected


def test_variant(lake: Headrace) -> None:
    lake.sql("CREATE TABLE t (id INT, v VARIANT) USING delta")
    lake.sql(
        """INSERT INTO t SELECT 1, parse_json('{"a": [1, 2.5, "x"]}') UNION ALL SELECT 2, NULL """
        """UNION ALL SELECT 3, parse_json('null') UNION ALL SELECT 4, to_variant_object(array(1))"""
    )
    lake.sql("UPDATE t SET v = parse_json('[1]') WHERE id = 1")
    found = assert_exact(lake, "t", 1, paths=BOTH)
    assert found["files on the driver"].place == "driver"


def test_column_mapping_with_rename_drop_and_nested_change(lake: Headrace) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, `odd name` STRING, st STRUCT<a: INT, b: STRING>, z INT) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    lake.sql("INSERT INTO t VALUES (1, 'x', named_struct('a', 1, 'b', 'q'), 1), (2, NULL, NULL, 2)")
    lake.sql("ALTER TABLE t RENAME COLUMN `odd name` TO `even.name`")
    lake.sql("ALTER TABLE t RENAME COLUMN st.a TO aa")
    lake.sql("ALTER TABLE t DROP COLUMN z")
    lake.sql("ALTER TABLE t ADD COLUMN st.cc DOUBLE")
    lake.sql("INSERT INTO t VALUES (3, 'y', named_struct('aa', 3, 'b', 'r', 'cc', 1.5D))")
    lake.sql("UPDATE t SET id = 10 WHERE id = 1")
    assert_exact(lake, "t", 5, paths=BOTH)
    # Rows of the old version are read under the new names.
    assert weights(lake, change(lake, "t", 1)) == {
        "(3, 'y', (3, 'r', 1.5))": 1,
        "(1, 'x', (1, 'q', None))": -1,
        "(10, 'x', (1, 'q', None))": 1,
    }


def test_column_mapping_by_id_is_left_to_spark(lake: Headrace) -> None:
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'id')"
    lake.sql(f"CREATE TABLE t (id INT, s STRING) USING delta {mapped}")
    lake.sql("INSERT INTO t VALUES (1, 'x')")
    (found,) = assert_exact(lake, "t", 0, paths=["files on the driver"]).values()
    assert (found.place, found.reason) == ("spark", "column mapping by id")


def test_identity_generated_and_added_columns(lake: Headrace) -> None:
    lake.sql(
        "CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY, d DATE, "
        "y INT GENERATED ALWAYS AS (year(d)), n INT DEFAULT 5) USING delta PARTITIONED BY (y) "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    lake.sql("INSERT INTO t (d) VALUES (DATE'2025-01-01'), (DATE'2026-01-01')")
    lake.sql("INSERT INTO t (d, n) VALUES (DATE'2025-01-01', NULL)")
    lake.sql("ALTER TABLE t ADD COLUMN w STRING")
    lake.sql("UPDATE t SET d = DATE'2027-01-01' WHERE d = DATE'2026-01-01'")
    assert_exact(lake, "t", 1, columns=["id", "d", "y", "n"], paths=BOTH)
    assert_exact(lake, "t", 3, paths=BOTH)


def test_widened_types(lake: Headrace) -> None:
    lake.sql(
        "CREATE TABLE t (a TINYINT, b INT, c FLOAT, d DECIMAL(5,2), e INT, f INT, st STRUCT<x: SMALLINT>) "
        "USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    lake.sql("INSERT INTO t VALUES (1, 2, 1.5, 3.25, 4, 5, named_struct('x', 1S)), (2, 0, 0, 0, 0, 0, NULL)")
    for column, wider in {
        "a": "INT",
        "b": "BIGINT",
        "c": "DOUBLE",
        "d": "DECIMAL(12,4)",
        "e": "DECIMAL(12,2)",
        "f": "DOUBLE",
        "st.x": "INT",
    }.items():
        lake.sql(f"ALTER TABLE t ALTER COLUMN {column} TYPE {wider}")
    lake.sql("INSERT INTO t VALUES (100000, 20000000000, 1.5, 3.25, 4, 5, named_struct('x', 100000))")
    lake.sql("DELETE FROM t WHERE a = 1")
    assert_exact(lake, "t", newest(source_of(lake, "t")) - 2, paths=BOTH)


def test_change_files_that_lack_a_column_are_not_added_to_data_files_that_have_it(lake: Headrace) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, c INT) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true')"
    )
    lake.sql("INSERT INTO t VALUES (1, 10), (2, 20)")
    lake.sql("ALTER TABLE t DROP COLUMN c")
    lake.sql("UPDATE t SET id = id + 10")
    lake.sql("RESTORE TABLE t TO VERSION AS OF 1")
    assert change(lake, "t", 1).is_empty
    lake.sql("UPDATE t SET c = 30 WHERE id = 1")
    for one in assert_exact(lake, "t", 1).values():
        assert weights(lake, one) == {"(1, 10)": -1, "(1, 30)": 1}
    assert change(lake, "t", 4).method == "change feed"


def test_char_is_padded_wherever_it_stands(lake: Headrace) -> None:
    """Delta stores it as it came, and Spark pads it when it reads it."""
    lake.sql("CREATE TABLE t (id INT, c CHAR(3), s STRUCT<p: CHAR(3)>, a ARRAY<CHAR(3)>) USING delta")
    lake.sql("INSERT INTO t SELECT 1, 'a', named_struct('p', 'a'), array('a', NULL)")
    for one in assert_exact(lake, "t", 0).values():
        assert weights(lake, one) == {"(1, 'a  ', ('a  '), ('a  ', None))": 1}
    assert change(lake, "t", 0, columns=["id", "c"]).place == "driver"
