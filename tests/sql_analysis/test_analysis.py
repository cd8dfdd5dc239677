"""What a query reads, how it is pinned, and what is refused with its place."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, Position
from headrace.sql.analysis import Analysis, Column, Table, View, analyze
from headrace.sql.dialect import check_parser
from headrace.sql.names import TableName, parse_name


def table(name: str, *columns: str) -> Table:
    return Table(parse_name(name, "shop"), tuple(Column(column, "bigint") for column in columns))


def view(name: str, query: str, *columns: str, schema: str = "shop") -> View:
    return View(
        parse_name(name, schema), query, schema, tuple(Column(column, "bigint") for column in columns)
    )


RELATIONS = {
    relation.name: relation
    for relation in (
        table("orders", "id", "customer", "amount", "note"),
        table("customers", "id", "name"),
        table("other.orders", "id", "x"),
        table("odd", "user", "limit", "a b"),
        view("big", "SELECT id, customer FROM orders WHERE amount > 10;", "id", "who"),
        view("bigger", "SELECT * FROM big", "id", "who"),
    )
}


def run(text: str, schema: str = "shop") -> Analysis:
    return analyze(text, current_schema=schema, resolve=RELATIONS.get, known=lambda: RELATIONS)


def pinned(text: str) -> str:
    return run(text).pinned(lambda name: f"VERSION AS OF {len(name.table)}")


def codes(text: str) -> list[str]:
    return [refusal.code for refusal in run(text).refusals]


def test_tables_are_qualified_pinned_and_narrowed_in_the_text_as_written() -> None:
    assert pinned("select  o.id -- mine\nfrom Orders o;") == (
        "select  o.id -- mine\nfrom (SELECT `id` FROM `shop`.`orders` VERSION AS OF 6) o"
    )


def test_what_sqlglot_would_rewrite_stays_as_written() -> None:
    text = "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) AS m FROM orders"
    assert pinned(text) == (
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) AS m "
        "FROM (SELECT `amount` FROM `shop`.`orders` VERSION AS OF 6) AS `orders`"
    )


def test_a_cte_shadows_a_table_but_not_inside_itself() -> None:
    analysis = run("WITH orders AS (SELECT id FROM orders) SELECT id FROM orders")
    assert analysis.sources == {TableName("shop", "orders"): ("id",)}
    assert analysis.expanded == (
        "WITH orders AS (SELECT id FROM (SELECT `id` FROM `shop`.`orders`) AS `orders`) SELECT id FROM orders"
    )


def test_an_inner_cte_wins_and_ends_with_its_query() -> None:
    text = """
        WITH a AS (SELECT 1 AS id)
        SELECT * FROM (WITH customers AS (SELECT id FROM a) SELECT id FROM customers) s
        JOIN customers c ON c.id = s.id
    """
    assert run(text).sources == {TableName("shop", "customers"): ("id", "name")}


def test_a_schema_before_a_column_goes_with_the_name() -> None:
    assert pinned("SELECT shop.orders.id, orders.note FROM shop.orders") == (
        "SELECT orders.id, orders.note "
        "FROM (SELECT `id`, `note` FROM `shop`.`orders` VERSION AS OF 6) AS `orders`"
    )


def test_homonyms_of_two_schemas_keep_their_schemas() -> None:
    text = "SELECT shop.orders.id FROM shop.orders JOIN other.orders ON shop.orders.id = other.orders.id"
    assert pinned(text) == (
        "SELECT shop.orders.id FROM `shop`.`orders` VERSION AS OF 6 JOIN `other`.`orders` VERSION AS OF 6"
        " ON shop.orders.id = other.orders.id"
    )


def test_views_are_inlined_with_their_own_names_and_schema() -> None:
    analysis = run("SELECT who FROM bigger b")
    assert analysis.views == (TableName("shop", "bigger"), TableName("shop", "big"))
    assert analysis.sources == {TableName("shop", "orders"): ("id", "customer", "amount")}
    assert "(SELECT `id`, `customer`, `amount` FROM `shop`.`orders`)" in analysis.expanded
    assert analysis.expanded.endswith(") b")


def test_columns_used_follow_scopes() -> None:
    text = "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer)"
    assert run(text).sources == {
        TableName("shop", "orders"): ("id", "customer"),
        TableName("shop", "customers"): ("id",),
    }


def test_a_pivot_reads_every_column_of_its_from() -> None:
    """It groups by the columns that it does not name, so leaving one out would give fewer rows."""
    pivot = "PIVOT (SUM(amount) FOR customer IN (1 AS first))"
    everything = ("id", "customer", "amount", "note")
    assert run(f"SELECT first FROM orders {pivot}").sources == {TableName("shop", "orders"): everything}
    joined = run(f"SELECT first FROM customers c, orders o {pivot} WHERE EXISTS (SELECT x FROM other.orders)")
    assert joined.sources == {
        TableName("shop", "orders"): everything,
        TableName("shop", "customers"): ("id", "name"),
        TableName("other", "orders"): ("x",),
    }


def test_what_a_star_leaves_out_must_be_there() -> None:
    analysis = run("SELECT * EXCEPT (note, customer) FROM orders")
    assert analysis.sources == {TableName("shop", "orders"): ("id", "customer", "amount", "note")}


def test_a_name_in_having_may_be_a_column_that_an_alias_hides() -> None:
    text = "SELECT customer, COUNT(*) AS amount FROM orders GROUP BY customer HAVING SUM(amount) > 5"
    assert run(text).sources == {TableName("shop", "orders"): ("customer", "amount")}


def test_counting_rows_reads_no_column() -> None:
    analysis = run("SELECT count(*) FROM orders")
    assert analysis.sources == {TableName("shop", "orders"): ()}
    assert "SELECT 1 AS" in analysis.expanded


@pytest.mark.parametrize(
    "item",
    [
        *(
            "hash(*)",
            "hash(o.*)",
            "coalesce(NULL, *)",
            "to_json(struct(*))",
            "count(DISTINCT *)",
            "count(*, 1)",
        ),
        *("count(*) OVER (PARTITION BY hash(*))", "array(* EXCEPT (id))"),
    ],
)
def test_a_star_inside_an_expression_reads_every_column(item: str) -> None:
    everything = ("id", "customer", "amount", "note")
    for text in (f"SELECT id, {item} AS x FROM orders o", f"SELECT id FROM orders o ORDER BY {item}"):
        analysis = run(text)
        assert analysis.sources == {TableName("shop", "orders"): everything}
        assert "* was expanded to the columns of today" in analysis.notices[0]


def test_an_unknown_table_has_a_place_and_a_suggestion() -> None:
    with pytest.raises(HeadraceError) as caught:
        run("SELECT *\nFROM ordrs")
    assert caught.value.code == "unknown_table"
    assert caught.value.position == Position(2, 6)
    assert caught.value.hint == "Did you mean shop.orders?"


@pytest.mark.parametrize("text", ["SELECT FROM WHERE", "SELECT 'a", "SELECT (1", "SELECT a:b.c FROM orders"])
def test_a_text_that_cannot_be_parsed_is_a_syntax_error_with_a_place(text: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        run(text)
    assert caught.value.code == "syntax_error"
    assert caught.value.position is not None


@pytest.mark.parametrize("text", ["DROP TABLE orders", "SELECT 1; SELECT 2", ""])
def test_what_is_no_single_query_is_refused(text: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        run(text)
    assert caught.value.code == "not_a_query"


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("SELECT rand() FROM orders", "non_deterministic_function", 8),
        ("SELECT id, UUID() FROM orders", "non_deterministic_function", 12),
        ("SELECT id FROM orders WHERE current_date > note", "time_function", 29),
        ("SELECT now() FROM orders", "time_function", 8),
        ("SELECT unix_timestamp() FROM orders", "time_function", 8),
        ("SELECT current_user() FROM orders", "session_function", 8),
        ("SELECT `rand`() FROM orders", "non_deterministic_function", 8),
        ("SELECT id, `input_file_name` () FROM orders", "non_deterministic_function", 12),
        ("SELECT system.builtin.current_date() FROM orders", "time_function", 23),
        ("SELECT builtin.`uuid`() FROM orders", "non_deterministic_function", 16),
        ("SELECT id FROM orders LIMIT 5", "limit_without_order", 23),
        ("SELECT id FROM (SELECT id FROM orders LIMIT 5) ORDER BY id", "limit_without_order", 39),
        ("SELECT id FROM orders TABLESAMPLE (5 ROWS)", "sampling", 23),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
            "recursive_cte",
            6,
        ),
        ("SELECT id FROM orders VERSION AS OF 3", "time_travel", 34),
    ],
)
def test_refusals_name_the_construct_and_its_place(text: str, code: str, column: int) -> None:
    (refusal,) = run(text).refusals
    assert (refusal.code, refusal.position) == (code, Position(1, column))
    assert refusal.reason
    assert refusal.hint


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM orders ORDER BY id LIMIT 5",
        "SELECT unix_timestamp(note) FROM orders",
        "SELECT 'rand()' AS a, `limit` FROM odd",
        "SELECT user FROM odd",
        "SELECT `user`, `limit` AS `rand` FROM odd AS `now`(`user`, `limit`)",
        "SELECT o.id FROM orders o WHERE o.id > 0 AND (o.customer) IN (1)",
        "SELECT o.id FROM orders o JOIN (SELECT id FROM customers ORDER BY id LIMIT 3) c ON o.id = c.id",
    ],
)
def test_what_is_decided_by_the_sources_is_not_refused(text: str) -> None:
    assert codes(text) == []


def test_a_refusal_inside_a_view_counts() -> None:
    relations = {**RELATIONS, **{v.name: v for v in [view("v", "SELECT now() AS n", "n")]}}
    analysis = analyze("SELECT * FROM v", current_schema="shop", resolve=relations.get)
    assert analysis.time_dependent


def test_notices_tell_what_was_expanded_and_dropped() -> None:
    assert run("SELECT * FROM customers ORDER BY id").notices == (
        "SELECT * was expanded to id, name: later columns are not added.",
        "ORDER BY without LIMIT is ignored: a table has no order.",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT 'é😀' AS x, id FROM orders -- 'open; quote",
            "SELECT 'é😀' AS x, id FROM (SELECT `id` FROM `shop`.`orders` VERSION AS OF 6) AS `orders`"
            " -- 'open; quote",
        ),
        (
            "SELECT /*+ BROADCAST(o) */ `o`.`id` FROM `Shop`.`ORDERS` AS `o`; -- done;",
            "SELECT /*+ BROADCAST(o) */ `o`.`id` "
            "FROM (SELECT `id` FROM `shop`.`orders` VERSION AS OF 6) AS `o`",
        ),
        (
            "SELECT id FROM customers WHERE id IN (SELECT customer FROM orders WHERE orders.amount > 1)",
            "SELECT id FROM (SELECT `id` FROM `shop`.`customers` VERSION AS OF 9) AS `customers` WHERE id IN"
            " (SELECT customer FROM (SELECT `customer`, `amount` FROM `shop`.`orders` VERSION AS OF 6)"
            " AS `orders` WHERE orders.amount > 1)",
        ),
    ],
)
def test_odd_texts_are_edited_at_the_right_places(text: str, expected: str) -> None:
    assert pinned(text) == expected


def test_a_view_with_a_comment_at_its_end_is_closed() -> None:
    relations = {**RELATIONS, **{v.name: v for v in [view("c", "SELECT id FROM orders; -- the end", "id")]}}
    analysis = analyze("SELECT id FROM c", current_schema="shop", resolve=relations.get)
    inner = "SELECT id FROM (SELECT `id` FROM `shop`.`orders`) AS `orders`"
    assert analysis.expanded == (f"SELECT id FROM (SELECT `id` FROM ({inner}\n) AS `c`(`id`)) AS `c`")


def test_a_natural_join_reads_the_columns_it_joins_by() -> None:
    assert run("SELECT note FROM orders NATURAL JOIN customers").sources == {
        TableName("shop", "orders"): ("id", "customer", "amount", "note"),
        TableName("shop", "customers"): ("id", "name"),
    }


def test_a_compiled_parser_is_refused_with_the_way_out() -> None:
    check_parser()
    with pytest.raises(HeadraceError) as caught:
        check_parser("site-packages/sqlglot/parser.cpython-311-x86_64-linux-gnu.so")
    assert caught.value.code == "compiled_sqlglot"
    assert "pip uninstall sqlglotc" in caught.value.hint
