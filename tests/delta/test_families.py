"""What systems of this kind got wrong, over and over: each case by name, with the change it must give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from headrace.plan.nodes import Opaque, walk
from tests.algebra.engine import Database, Row, Subject, check_round, name_of

SCHEMAS = {
    "t": [("id", "INTEGER"), ("k", "INTEGER"), ("a", "INTEGER"), ("s", "VARCHAR")],
    "u": [("id", "INTEGER"), ("k", "INTEGER"), ("b", "INTEGER")],
    "d": [("k", "INTEGER"), ("price", "DECIMAL(10,2)")],
    "f": [("k", "INTEGER"), ("x", "DOUBLE")],
}
Changes = Mapping[str, Mapping[Row, int]]


def changed(text: str, start: Mapping[str, Sequence[Row]], *rounds: Changes) -> list[dict[Row, int]]:
    """The change of each round, after checking that it leads from the old result to the new one."""
    database = Database(SCHEMAS, {table: Counter(start.get(table, ())) for table in SCHEMAS})
    subject = Subject(database, text)
    assert not any(isinstance(node, Opaque) for node in walk(subject.plan.root)), "kept as text"
    found = []
    for changes in rounds:
        database.change({table: Counter(dict(rows)) for table, rows in changes.items()})
        found.append(dict(check_round(subject, frozenset(map(name_of, changes)))))
    return found


T1, T2 = (1, 10, 5, "x"), (2, 10, 7, "y")
U1, U2 = (1, 10, 100), (2, 20, 200)


def test_both_join_sides_change_in_one_refresh() -> None:
    text = "SELECT t.id, u.b FROM t JOIN u ON t.k = u.k"
    (change,) = changed(text, {"t": [T1], "u": [U1]}, {"t": {T1: -1, T2: 1}, "u": {U1: -1, (3, 10, 300): 1}})
    assert change == {(1, 100): -1, (2, 300): 1}


def test_a_key_changes_while_its_partner_is_deleted() -> None:
    text = "SELECT t.id, u.b FROM t LEFT JOIN u ON t.k = u.k"
    moved = {"t": {T1: -1, (1, 20, 5, "x"): 1}, "u": {U1: -1}}
    (change,) = changed(text, {"t": [T1], "u": [U1, U2]}, moved)
    assert change == {(1, 100): -1, (1, 200): 1}


@pytest.mark.parametrize("kind", ["LEFT", "FULL"])
def test_null_padding_appears_and_disappears(kind: str) -> None:
    text = f"SELECT t.id, u.b FROM t {kind} JOIN u ON t.k = u.k"
    gone, back = changed(text, {"t": [T1], "u": [U1]}, {"u": {U1: -1}}, {"u": {U1: 1}})
    assert gone == {(1, 100): -1, (1, None): 1}
    assert back == {(1, 100): 1, (1, None): -1}


def test_a_full_join_pads_both_sides() -> None:
    text = "SELECT t.id, u.id AS uid FROM t FULL JOIN u ON t.k = u.k"
    (change,) = changed(text, {"t": [T1], "u": [U1]}, {"t": {T1: -1}, "u": {U2: 1}})
    assert change == {(1, 1): -1, (None, 1): 1, (None, 2): 1}


def test_null_is_a_group_of_its_own() -> None:
    text = "SELECT k, COUNT(*) AS n FROM t GROUP BY k"
    null_row = (3, None, 1, "x")
    (change,) = changed(text, {"t": [null_row, T1]}, {"t": {null_row: 1}})
    assert change == {(None, 1): -1, (None, 2): 1}


def test_aggregates_without_group_by_have_a_row_over_no_rows() -> None:
    text = "SELECT COUNT(*) AS n, SUM(a) AS s FROM t"
    emptied, filled = changed(text, {"t": [T1]}, {"t": {T1: -1}}, {"t": {T2: 1}})
    assert emptied == {(1, 5): -1, (0, None): 1}
    assert filled == {(0, None): -1, (1, 7): 1}


def test_the_sum_of_nothing_is_null_and_not_zero() -> None:
    text = "SELECT k, SUM(a) AS s FROM t GROUP BY k"
    empty = (3, 10, None, "x")
    (change,) = changed(text, {"t": [T1, empty]}, {"t": {T1: -1}})
    assert change == {(10, 5): -1, (10, None): 1}


def test_having_is_crossed_in_both_directions() -> None:
    text = "SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING COUNT(*) > 1"
    up, down = changed(text, {"t": [T1]}, {"t": {T2: 1}}, {"t": {T1: -1}})
    assert up == {(10, 2): 1}
    assert down == {(10, 2): -1}


def test_the_extremum_is_deleted() -> None:
    text = "SELECT k, MIN(a) AS lo, MAX(a) AS hi FROM t GROUP BY k"
    (change,) = changed(text, {"t": [T1, T2]}, {"t": {T2: -1}})
    assert change == {(10, 5, 7): -1, (10, 5, 5): 1}


def test_decimals_are_exact() -> None:
    text = "SELECT k, SUM(price) AS s FROM d GROUP BY k"
    start = {"d": [(1, "0.10"), (1, "0.20")]}
    database = Database(SCHEMAS, {"d": Counter(start["d"])})
    subject = Subject(database, text)
    database.change({"d": Counter({(1, "0.30"): 1})})
    change = check_round(subject, frozenset({name_of("d")}))
    assert sorted((str(row[1]), n) for row, n in change.items()) == [("0.30", -1), ("0.60", 1)]


def test_a_correlated_count_over_nothing_is_zero() -> None:
    text = "SELECT id, (SELECT COUNT(*) FROM u WHERE u.k = t.k) AS n FROM t"
    (change,) = changed(text, {"t": [T1], "u": [U1]}, {"u": {U1: -1}})
    assert change == {(1, 1): -1, (1, 0): 1}


def test_not_in_with_a_null_keeps_nothing() -> None:
    text = "SELECT id FROM t WHERE k NOT IN (SELECT k FROM u)"
    null_row = (3, None, 0)
    appears, goes = changed(text, {"t": [T1], "u": [U2]}, {"u": {null_row: 1}}, {"u": {null_row: -1}})
    assert appears == {(1,): -1}
    assert goes == {(1,): 1}


def test_not_in_over_nothing_keeps_even_null() -> None:
    text = "SELECT id FROM t WHERE k NOT IN (SELECT k FROM u)"
    (change,) = changed(text, {"t": [(9, None, 1, "x")], "u": [U1]}, {"u": {U1: -1}})
    assert change == {(9,): 1}


def test_or_exists_does_not_deduplicate() -> None:
    text = "SELECT a FROM t WHERE a = 5 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k)"
    (change,) = changed(text, {"t": [T1, T1]}, {"u": {U1: 2}, "t": {T1: 1}})
    assert change == {(5,): 1}


def test_in_with_several_columns() -> None:
    text = "SELECT id FROM t WHERE (k, a) IN (SELECT k, b FROM u)"
    (change,) = changed(text, {"t": [T1]}, {"u": {(1, 10, 5): 1, (1, 10, 6): 1}})
    assert change == {(1,): 1}


def test_duplicates_of_a_table_without_a_key_are_counted() -> None:
    text = "SELECT k, a FROM t"
    less, none = changed(text, {"t": [T1, T1, T1]}, {"t": {T1: -1}}, {"t": {T1: -2}})
    assert less == {(10, 5): -1}
    assert none == {(10, 5): -2}


def test_distinct_shows_the_last_copy_going_only() -> None:
    text = "SELECT DISTINCT k FROM t"
    kept, gone = changed(text, {"t": [T1, T2]}, {"t": {T1: -1}}, {"t": {T2: -1}})
    assert kept == {}
    assert gone == {(10,): -1}


def test_ties_in_a_window_have_one_rank() -> None:
    text = "SELECT id, RANK() OVER (PARTITION BY k ORDER BY a) AS r FROM t"
    (change,) = changed(text, {"t": [T1, T2]}, {"t": {(0, 10, 5, "z"): 1}})
    assert change == {(0, 1): 1, (2, 2): -1, (2, 3): 1}


def test_top_n_takes_the_next_row_when_the_first_goes() -> None:
    text = "SELECT id, a FROM t ORDER BY a DESC, id LIMIT 1"
    (change,) = changed(text, {"t": [T1, T2]}, {"t": {T2: -1}})
    assert change == {(2, 7): -1, (1, 5): 1}


def test_ties_at_the_limit_are_decided_by_all_columns() -> None:
    text = "SELECT id FROM t ORDER BY a LIMIT 1"
    database = Database(SCHEMAS, {"t": Counter([(3, 1, 5, "x"), (2, 1, 5, "x")])})
    subject = Subject(database, text)
    database.change({"t": Counter({(1, 1, 5, "x"): 1})})
    change = check_round(subject, frozenset({name_of("t")}), as_written=False)
    assert dict(change) == {(2,): -1, (1,): 1}


def test_nan_and_negative_zero_are_values_like_others() -> None:
    nan = float("nan")
    text = "SELECT k, COUNT(*) AS n FROM f WHERE x = 0 GROUP BY k"
    database = Database(SCHEMAS, {"f": Counter([(1, 0.0)])})
    subject = Subject(database, text)
    database.connection.execute("INSERT INTO f_new VALUES (1, '-0'::DOUBLE), (1, 'nan'::DOUBLE)")
    database.connection.execute("INSERT INTO f_change VALUES (1, '-0'::DOUBLE, 1), (1, 'nan'::DOUBLE, 1)")
    assert dict(check_round(subject, frozenset({name_of("f")}))) == {(1, 1): -1, (1, 2): 1}
    grouped = Subject(database, "SELECT x, COUNT(*) AS n FROM f GROUP BY x")
    rows = database.run(grouped.compiled(frozenset({name_of("f")})).sql(_bind, dialect="duckdb"))
    assert sorted(map(repr, rows)) == sorted(map(repr, [(0.0, 1, -1), (0.0, 2, 1), (nan, 1, 1)]))


def _bind(name: Any, state: Any) -> str:
    return f"{name.table}_{state.value}"


def test_self_joins_see_their_own_change_once() -> None:
    text = "SELECT x.id, y.id AS yid FROM t x JOIN t y ON x.k = y.k"
    (change,) = changed(text, {"t": [T1]}, {"t": {T2: 1}})
    assert change == {(1, 2): 1, (2, 1): 1, (2, 2): 1}


def test_the_same_source_in_two_places() -> None:
    text = "SELECT k, a FROM t UNION ALL SELECT k, MAX(a) AS a FROM t GROUP BY k"
    (change,) = changed(text, {"t": [T1]}, {"t": {T2: 1}})
    assert change == {(10, 7): 2, (10, 5): -1}


def test_an_upstream_table_and_its_own_source_change_together() -> None:
    """The table u stands for a stream table over t: both changes come at once, each from its own states."""
    text = "SELECT t.id, t.a, u.b FROM t JOIN u ON t.k = u.k"
    (change,) = changed(
        text, {"t": [T1], "u": [(0, 10, 5)]}, {"t": {T2: 1}, "u": {(0, 10, 5): -1, (0, 10, 12): 1}}
    )
    assert change == {(1, 5, 5): -1, (1, 5, 12): 1, (2, 7, 12): 1}


def test_float_sums_are_recomputed_and_do_not_drift() -> None:
    text = "SELECT k, SUM(x) AS s FROM f GROUP BY k"
    database = Database(SCHEMAS, {"f": Counter([(1, 0.1)])})
    subject = Subject(database, text)
    for _ in range(30):
        database.change({"f": Counter({(1, 1e15): 1})})
        check_round(subject, frozenset({name_of("f")}))
        database.change({"f": Counter({(1, 1e15): -1})})
        (row,) = [row for row, n in check_round(subject, frozenset({name_of("f")})).items() if n > 0]
        assert row == (1, 0.1)
