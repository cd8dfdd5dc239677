"""The stream tables of a catalog as a graph with schedules, kept while no definition changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headrace.catalog import Catalog, Dependency, RefreshMode, StreamTable
from headrace.errors import HeadraceError
from headrace.scheduler.diamonds import find_diamonds, group_diamonds
from headrace.scheduler.graph import Graph, Pace, build_graph, resolve_paces
from headrace.scheduler.schedule import Downstream, Schedule, parse_schedule
from headrace.sql.names import TableName


@dataclass(frozen=True)
class Network:
    """What the definitions say: who reads whom, how fresh each table is to be, what moves together.

    A schedule that is `unreadable` here holds up nobody else: its table moves only when others need it.
    """

    graph: Graph[TableName]
    schedules: Mapping[TableName, Schedule]
    read_views: frozenset[TableName]
    immediate: frozenset[TableName]
    columns_read: Mapping[TableName, Mapping[TableName, tuple[str, ...]]] = field(default_factory=dict)
    """Which columns of which sources each table reads."""
    unreadable: Mapping[TableName, HeadraceError] = field(default_factory=dict)

    @cached_property
    def paces(self) -> Mapping[TableName, Pace[TableName]]:
        return resolve_paces(self.graph, self.schedules)

    @cached_property
    def groups(self) -> tuple[frozenset[TableName], ...]:
        """The tables of each diamond, diamonds with common tables joined."""
        return tuple(group_diamonds(find_diamonds(self.graph)))

    @cached_property
    def group_of(self) -> Mapping[TableName, frozenset[TableName]]:
        return {name: group for group in self.groups for name in group}

    @cached_property
    def place(self) -> Mapping[TableName, int]:
        """The place of each table in an order in which it comes after those it reads."""
        return {name: place for place, name in enumerate(self.graph.order)}

    def in_order(self, names: Iterable[TableName]) -> tuple[TableName, ...]:
        return tuple(sorted(names, key=self.place.__getitem__))


def build_network(tables: Iterable[StreamTable], dependencies: Iterable[Dependency]) -> Network:
    """Make the graph of what the catalog holds; its schedules were checked when they were set."""
    tables, dependencies = list(tables), list(dependencies)
    schedules, unreadable = _read_schedules(tables)
    edges = [(edge.stream_table, edge.source) for edge in dependencies if edge.kind != "VIEW"]
    columns_read: dict[TableName, dict[TableName, tuple[str, ...]]] = {}
    for edge in dependencies:
        columns_read.setdefault(edge.stream_table, {})[edge.source] = edge.columns_used
    return Network(
        graph=build_graph([table.name for table in tables], edges),
        schedules=schedules,
        read_views=frozenset(edge.stream_table for edge in dependencies if edge.kind == "VIEW"),
        immediate=frozenset(table.name for table in tables if table.refresh_mode is RefreshMode.IMMEDIATE),
        columns_read=columns_read,
        unreadable=unreadable,
    )


def _read_schedules(
    tables: Iterable[StreamTable],
) -> tuple[dict[TableName, Schedule], dict[TableName, HeadraceError]]:
    """Read the schedules; one may name a time zone that this machine's database does not know."""
    schedules: dict[TableName, Schedule] = {}
    unreadable: dict[TableName, HeadraceError] = {}
    for table in tables:
        try:
            schedules[table.name] = parse_schedule(table.schedule, minimum_seconds=0, is_stored=True)
        except HeadraceError as error:
            schedules[table.name], unreadable[table.name] = Downstream(), error
    return schedules, unreadable


class Networks:
    """Gives the network of a catalog, built anew only when a definition changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: tuple[int, Network] | None = None

    def look(self) -> tuple[Network, dict[TableName, StreamTable]]:
        """Give the network and the tables as they stand now."""
        while True:
            generation = self._catalog.generation()
            tables = {table.name: table for table in self._catalog.all()}
            # Other threads look, too, and put what they found in its place.
            kept = self._kept
            if kept is None or kept[0] != generation:
                kept = generation, build_network(tables.values(), self._catalog.dependencies())
            # A definition may have come or gone between the two looks.
            if kept[1].graph.reads.keys() == tables.keys():
                self._kept = kept
                return kept[1], tables
            self._kept = None
