"""Who reads whom: order, levels, closures, and the pace that readers set."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Generic, TypeVar

from headrace.errors import HeadraceError
from headrace.scheduler.schedule import Downstream, Every, Schedule

N = TypeVar("N", bound=Hashable)


@dataclass(frozen=True)
class Graph(Generic[N]):
    """Stream tables in an order in which each comes after those it reads, and what each reads.

    >>> graph = build_graph(["tip", "left", "right"], [("left", "orders"), ("right", "orders"),
    ...                                                ("tip", "left"), ("tip", "right")])
    >>> graph.order
    ('left', 'right', 'tip')
    >>> graph.levels
    (('left', 'right'), ('tip',))
    """

    order: tuple[N, ...]
    reads: Mapping[N, frozenset[N]]

    @cached_property
    def sources(self) -> tuple[N, ...]:
        """What is read and is no stream table itself."""
        read = {source for sources in self.reads.values() for source in sources}
        return tuple(sorted(read - self.reads.keys(), key=str))

    @cached_property
    def upstreams(self) -> Mapping[N, tuple[N, ...]]:
        """The stream tables that each stream table reads itself."""
        return {
            name: tuple(sorted((one for one in sources if one in self.reads), key=str))
            for name, sources in self.reads.items()
        }

    @cached_property
    def readers(self) -> Mapping[N, tuple[N, ...]]:
        """The stream tables that read a stream table or a source themselves."""
        found: dict[N, list[N]] = {name: [] for name in (*self.sources, *self.order)}
        for name in self.order:
            for source in self.reads[name]:
                found[source].append(name)
        return {name: tuple(readers) for name, readers in found.items()}

    @cached_property
    def levels(self) -> tuple[tuple[N, ...], ...]:
        """Stream tables by the length of the longest way from a source; those of a level are independent."""
        depth: dict[N, int] = {}
        for name in self.order:
            depth[name] = 1 + max((depth[one] for one in self.upstreams[name]), default=-1)
        levels: list[list[N]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
        for name in self.order:
            levels[depth[name]].append(name)
        return tuple(tuple(level) for level in levels)

    def upstream_of(self, names: Iterable[N]) -> set[N]:
        """Every stream table that these read, directly or through others; not themselves unless read."""
        return _closure(names, self.upstreams)

    def downstream_of(self, names: Iterable[N]) -> set[N]:
        """Every stream table that reads one of these, directly or through others."""
        return _closure(names, self.readers)

    def connected(self, names: Iterable[N]) -> list[set[N]]:
        """Take some stream tables apart into those that reach each other, in any direction, among themselves.

        >>> graph = build_graph(["a", "b", "c", "d"], [("b", "a"), ("c", "a"), ("d", "x")])
        >>> [sorted(part) for part in graph.connected(["b", "a", "d", "c"])]
        [['a', 'b', 'c'], ['d']]
        """
        left, parts = dict.fromkeys(names), []
        edges = {
            name: [one for one in (*self.upstreams[name], *self.readers[name]) if one in left]
            for name in left
        }
        while left:
            first = next(iter(left))
            part = {first, *_closure([first], edges)}
            parts.append(part)
            left = {name: None for name in left if name not in part}
        return parts


def build_graph(tables: Iterable[N], edges: Iterable[tuple[N, N]]) -> Graph[N]:
    """Build the graph from (reader, source) pairs, or refuse a cycle with its path.

    >>> build_graph(["a", "b"], [("a", "b"), ("b", "a")])
    Traceback (most recent call last):
    headrace.errors.HeadraceError: [cycle] Stream tables read each other in a circle: a -> b -> a. ...
    """
    reads: dict[N, set[N]] = {name: set() for name in sorted(set(tables), key=str)}
    for reader, source in edges:
        if reader in reads:
            reads[reader].add(source)
    inner = {
        name: sorted((one for one in sources if one in reads), key=str) for name, sources in reads.items()
    }
    try:
        order = tuple(TopologicalSorter(inner).static_order())
    except CycleError as error:
        raise _cycle(error.args[1]) from None
    return Graph(order, {name: frozenset(sources) for name, sources in reads.items()})


def _cycle(path: list[N]) -> HeadraceError:
    # The way round is a matter of where one starts: the smallest name first makes the message stable.
    ring = path[:-1]
    start = min(range(len(ring)), key=lambda place: str(ring[place]))
    ring = ring[start:] + ring[:start]
    shown = " -> ".join(str(name) for name in (*ring, ring[0]))
    return HeadraceError(
        "cycle",
        f"Stream tables read each other in a circle: {shown}.",
        hint="Change the query of one of them with ALTER STREAM TABLE … AS, or drop it.",
    )


def _closure(names: Iterable[N], edges: Mapping[N, Sequence[N]]) -> set[N]:
    found: set[N] = set()
    waiting = list(names)
    while waiting:
        for other in edges.get(waiting.pop(), ()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


@dataclass(frozen=True)
class Pace(Generic[N]):
    """How fresh a stream table is kept: its lag in seconds and the reader that asks for it, if not itself.

    Without a lag it follows cron expressions, its own or its readers', or with `never` nothing at all.
    """

    lag: float | None = None
    reader: N | None = None
    never: bool = False


def resolve_paces(graph: Graph[N], schedules: Mapping[N, Schedule]) -> dict[N, Pace[N]]:
    """Give every stream table its pace: the smallest of its own lag and those of its readers.

    Contents of one moment need upstreams of that moment, so a reader takes what it reads along. DOWNSTREAM
    has no lag of its own; with no reader that has one it is never refreshed by itself.

    >>> graph = build_graph(["a", "b", "c"], [("b", "a"), ("c", "b")])
    >>> paces = resolve_paces(graph, {"a": Downstream(), "b": Every(600), "c": Every(60)})
    >>> paces["a"], paces["c"]
    (Pace(lag=60, reader='c', never=False), Pace(lag=60, reader=None, never=False))
    """
    paces: dict[N, Pace[N]] = {}
    for name in reversed(graph.order):
        schedule = schedules[name]
        best = Pace[N](
            lag=schedule.seconds if isinstance(schedule, Every) else None,
            never=isinstance(schedule, Downstream),
        )
        for reader in graph.readers[name]:
            best = _quicker(best, paces[reader], reader)
        paces[name] = best
    return paces


def _quicker(own: Pace[N], other: Pace[N], reader: N) -> Pace[N]:
    if other.lag is not None and (own.lag is None or other.lag < own.lag):
        return Pace(other.lag, other.reader if other.reader is not None else reader)
    if own.never and not other.never:
        return Pace(own.lag, own.reader)
    return own


def pace_notices(paces: Mapping[N, Pace[N]], schedules: Mapping[N, Schedule]) -> dict[N, str]:
    """Say which stream tables move otherwise than their own schedule tells."""
    notices = {}
    for name, pace in paces.items():
        schedule = schedules[name]
        if pace.never:
            notices[name] = (
                f"{name} has the schedule DOWNSTREAM and no scheduled reader: it is never refreshed by itself"
            )
        elif isinstance(schedule, Every) and pace.reader is not None and pace.lag is not None:
            notices[name] = (
                f"{name} is refreshed as for '{Every(pace.lag)}' in place of '{schedule}': "
                f"{pace.reader} reads it"
            )
    return notices
