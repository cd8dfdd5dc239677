"""Places in a statement's text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from headrace.errors import Position


def position_at(text: str, offset: int) -> Position:
    """Line and column, from 1, of a character offset.

    >>> str(position_at("SELECT a\\nFROM t", 14))
    'line 2, column 6'
    """
    before = text[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def span(node: exp.Expr) -> tuple[int, int] | None:
    """The first offset of a node's text and the one after its last, as far as its identifiers tell."""
    places: list[dict[str, Any]] = [leaf.meta for leaf in _leaves(node) if "start" in leaf.meta]
    if not places:
        return None
    return min(place["start"] for place in places), max(place["end"] for place in places) + 1


def _leaves(node: exp.Expr) -> Iterator[exp.Expr]:
    yield from node.find_all(exp.Identifier, exp.Star)


@dataclass(frozen=True, order=True)
class Edit:
    """Replace text[start:end] with `new`."""

    start: int
    end: int
    new: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap, leaving everything else as written.

    >>> apply_edits("SELECT a FROM t", [Edit(14, 15, "s.t"), Edit(7, 8, "b")])
    'SELECT b FROM s.t'
    """
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text
