"""What is planned, what is kept as text and why, and how fast."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.delta import State, compile_change, plan_query
from headrace.errors import HeadraceError
from headrace.plan.nodes import Aggregate, Opaque, Project, Scan, sources, walk
from headrace.sql.analysis import analyze
from headrace.sql.names import TableName
from tests.algebra.engine import Database, Subject, check_round, name_of
from tests.plan.test_fixtures import SCHEMAS
from tests.timing import fastest

EVERY = frozenset(map(name_of, SCHEMAS))


def subject(text: str) -> Subject:
    return Subject(Database.shared(SCHEMAS, {}), text)


def named(name: TableName, state: State) -> str:
    return f"{name.table}_{state.value}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT n, v FROM t UNPIVOT (v FOR n IN (k, a))", "UNPIVOT"),
        (
            "SELECT t.id FROM t FULL JOIN u ON t.k IN (SELECT k FROM v)",
            "a subquery in the condition of a full join",
        ),
    ],
)
def test_what_has_no_operators_is_kept_as_text_and_computed_at_both_states(text: str, reason: str) -> None:
    plan = subject(text).plan
    assert isinstance(plan.root, Opaque)
    assert plan.root.reason == reason
    compiled = compile_change(plan, EVERY)
    assert [step.family for step in compiled.explain()] == ["whole"]
    sql = compiled.sql(named)
    assert "t_old" in sql
    assert "t_new" in sql


def test_a_query_kept_as_text_is_exact() -> None:
    database = Database(SCHEMAS, {"t": Counter([(1, 1, 5, "x")]), "u": Counter([(1, 1, 7)])})
    query = Subject(database, "SELECT t.id, u.b FROM t FULL JOIN u ON t.k = u.k AND t.a > (SELECT 1)")
    assert isinstance(query.plan.root, Opaque)
    database.change({"u": Counter({(1, 1, 7): -1, (2, 1, 8): 1})})
    assert dict(check_round(query, frozenset({name_of("u")}))) == {(1, 7): -1, (1, 8): 1}
    database.change({"u": Counter({(2, 1, 8): -1}), "t": Counter({(2, 9, 5, "x"): 1})})
    change = check_round(query, frozenset({name_of("t"), name_of("u")}))
    assert dict(change) == {(1, 8): -1, (1, None): 1, (2, None): 1}


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("SELECT COUNT(*) AS n FROM t LIMIT 100", False),
        (
            "SELECT x.n FROM (SELECT COUNT(*) AS n FROM t) x, (SELECT MAX(b) AS m FROM u) y LIMIT 1",
            False,
        ),
        ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k LIMIT 1)", False),
        ("SELECT id FROM t WHERE k IN (SELECT k FROM u LIMIT 1)", True),
        ("SELECT COUNT(*) AS n FROM t LIMIT 0", True),
        ("SELECT COUNT(*) AS n FROM t LIMIT 1 OFFSET 1", True),
        ("SELECT COUNT(*) AS n FROM t GROUP BY k LIMIT 100", True),
        ("SELECT COUNT(*) OVER () AS n FROM t LIMIT 100", True),
        ("SELECT (SELECT COUNT(*) FROM u) AS n FROM t LIMIT 100", True),
        ("SELECT explode(collect_list(a)) AS n FROM t LIMIT 100", True),
        ("SELECT x.n FROM (SELECT COUNT(*) AS n FROM t) x JOIN u ON TRUE LIMIT 100", True),
    ],
)
def test_a_limit_without_order_is_refused_unless_there_is_one_row(text: str, refused: bool) -> None:
    query = subject(text)
    assert bool(query.analysis.refusals) == refused
    assert isinstance(query.plan.root, Opaque) == refused


def test_output_columns_that_nobody_knows_are_an_error() -> None:
    with pytest.raises(HeadraceError) as caught:
        subject("SELECT * FROM t UNPIVOT (v FOR n IN (k, a))")
    assert caught.value.code == "unknown_output_columns"


def test_the_caller_names_the_output() -> None:
    database = Database.shared(SCHEMAS, {})
    analysis = analyze(
        "SELECT count(1), k FROM t GROUP BY k", current_schema="default", resolve=database.resolve
    )
    assert plan_query(analysis, output=["count(1)", "k"]).columns == ("count(1)", "k")


def test_registered_aggregates_group() -> None:
    database = Database.shared(SCHEMAS, {})
    analysis = analyze(
        "SELECT k, mine(a) AS m FROM t GROUP BY k", current_schema="default", resolve=database.resolve
    )
    root = plan_query(analysis, user_aggregates=frozenset({"mine"})).root
    assert isinstance(root, Project)
    assert isinstance(root.child, Aggregate)
    assert [item.sql() for _, item in root.child.aggregates] == ['MINE("a")']


def test_plans_are_cached_by_definition_and_schema() -> None:
    first, second = subject("SELECT id FROM t WHERE k > 1"), subject("SELECT id FROM t WHERE k > 1")
    assert first.plan is second.plan
    assert compile_change(first.plan, EVERY) is compile_change(second.plan, EVERY)
    wider = {**SCHEMAS, "t": [*SCHEMAS["t"], ("more", "INTEGER")]}
    assert Subject(Database.shared(wider, {}), "SELECT id FROM t WHERE k > 1").plan is not first.plan


def test_columns_that_nothing_reads_are_not_scanned() -> None:
    plan = subject("SELECT x.id FROM (SELECT * FROM t) x JOIN u ON x.k = u.k").plan
    read = {
        node.source.table: [c for _, c in node.names] for node in walk(plan.root) if isinstance(node, Scan)
    }
    assert read == {"t": ["id", "k"], "u": ["k"]}


def test_terms_of_sources_that_did_not_change_vanish() -> None:
    plan = subject("SELECT t.id FROM t JOIN u ON t.k = u.k JOIN v ON v.k = u.k").plan
    compiled = compile_change(plan, frozenset({name_of("u")}))
    states = {(name.table, state.value) for name, state in compiled.reads}
    assert states == {("t", "new"), ("u", "change"), ("v", "new")}
    assert compile_change(plan, frozenset({name_of("elsewhere")})).empty


def test_each_term_of_a_join_starts_at_the_change() -> None:
    plan = subject("SELECT t.id FROM t JOIN u ON t.k = u.k JOIN v ON v.k = u.k").plan
    sql = compile_change(plan, frozenset({name_of("v")})).sql(named)
    assert sql.index("v_change") < sql.index("u_new") < sql.index("t_new")


def test_views_are_expanded() -> None:
    database = Database(
        SCHEMAS, {"t": Counter([(1, 10, 5, "x")])}, {"big": ("SELECT id, a FROM t WHERE a > 1", ["n", "m"])}
    )
    query = Subject(database, "SELECT n, m + 1 AS m FROM big")
    assert sources(query.plan.root) == {name_of("t")}
    database.change({"t": Counter({(2, 10, 0, "x"): 1, (3, 10, 9, "x"): 1})})
    assert dict(check_round(query, frozenset({name_of("t")}))) == {(3, 10): 1}


def test_the_explanation_names_family_reason_and_state() -> None:
    plan = subject("SELECT k, COUNT(*) AS n FROM t GROUP BY k").plan
    steps = compile_change(plan, EVERY).explain()
    assert [(step.operator, step.family, step.state) for step in steps] == [
        ("Project", "linear", "none"),
        ("Aggregate", "by key", "__hr_rows"),
        ("Scan default.t", "source", "none"),
    ]


def test_an_eight_way_join_compiles_in_less_than_a_tenth_of_a_second() -> None:
    joins = " ".join(f"JOIN t t{i} ON t{i}.k = t{i - 1}.k" for i in range(2, 9))
    plan = subject(f"SELECT t1.id, t8.a FROM t t1 {joins}").plan
    best = fastest(lambda: compile_change.__wrapped__(plan, EVERY).sql(named), enough=0.1)
    assert best < 0.1, f"{best * 1000:.0f} ms"
