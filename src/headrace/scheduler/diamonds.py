"""Diamonds: a table that reaches one ancestor by two ways must see both ways at the same moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from headrace.scheduler.graph import Graph, N


@dataclass(frozen=True)
class Diamond(Generic[N]):
    """A tip, the nearest ancestors that it reaches by two ways or more, and the stream tables between."""

    tip: N
    ancestors: tuple[N, ...]
    between: tuple[N, ...]

    @property
    def members(self) -> tuple[N, ...]:
        """The tables that belong together: all that lies below an ancestor, and the tip."""
        return (*self.between, self.tip)


def find_diamonds(graph: Graph[N]) -> list[Diamond[N]]:
    """Find every tip with an ancestor that two of the tables it reads share.

    >>> from headrace.scheduler.graph import build_graph
    >>> find_diamonds(build_graph(["l", "r", "t"], [("l", "s"), ("r", "s"), ("t", "l"), ("t", "r")]))
    [Diamond(tip='t', ancestors=('s',), between=('l', 'r'))]
    """
    names = (*graph.sources, *graph.order)
    place = {name: index for index, name in enumerate(names)}
    # A set of tables is the bits of one integer: unions of a thousand tables then cost nothing.
    above = [0] * len(names)
    found = []
    for name in graph.order:
        once = shared = 0
        for source in graph.reads[name]:
            reach = above[place[source]] | 1 << place[source]
            shared |= once & reach
            once |= reach
        above[place[name]] = once
        if shared:
            found.append(_diamond(name, once, shared, names, above))
    return found


def _diamond(tip: N, reach: int, shared: int, names: tuple[N, ...], above: list[int]) -> Diamond[N]:
    farther = 0
    for index in _bits(shared):
        farther |= above[index]
    between = tuple(names[index] for index in _bits(reach) if above[index] & shared)
    return Diamond(tip, tuple(names[index] for index in _bits(shared & ~farther)), between)


def _bits(number: int) -> Iterable[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def group_diamonds(diamonds: Iterable[Diamond[N]]) -> list[frozenset[N]]:
    """Join diamonds that have tables in common into groups that move as one."""
    groups: list[set[N]] = []
    for diamond in diamonds:
        merged = set(diamond.members)
        apart = []
        for group in groups:
            if merged.isdisjoint(group):
                apart.append(group)
            else:
                merged |= group
        groups = [*apart, merged]
    return [frozenset(group) for group in groups]
