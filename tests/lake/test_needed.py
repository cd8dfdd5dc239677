"""Changes over the rows that they need alone, on Spark and Delta, whatever the sources are stored like."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from headrace import Headrace
from headrace.refresh import inputs
from headrace.refresh.needed import Near, Needed
from headrace.sql.names import TableName
from headrace.storage import snapshot
from tests.lake_algebra.play import Story, play

# What Arrow does not compute as Spark does keeps a query from being computed on the driver altogether.
QUERIES = {
    "join": "SELECT initcap(p.name) AS name, s.day, s.n FROM s JOIN p ON s.part = p.id",
    "groups of a join": "SELECT initcap(p.name) AS name, SUM(s.n) AS n, MAX(s.day) AS last FROM s, p "
    "WHERE s.part = p.id GROUP BY initcap(p.name)",
    "three": "SELECT initcap(c.region) AS r, p.name, s.n FROM s JOIN p ON s.part = p.id "
    "JOIN c ON s.customer = c.id",
    "outer": "SELECT initcap(c.region) AS r, c.id, s.n FROM c LEFT JOIN s ON s.customer = c.id AND s.n > 3",
    "anti": "SELECT initcap(c.region) AS r, c.id FROM c "
    "WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.customer = c.id)",
    "collated": "SELECT p.id, c.id AS cid FROM p JOIN c "
    "ON p.name COLLATE UTF8_LCASE = c.region COLLATE UTF8_LCASE",
    "window": "SELECT s.id, RANK() OVER (PARTITION BY s.part ORDER BY s.n, s.id) AS r FROM s",
    "first": "SELECT s.id, s.n, initcap(p.name) AS name FROM s JOIN p ON s.part = p.id "
    "ORDER BY s.n DESC, s.id LIMIT 5",
    "first groups": "SELECT part, COUNT(*) AS k, SUM(n) AS n FROM s GROUP BY part "
    "ORDER BY n DESC, part LIMIT 3",
    "first averages": "SELECT part, AVG(q) AS a, AVG(q * 3) AS b, MIN(q) AS lo, SUM(q) AS t, COUNT(q) AS c "
    "FROM s GROUP BY part ORDER BY a DESC, part LIMIT 7",
    "below average": "SELECT s.id FROM s JOIN (SELECT part, AVG(q) AS a FROM s GROUP BY part) g "
    "ON s.part = g.part "
    "WHERE s.q < 0.9 * g.a",
    "few come and go": "SELECT c.id, c.region FROM c WHERE c.id IN (SELECT s.customer FROM s "
    "LEFT JOIN p ON s.part = p.id AND p.name = 'p1' WHERE s.n > 3)",
    "a total that moves": "SELECT s.id, s.part FROM s WHERE s.n * 100 > (SELECT SUM(c.id) FROM c) "
    "AND NOT EXISTS (SELECT 1 FROM p WHERE p.id = s.part AND p.name < 'p2')",
    "alternatives": "SELECT s.id, p.name FROM s, p WHERE (s.part = p.id AND initcap(p.name) = 'P1') "
    "OR (s.part = p.id AND s.n > 7)",
}
TABLES = [
    # Partitioned, with deletion vectors, with mapped columns and a feed: each is read in its own way.
    "CREATE TABLE s (id INT, part INT, customer BIGINT, n INT, day DATE, q DECIMAL(14,2)) USING delta "
    "PARTITIONED BY (day) "
    "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '2')",
    "CREATE TABLE p (id INT, old INT, name STRING) USING delta TBLPROPERTIES "
    "('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true', "
    "'delta.checkpointInterval' = '2')",
    "CREATE TABLE c (id INT, region STRING) USING delta TBLPROPERTIES ('delta.checkpointInterval' = '1')",
    "INSERT INTO s SELECT CAST(id AS INT), CAST(id % 40 AS INT), IF(id % 9 = 0, NULL, id % 25), "
    "CAST(id % 11 AS INT), DATE '2026-01-01' + CAST(id % 3 AS INT), "
    "IF(id % 13 = 0, NULL, id * 7 / 3) FROM range(200)",
    "INSERT INTO p SELECT CAST(id AS INT), 0, concat('p', id) FROM range(50)",
    "INSERT INTO c SELECT CAST(id AS INT), elt(CAST(id % 3 AS INT) + 1, 'P1', 'west', NULL) FROM range(30)",
    # The stored names of columns are not their names any more.
    "ALTER TABLE p RENAME COLUMN id TO key",
    "ALTER TABLE p RENAME COLUMN old TO id",
    "UPDATE p SET id = key",
]
ROUNDS = [
    [
        "UPDATE s SET n = n + 5, q = q / 3 WHERE id % 50 = 3",
        "DELETE FROM s WHERE id = 17",
        "UPDATE p SET name = 'P1' WHERE id = 4",
    ],
    [
        "DELETE FROM c WHERE id IN (3, 5)",
        "INSERT INTO s VALUES (900, 4, NULL, 99, DATE '2026-01-02', 3.33), (901, NULL, 7, 1, NULL, NULL), "
        "(902, 1, 27, 2, DATE '2026-01-01', 1.00)",
    ],
    ["DELETE FROM p WHERE id = 4", "UPDATE c SET region = 'p2' WHERE id = 8", "DELETE FROM s WHERE n > 12"],
]


class Seen(Needed):
    """Notes for which tables rows were looked up."""

    seen: ClassVar[Counter[str]] = Counter()

    def tables(self) -> dict[TableName, Near]:
        found = super().tables()
        Seen.seen.update(name.table for name in found)
        return found


@pytest.fixture(scope="module")
def stories(standing_shop: Headrace) -> dict[str, Story]:
    for statement in TABLES:
        standing_shop.sql(statement)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "Needed", Seen)
        # As in a process that just began, which starts from the checkpoints.
        patch.setattr(snapshot, "_SNAPSHOTS_KEPT", 0)
        return play(standing_shop, QUERIES, ROUNDS)


@pytest.mark.parametrize("case", QUERIES)
def test_the_change_comes_out_as_the_query(stories: dict[str, Story], case: str) -> None:
    stories[case].check()


def test_the_sources_had_checkpoints(stories: dict[str, Story], standing_shop: Headrace) -> None:
    assert stories
    for table in "spc":
        location = standing_shop.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"]
        names = [path.name for path in Path(location.removeprefix("file:"), "_delta_log").iterdir()]
        assert any(name.endswith(".checkpoint.parquet") for name in names)
        assert any(name.endswith(".checkpoint.parquet.crc") for name in names)


def test_rows_were_looked_up_in_every_table(stories: dict[str, Story]) -> None:
    assert stories
    assert all(Seen.seen[table] > 3 for table in "spc")
