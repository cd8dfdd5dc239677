"""The graph: order, cycles, paces, diamonds, and a thousand tables in no time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.scheduler.diamonds import find_diamonds, group_diamonds
from headrace.scheduler.graph import Graph, Pace, build_graph, pace_notices, resolve_paces
from headrace.scheduler.schedule import Cron, Downstream, Every
from tests.timing import fastest

SHOP = build_graph(
    ["clean", "left", "right", "tip", "aside"],
    [("clean", "orders"), ("left", "clean"), ("right", "clean"), ("tip", "left"), ("tip", "right")],
)


def test_order_levels_and_closures() -> None:
    assert SHOP.sources == ("orders",)
    assert SHOP.levels == (("aside", "clean"), ("left", "right"), ("tip",))
    assert SHOP.upstream_of(["tip"]) == {"clean", "left", "right"}
    assert SHOP.downstream_of(["orders"]) == {"clean", "left", "right", "tip"}
    assert SHOP.downstream_of(["left"]) == {"tip"}
    assert SHOP.upstream_of(["aside"]) == set()


def test_a_cycle_is_refused_with_its_path() -> None:
    with pytest.raises(HeadraceError) as caught:
        build_graph(["a", "b", "c", "d"], [("a", "c"), ("b", "a"), ("c", "b"), ("d", "a")])
    assert caught.value.code == "cycle"
    assert "a -> b -> c -> a" in caught.value.message
    with pytest.raises(HeadraceError, match="t -> t"):
        build_graph(["t"], [("t", "t")])


@st.composite
def graphs(draw: st.DrawFn) -> Graph[int]:
    size = draw(st.integers(1, 12))
    edges = [
        (reader, source)
        for reader in range(size)
        for source in draw(st.sets(st.integers(-3, reader - 1), max_size=4))
    ]
    return build_graph(range(size), edges)


@given(graphs())
def test_every_table_comes_after_what_it_reads(graph: Graph[int]) -> None:
    place = {name: index for index, name in enumerate(graph.order)}
    level = {name: depth for depth, names in enumerate(graph.levels) for name in names}
    for name, upstreams in graph.upstreams.items():
        assert all(place[one] < place[name] and level[one] < level[name] for one in upstreams)


def ways(graph: Graph[int], start: int, ancestor: int) -> int:
    if start == ancestor:
        return 1
    return sum(ways(graph, one, ancestor) for one in graph.reads.get(start, ()))


@given(graphs())
def test_a_diamond_is_found_wherever_two_ways_from_different_sources_lead_to_one_ancestor(
    graph: Graph[int],
) -> None:
    found = {diamond.tip: diamond for diamond in find_diamonds(graph)}
    for tip in graph.order:
        ancestors = (*graph.sources, *graph.upstream_of([tip]))
        shared = {
            one for one in ancestors if sum(ways(graph, source, one) > 0 for source in graph.reads[tip]) >= 2
        }
        assert (tip in found) == bool(shared)
        if shared:
            assert set(found[tip].ancestors) <= shared
            below = {one for one in graph.upstream_of([tip]) if graph.downstream_of(shared) & {one}}
            assert set(found[tip].between) == below


def test_a_ladder_of_diamonds_is_one_group() -> None:
    edges = [("l0", "s"), ("r0", "s")]
    for step in range(5):
        edges += [(f"t{step}", f"l{step}"), (f"t{step}", f"r{step}")]
        edges += [(f"l{step + 1}", f"t{step}"), (f"r{step + 1}", f"t{step}")]
    graph = build_graph({reader for reader, _ in edges}, edges)
    diamonds = find_diamonds(graph)
    assert [diamond.tip for diamond in diamonds] == [f"t{step}" for step in range(5)]
    assert diamonds[2].ancestors == ("t1",)
    apart = build_graph(["a", "b", "c"], [("a", "x"), ("b", "x"), ("c", "a"), ("c", "b"), ("d", "y")])
    groups = group_diamonds([*diamonds, *find_diamonds(apart)])
    assert frozenset({"a", "b", "c"}) in groups
    assert len(groups) == 2


def test_downstream_takes_the_smallest_lag_of_its_readers() -> None:
    schedules = {
        "clean": Downstream(),
        "left": Every(600),
        "right": Every(60),
        "tip": Every(300),
        "aside": Downstream(),
    }
    paces = resolve_paces(SHOP, schedules)
    assert paces["clean"] == Pace(60, "right")
    # What the tip shows at a moment needs its upstreams at that moment.
    assert paces["left"] == Pace(300, "tip")
    assert paces["right"] == Pace(60)
    assert paces["aside"].never
    notices = pace_notices(paces, schedules)
    assert notices.keys() == {"aside", "left"}
    assert "never refreshed by itself" in notices["aside"]
    assert "'5 minutes' in place of '10 minutes': tip reads it" in notices["left"]


def test_downstream_of_cron_follows_the_cron() -> None:
    graph = build_graph(["a", "b", "c"], [("b", "a"), ("c", "b")])
    paces = resolve_paces(graph, {"a": Downstream(), "b": Downstream(), "c": Cron("0 6 * * *")})
    assert paces["a"] == Pace(None, None, never=False)
    lonely = resolve_paces(graph, {"a": Downstream(), "b": Downstream(), "c": Downstream()})
    assert all(pace.never for pace in lonely.values())


@pytest.mark.parametrize("shape", ["chain", "fan", "dense"])
def test_a_thousand_tables_build_well_under_a_second(shape: str) -> None:
    names = [f"t{number:04}" for number in range(1000)]
    edges = {
        "chain": [(reader, source) for source, reader in pairwise(names)],
        "fan": [(name, "orders") for name in names],
        "dense": [
            (names[reader], names[source])
            for reader in range(1000)
            for source in range(max(0, reader - 10), reader)
        ],
    }[shape]

    def build() -> None:
        graph = build_graph(names, edges)
        resolve_paces(graph, dict.fromkeys(names, Every(60)))
        group_diamonds(find_diamonds(graph))
        assert len(graph.levels) == (1 if shape == "fan" else 1000)

    assert fastest(build, enough=1) < 1
