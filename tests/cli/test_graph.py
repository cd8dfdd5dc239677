"""The graph drawn as text."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from headrace.cli.graph import as_dot, as_mermaid, as_tree
from headrace.cli.svg import as_svg

TABLES = ["shop.clean", "shop.left", "shop.right", "shop.tip", "shop.constant"]
EDGES = [
    ("shop.orders", "shop.clean"),
    ("shop.clean", "shop.left"),
    ("shop.clean", "shop.right"),
    ("shop.left", "shop.tip"),
    ("shop.right", "shop.tip"),
]


def test_a_diamond_as_a_tree() -> None:
    assert as_tree(TABLES, EDGES).splitlines() == [
        "shop.constant",
        "shop.orders (source)",
        "└── shop.clean",
        "    ├── shop.left",
        "    │   └── shop.tip",
        "    └── shop.right",
        "        └── shop.tip (above)",
    ]


def test_every_edge_is_drawn_once() -> None:
    assert as_mermaid(TABLES, EDGES).count("-->") == len(EDGES)
    assert as_dot(TABLES, EDGES).count("->") == len(EDGES)


def test_names_with_quotes_do_not_break_out() -> None:
    odd = 'a"]; evil'
    assert '\\"' in as_dot([odd], [("s", odd)])
    assert "#quot;" in as_mermaid([odd], [("s", odd)])


def test_a_long_chain_does_not_overflow() -> None:
    tables = [f"t{number:04}" for number in range(2000)]
    edges = list(pairwise(tables))
    assert len(as_tree(tables, edges).splitlines()) == 2000


def test_the_picture_has_every_node_and_edge_and_reads_from_left_to_right() -> None:
    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(as_svg(TABLES, EDGES))
    nodes = {
        text.text: float(text.attrib["x"]) for text in root.iter(f"{space}text") if text.text is not None
    }
    assert nodes.keys() == {*TABLES, "shop.orders"}
    assert len(root.findall(f"{space}path")) == len(EDGES)
    assert all(nodes[source] < nodes[reader] for source, reader in EDGES)
    assert ElementTree.fromstring(as_svg(["<&>"], [("s", "<&>")])) is not None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("a\x01b", "a\\x01b"),
        ("a\tb\r", "a\\tb\\r"),
        ("a\x85\u2028b", "a\\x85\\u2028b"),
        ("größe 😀", "größe 😀"),
    ],
)
def test_a_name_stays_on_one_line_and_the_picture_is_xml(name: str, shown: str) -> None:
    """Whether it is that of a stream table or of a source."""
    for tables, edges in (([name], [("s", name)]), (["t"], [(name, "t")])):
        root = ElementTree.fromstring(as_svg(tables, edges))
        assert shown in {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
        assert len(as_mermaid(tables, edges).splitlines()) == 4
        assert len(as_dot(tables, edges).splitlines()) == 6
        assert len(as_tree(tables, edges).splitlines()) == 2


def test_what_looks_like_an_escape_of_mermaid_is_shown_as_it_is() -> None:
    assert '["#35;quot;"]' in as_mermaid(["#quot;"], [("s", "#quot;")])
