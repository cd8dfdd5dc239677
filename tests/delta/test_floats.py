"""Sums of floats do not drift: a group that changes is summed anew, not added to."""

from __future__ import annotations

import math
from random import Random

from headrace.delta.keyed import keyed_change
from headrace.delta.state import state_plan
from headrace.plan.nodes import State
from tests.algebra.engine import Database, Subject, bind, name_of

ROUNDS = 1000
# Added to a sum and taken away again, the large ones carry the digits of the small ones off.
VALUES = (0.1, 0.7, 1e-3, 3.3, 1e15, -7e15)


def test_a_thousand_rounds_leave_the_sums_of_a_fresh_query() -> None:
    database = Database({"f": [("id", "INTEGER"), ("k", "INTEGER"), ("x", "DOUBLE")]}, {})
    subject = Subject(database, "SELECT k, SUM(x) AS s, AVG(x) AS m FROM f GROUP BY k")
    assert state_plan(subject.plan) is None
    keyed = keyed_change(subject.plan, frozenset({name_of("f")}))
    assert keyed is not None
    keys, rows = keyed.keys_sql(bind, dialect="duckdb"), keyed.rows_sql(bind, dialect="duckdb")
    random = Random(7)
    present: dict[int, tuple[int, float]] = {}
    stored: dict[int, tuple[float, float]] = {}
    running = dict.fromkeys(range(8), 0.0)
    for number in range(ROUNDS):
        gone = [i for i, (_, x) in present.items() if random.random() < (0.6 if abs(x) > 10 else 0.1)]
        change = [(i, *present.pop(i), -1) for i in gone]
        for fresh_id in range(3 * number, 3 * number + 3):
            row = (fresh_id, random.randrange(8), random.choice(VALUES))
            present[row[0]] = row[1:]
            change.append((*row, 1))
        for _, k, x, weight in change:
            running[k] += x * weight
        _move(database, change)
        for (k,) in database.run(keys):
            stored.pop(k, None)
        stored |= {k: (s, m) for k, s, m in database.run(rows)}
        if number % 100 == 99:
            fresh = {k: (s, m) for k, s, m in subject.planned(State.NEW)}
            assert stored.keys() == fresh.keys()
            assert all(map(_close, stored.values(), (fresh[k] for k in stored)))
    assert any(not math.isclose(running[k], fresh[k][0], rel_tol=1e-9) for k in fresh), "nothing was tried"


def _close(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(one, other, strict=True))


def _move(database: Database, change: list[tuple[int, int, float, int]]) -> None:
    """Bring the new state and the change up to date; a replacement reads no old state."""
    listed = ", ".join(map(str, change))
    gone = ", ".join(str(row[0]) for row in change if row[-1] < 0) or "NULL"
    database.connection.execute(
        f"BEGIN; DELETE FROM f_new WHERE id IN ({gone}); DELETE FROM f_change; "
        f"INSERT INTO f_change VALUES {listed}; "
        "INSERT INTO f_new SELECT id, k, x FROM f_change WHERE __hr_weight > 0; COMMIT"
    )
