"""Stream tables over stream tables: what changes together, and what must not be lost on the way."""

from __future__ import annotations

from collections import Counter

from headrace import Headrace
from tests.conftest import refreshed
from tests.lake_algebra.play import rows_of, stored_rows


def create(hr: Headrace, name: str, query: str) -> None:
    hr.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")


def test_an_upstream_table_and_its_own_source_change_together(lake: Headrace) -> None:
    lake.sql("CREATE TABLE t (id INT, k INT, a INT) USING delta")
    lake.sql("INSERT INTO t VALUES (1, 10, 5), (2, NULL, 1)")
    create(lake, "mid", "SELECT k, SUM(a) AS total FROM t GROUP BY k")
    create(lake, "tip", "SELECT t.id, t.a, mid.total FROM t JOIN mid ON t.k <=> mid.k")
    lake.sql("INSERT INTO t VALUES (3, 10, 7)")
    lake.sql("DELETE FROM t WHERE id = 2")
    assert refreshed(lake, "mid").action == "DIFFERENTIAL"
    assert refreshed(lake, "tip").action == "DIFFERENTIAL"
    assert stored_rows(lake, "tip") == Counter([(1, 5, 12), (3, 7, 12)])
    lake.sql("UPDATE t SET k = 20, a = 6 WHERE id = 1")
    assert refreshed(lake, "tip").action == "DIFFERENTIAL"
    assert stored_rows(lake, "tip") == Counter([(3, 7, 12)]), "the source is ahead of the table between"
    assert refreshed(lake, "mid").action == "DIFFERENTIAL"
    assert refreshed(lake, "tip").action == "DIFFERENTIAL"
    assert stored_rows(lake, "tip") == Counter([(1, 6, 6), (3, 7, 7)])


def test_no_delete_is_lost_between_chained_tables(lake: Headrace) -> None:
    """The last table of a chain is refreshed seldom: it must see the sum of what happened before it."""
    lake.sql("CREATE TABLE t (k INT, a INT) USING delta")
    lake.sql("INSERT INTO t VALUES (1, 1), (1, 1), (1, 2), (2, 5), (NULL, 5), (NULL, 5)")
    create(lake, "kept", "SELECT k, a FROM t WHERE a > 0")
    create(lake, "counted", "SELECT k, COUNT(*) AS n FROM kept GROUP BY k")
    create(lake, "several", "SELECT k FROM counted WHERE n > 1")
    assert stored_rows(lake, "several") == Counter([(1,), (None,)])
    for statement in (
        "DELETE FROM t WHERE a = 2",
        "DELETE FROM t WHERE k IS NULL",
        "INSERT INTO t VALUES (2, 7)",
        "UPDATE t SET a = -1 WHERE k = 1",
    ):
        lake.sql(statement)
        assert refreshed(lake, "kept").action == "DIFFERENTIAL"
        assert refreshed(lake, "counted").action == "DIFFERENTIAL"
    assert stored_rows(lake, "counted") == Counter([(2, 2)])
    assert refreshed(lake, "several").action == "DIFFERENTIAL"
    assert stored_rows(lake, "several") == Counter([(2,)])
    lake.sql("DELETE FROM t")
    for name in ("kept", "counted", "several"):
        assert refreshed(lake, name).action == "DIFFERENTIAL"
        assert stored_rows(lake, name) == rows_of(lake.spark.sql("SELECT 1 WHERE FALSE").toArrow())
