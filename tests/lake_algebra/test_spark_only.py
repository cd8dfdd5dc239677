"""What only Spark has: generators, lambdas, nested types, its own aggregates, and functions of the user's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

import headrace
from headrace import Headrace, HeadraceError
from tests.conftest import SMALL
from tests.lake_algebra.play import Story, play

# The first test waits for all rounds of all queries.
pytestmark = pytest.mark.timeout(1800)

TABLES = [
    "CREATE TABLE m (id INT, g STRING, a INT, x DOUBLE, words ARRAY<STRING>, point STRUCT<px: INT, py: INT>, "
    "tags MAP<STRING, INT>, spots ARRAY<STRUCT<p: INT, q: STRING>>) USING delta",
    "INSERT INTO m VALUES "
    "(1, 'p', 3, 1.5, array('b', 'a'), named_struct('px', 1, 'py', 2), map('u', 1), "
    "array(named_struct('p', 1, 'q', 'one'))), "
    "(2, 'p', 3, NULL, array(), NULL, map(), array()), "
    "(3, 'q', NULL, 2.5, NULL, named_struct('px', 1, 'py', CAST(NULL AS INT)), NULL, NULL), "
    "(4, NULL, 6, 4.0, array(NULL, 'a'), named_struct('px', 3, 'py', 4), map('u', 2, 'v', NULL), "
    "array(named_struct('p', 2, 'q', NULL), NULL))",
    "CREATE TABLE n (id INT, k INT, v INT) USING delta",
    "INSERT INTO n VALUES (1, 1, 10), (1, 2, 20), (2, 1, 10)",
]

ROUNDS = [
    [
        "INSERT INTO m VALUES (5, 'q', 5, 0.5, array('c', 'c'), named_struct('px', 1, 'py', 2), map('v', 7), "
        "array(named_struct('p', 3, 'q', 'three'), named_struct('p', 3, 'q', 'three')))",
        "UPDATE m SET words = array('a', 'z'), x = 8.25 WHERE id = 2",
        "INSERT INTO n VALUES (3, 1, 30), (2, 1, 11)",
    ],
    [
        "DELETE FROM m WHERE id = 1",
        "UPDATE m SET g = 'p', a = a + 1, tags = map('w', id) WHERE id IN (4, 5)",
        "DELETE FROM n WHERE id = 1 AND k = 2",
    ],
    [
        "UPDATE m SET words = NULL, point = NULL, tags = NULL, spots = NULL, x = NULL WHERE id = 5",
        "INSERT INTO m SELECT * FROM m WHERE id = 4",
        "UPDATE n SET id = 3 WHERE id = 2",
    ],
]

QUERIES = {
    "explode": "SELECT id, word FROM m LATERAL VIEW explode(words) AS word",
    "explode outer": "SELECT id, word FROM m LATERAL VIEW OUTER explode(words) w AS word",
    "posexplode outer": "SELECT id, place, word FROM m LATERAL VIEW OUTER posexplode(words) w AS place, word",
    "inline": "SELECT id, p, q FROM m LATERAL VIEW inline(spots) s AS p, q",
    "inline outer": "SELECT id, p, q FROM m LATERAL VIEW OUTER inline(spots) s AS p, q",
    "explode a map": "SELECT id, tag, value FROM m LATERAL VIEW OUTER explode(tags) w AS tag, value",
    "explode and count": "SELECT word, COUNT(*) AS n FROM m LATERAL VIEW explode(words) AS word "
    "GROUP BY word",
    "explode in the select list": "SELECT id, explode_outer(words) AS word FROM m",
    "table function": "SELECT m.id, w.word FROM m LEFT JOIN LATERAL explode(m.words) AS w(word) ON TRUE",
    "lambdas": "SELECT id, transform(words, w -> upper(w)) AS loud, filter(words, w -> w > 'a') AS late, "
    "aggregate(words, 0, (n, w) -> n + coalesce(length(w), 0)) AS letters, "
    "exists(words, w -> w = 'a') AS has_a, map_filter(tags, (k, v) -> v > 1) AS big FROM m",
    "structs": "SELECT id, point.px, struct(a, point.py) AS pair, tags['u'] AS u, "
    "element_at(words, 1) AS first, spots.q AS names FROM m WHERE size(words) > 0 OR point IS NOT NULL",
    # Spark's optimizer must not move a mark into the branches of the union that is the change below it.
    "a mark over a union": "SELECT s.n, m.id FROM (SELECT COUNT(*) AS n FROM m HAVING SUM(DISTINCT a) IN "
    "(SELECT a * 3 FROM m) OR COUNT(*) > 4) s JOIN m ON m.id <> s.n",
    # Spark says false, not NULL, where it is unknown whether a subquery has a value, negated or not.
    "in as a value": "SELECT id, a IN (SELECT a + 1 FROM m) AS i, a NOT IN (SELECT a + 2 FROM m) AS n, "
    "NOT (x > 2 OR a IN (SELECT a + 2 FROM m)) AS o, (a IN (SELECT a + 1 FROM m)) IS NULL AS u, "
    "NOT coalesce(a IN (SELECT a + 1 FROM m), true) AS c FROM m",
    # The relations of a generated query have names too: a column may be called like one of them.
    "a struct that is called like a relation": "SELECT x.t1.px AS a, x.px AS b, SUM(y.t2.py) AS c "
    "FROM (SELECT id, point AS t1, a AS px FROM m) x JOIN (SELECT id, point AS t2, a AS py FROM m) y "
    "ON x.id >= y.id WHERE x.t1.px < 3 GROUP BY x.t1.px, x.px",
    # Which of two equal names is meant: in HAVING the key, then the alias; in ORDER BY the alias; in an
    # aggregate the column.
    "names in having": "SELECT -id AS id, COUNT(*) AS a, MAX(x) AS x FROM m GROUP BY id "
    "HAVING id > 1 AND a = 1 AND SUM(a) > 2",
    "names in order by": "SELECT g, -a AS a FROM m ORDER BY a + 0 NULLS LAST, g LIMIT 2",
    "group by a scalar subquery": "SELECT (SELECT MAX(a) FROM m y WHERE y.id < m.id) AS top, COUNT(*) AS n "
    "FROM m GROUP BY (SELECT MAX(a) FROM m y WHERE y.id < m.id)",
    "exists with a limit": "SELECT id FROM m WHERE EXISTS (SELECT 1 FROM m y WHERE y.a > m.a LIMIT 1)",
    "group by a struct": "SELECT point, COUNT(*) AS n FROM m GROUP BY point",
    "group by an array": "SELECT words, COUNT(*) AS n, MAX(point) AS high FROM m GROUP BY words",
    "distinct nested": "SELECT DISTINCT words, point, spots FROM m",
    "pivot": "SELECT * FROM (SELECT g, a, id % 2 AS odd FROM m) "
    "PIVOT (SUM(a) AS s, COUNT(*) AS n FOR odd IN (0 AS even, 1 AS odd))",
    # A PIVOT takes all that stands to its left in FROM, and groups by columns that nobody writes.
    "pivot of a join": "SELECT r.even FROM (SELECT id, g FROM m) x JOIN (SELECT a, id % 2 AS odd FROM m) y "
    "ON x.id > y.a PIVOT (SUM(a) FOR odd IN (0 AS even)) AS r",
    "pivot of a list": "SELECT g, even FROM (SELECT id, g FROM m) x, (SELECT a, id % 2 AS odd FROM m) y "
    "PIVOT (SUM(a) FOR odd IN (0 AS even))",
    "pivot of a table": "SELECT one FROM n PIVOT (MAX(v) FOR k IN (1 AS one, 2 AS two))",
    "unpivot": "SELECT * FROM (SELECT id, a, id * 10 AS b FROM m) UNPIVOT (v FOR name IN (a, b))",
    "qualify": "SELECT g, id, a FROM m "
    "QUALIFY row_number() OVER (PARTITION BY g ORDER BY a DESC NULLS LAST, id) = 1",
    "order statistics": "SELECT g, percentile(a, 0.5) AS p, median(x) AS m, "
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY x) AS pc, "
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY a DESC) AS pd, mode(a, true) AS mo, "
    "approx_percentile(a, 0.5) AS ap, approx_count_distinct(a) AS ac FROM m GROUP BY g",
    "lists": "SELECT g, sort_array(collect_list(a)) AS every, sort_array(collect_set(a)) AS each, "
    "listagg(CAST(id AS STRING), ',') WITHIN GROUP (ORDER BY id DESC) AS ids, sort_array(array_agg(x)) AS xs "
    "FROM m GROUP BY g",
    "extremes by": "SELECT g, max_by(id, struct(a, id)) AS top, min_by(id, struct(a, id)) AS low, "
    "max(struct(a, id)) AS both FROM m GROUP BY g",
    "bits and booleans": "SELECT g, bit_and(a) AS ba, bit_or(a) AS bo, bit_xor(a) AS bx, "
    "count_if(a > 3) AS ci, bool_and(a > 3) AS ev, bool_or(a > 3) AS an FROM m GROUP BY g",
    "moments": "SELECT g, stddev_samp(a) AS sd, var_pop(a) AS vp, skewness(a) AS sk, kurtosis(a) AS ku, "
    "covar_samp(a, x) AS cs, covar_pop(a, x) AS cp, regr_slope(x, a) AS rs, regr_count(x, a) AS rc "
    "FROM m GROUP BY g",
    "without a group": "SELECT collect_set(g) IS NULL AS never, size(collect_list(a)) AS n, "
    "bit_or(a) AS bo, median(a) AS me, max_by(id, a + id) AS mb FROM m WHERE a > 100 OR id = 1",
    "grouping functions": "SELECT g, a, GROUPING(g) AS gg, GROUPING_ID() AS gi, COUNT(*) AS n, SUM(x) AS s "
    "FROM m GROUP BY CUBE (g, a)",
    # The keys come first, and only what follows are the sets.
    "grouping sets after the keys": "SELECT g, a, COUNT(*) AS n, GROUPING_ID() AS gi "
    "FROM m GROUP BY g, a GROUPING SETS ((g, a), (g))",
    "any and some": "SELECT g, any(a > 3) AS an, some(a > 5) AS so, every(a > 3) AND any(a > 4) AS ev "
    "FROM m GROUP BY g HAVING any(a > 1) = true OR g IS NULL",
    "star except": "SELECT * EXCEPT (words, point, tags, spots) FROM m",
    "star except a field": "SELECT * EXCEPT (point.px, words, tags, spots) FROM m",
    # Each level reads the one below twice: its change is cut into parts, or Spark plans it for hours.
    "nested deeply": "WITH p AS (SELECT g, COUNT(*) AS n, SUM(a) AS s FROM m GROUP BY g), "
    "q AS (SELECT x.g, x.n + y.n AS n, y.s FROM p x LEFT JOIN p y ON x.n = y.n), "
    "r AS (SELECT x.g, x.n + y.n AS n, y.s FROM q x LEFT JOIN q y ON x.s = y.s), "
    "t AS (SELECT x.g, x.n + y.n AS n, y.s FROM r x LEFT JOIN r y ON x.s = y.s) "
    "SELECT x.g, x.n + y.n AS n, y.s FROM t x LEFT JOIN t y ON x.s = y.s",
    "group by all": "SELECT g, a % 2 AS odd, try_sum(a) AS s FROM m GROUP BY ALL",
    "arithmetic": "SELECT id, try_divide(x, a - 3) AS t, a DIV 2 AS d, a / 2 AS h, -a % 4 AS r, "
    "CAST(x AS DECIMAL(10,3)) * 1.10 AS p, try_cast(g AS INT) AS c, a::STRING || g AS s FROM m",
    "windows": "SELECT id, "
    "SUM(a) OVER (PARTITION BY g ORDER BY id RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s, "
    "COLLECT_LIST(a) OVER (PARTITION BY g ORDER BY id) AS l, NTH_VALUE(a, 2) OVER (PARTITION BY g "
    "ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS nv, "
    "LAG(a) IGNORE NULLS OVER (ORDER BY id, x) AS lg FROM m",
    "python function": "SELECT id, shout(g) AS s FROM m WHERE shout(g) IS NOT NULL OR a = 3",
    "python function of groups": "SELECT shout(g) AS s, SUM(a) AS n FROM m GROUP BY shout(g)",
    "pandas aggregate": "SELECT g, spread(x) AS s FROM m GROUP BY g",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    with headrace.connect(warehouse=tmp_path_factory.mktemp("spark"), spark_conf=SMALL) as hr:
        _register_functions(hr.spark)
        for statement in TABLES:
            hr.sql(statement)
        yield hr


def _register_functions(spark: SparkSession) -> None:
    # Functions of a function travel to Spark's workers whole; a module of tests is not there to import.
    def shout(text: str | None) -> str | None:
        return None if text is None else f"{text.upper()}!"

    def spread(values: pd.Series) -> float:
        return float(values.max() - values.min())

    spark.udf.register("shout", shout, "string")
    spark.udf.register("spread", F.pandas_udf(spread, "double"))
    spark.udf.register("chance", F.udf(lambda number: number, "int").asNondeterministic())


@pytest.fixture(scope="module")
def stories(lake: Headrace) -> dict[str, Story]:
    return play(lake, QUERIES, ROUNDS)


@pytest.mark.parametrize("case", QUERIES)
def test_the_table_follows_its_query(stories: dict[str, Story], case: str) -> None:
    stories[case].check()


def test_outer_generators_keep_rows_without_elements(stories: dict[str, Story]) -> None:
    start, first, second, third = stories["explode outer"].check()
    assert [rows[(2, None)] for rows in (start, first)] == [1, 0]
    assert [rows[(5, None)] for rows in (second, third)] == [0, 1]
    start, *_, third = stories["inline outer"].check()
    assert start[(3, None, None)] == 1
    assert third[(4, 2, None)] == 2


def test_aggregates_of_spark_over_no_rows(stories: dict[str, Story]) -> None:
    start, first, second, _ = stories["without a group"].check()
    assert start == first == Counter([(False, 1, 3, f"{3:.10e}", 1)])
    assert second == Counter([(False, 0, None, None, None)])


@pytest.mark.parametrize(
    ("query", "code", "construct"),
    [
        ("SELECT id, rand() AS r FROM m", "non_deterministic_function", "rand()"),
        ("SELECT id, chance(id) AS r FROM m", "non_deterministic_function", "chance()"),
        ("SELECT id FROM m TABLESAMPLE (50 PERCENT)", "sampling", "TABLESAMPLE"),
        ("SELECT id FROM m LIMIT 2", "limit_without_order", "LIMIT"),
        ("SELECT id, current_date AS d FROM m", "time_function", "current_date"),
    ],
)
def test_what_has_no_change_is_refused_with_the_reason(
    lake: Headrace, query: str, code: str, construct: str
) -> None:
    with pytest.raises(HeadraceError) as refused:
        lake.create_stream_table("refused", query, refresh_mode="DIFFERENTIAL")
    assert refused.value.code == code
    assert construct in refused.value.message
    assert refused.value.position is not None
