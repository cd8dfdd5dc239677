"""What one tick shall do: which tables, in which order, for which data timestamp, and which not and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from headrace.catalog import Status, StreamTable
from headrace.scheduler.clock import AHEAD, SETTLE, Clock, Timed, is_ahead
from headrace.scheduler.network import Network
from headrace.scheduler.schedule import Downstream
from headrace.sql.names import TableName

DiamondPolicy = Literal["fastest", "slowest"]
# After so many doublings a failing table is tried no more rarely.
_MOST_DOUBLINGS = 6


@dataclass(frozen=True)
class Plan:
    """The tables of one tick in an order in which each follows those it reads; all share one moment.

    `ahead` are parts of the graph with contents of moments still to come: each has such a moment of its own.
    """

    moment: datetime
    tables: tuple[TableName, ...]
    blocked: Mapping[TableName, str] = field(default_factory=dict)
    ahead: tuple[Plan, ...] = ()

    @property
    def parts(self) -> tuple[Plan, ...]:
        """The plans of one moment each."""
        return (replace(self, ahead=()), *self.ahead)


@dataclass(frozen=True)
class Memory:
    """What a scheduler remembers between looks: tables under way, moments tried, periods made longer."""

    busy: Collection[TableName] = ()
    tried: Mapping[TableName, datetime] = field(default_factory=dict)
    stretch: Mapping[TableName, int] = field(default_factory=dict)


def plan_due(
    network: Network,
    tables: Mapping[TableName, StreamTable],
    clock: Clock,
    *,
    at: datetime,
    now: datetime,
    policy: DiamondPolicy = "fastest",
    memory: Memory | None = None,
    again: Collection[TableName] = (),
) -> Plan | None:
    """Plan what is due at a moment and what is to be tried again, or give None when that is nothing.

    `at` may lie ahead: then what would be due is refreshed to the contents of now.
    """
    memory = memory or Memory()
    timed = [
        timed_table(tables[name], network, memory, now)
        for name in network.graph.order
        if _is_on(tables[name])
    ]
    found = clock.due(timed, at)
    if not found and not again:
        return None
    timed_names = {one.name for one in timed if not isinstance(one.schedule, Downstream)}
    due = _with_diamonds({one.name for one in found}, timed_names, network, policy)
    for name in again:
        due |= network.group_of.get(name, {name})
    # What is tried again at the moment at which it failed would be taken for failed by another process.
    moment = at - SETTLE if again else found[0].data_timestamp
    busy = _held(network, memory.busy)
    return plan_tables(network, tables, due, moment=min(moment, now), now=now, busy=busy)


def plan_tables(
    network: Network,
    tables: Mapping[TableName, StreamTable],
    wanted: Iterable[TableName],
    *,
    moment: datetime,
    now: datetime | None = None,
    busy: Collection[TableName] = (),
    forced: Collection[TableName] = (),
) -> Plan | None:
    """Plan to bring these tables to a moment, with all that they read; `forced` ones though suspended.

    A table whose way up leads over one that is still under way waits for a later plan. The moment is moved on
    to the newest contents among the tables, since nothing ever goes back in time; contents ahead of `now`,
    which is the moment unless given, move only what they are connected with.
    """
    wanted = set(wanted)
    obstacles, waiting = _obstacles(network, tables, wanted, forced), _waiting(network, busy)
    blocked: dict[TableName, str] = {}
    free = []
    for name in network.in_order(wanted - waiting):
        obstacle = obstacles.get(name)
        if obstacle is None:
            free.append(name)
        elif obstacle[0] != name:
            blocked[name] = f"it reads {obstacle[0]}, {obstacle[1]}"
    chosen = network.graph.upstream_of(free) | set(free)
    if not chosen and not blocked:
        return None
    latest = max(moment, now or moment) + AHEAD
    together, apart = _split(network, tables, chosen, latest)
    newest = [stamp for name in together if (stamp := tables[name].data_timestamp) is not None]
    plans = [Plan(stamp, network.in_order(part)) for stamp, part in sorted(apart.items())]
    if together or blocked:
        plans.insert(0, Plan(max([moment, *newest]), network.in_order(together), blocked))
    return replace(plans[0], ahead=tuple(plans[1:]))


def _split(
    network: Network, tables: Mapping[TableName, StreamTable], chosen: set[TableName], latest: datetime
) -> tuple[set[TableName], dict[datetime, set[TableName]]]:
    """Set the connected parts of the graph apart that have contents of moments after the latest."""
    stamps = {name: stamp for name in chosen if (stamp := tables[name].data_timestamp) is not None}
    apart: dict[datetime, set[TableName]] = {}
    for part in network.graph.connected(chosen) if max(stamps.values(), default=latest) > latest else []:
        newest = max((stamps[name] for name in part if name in stamps), default=latest)
        if newest > latest:
            apart.setdefault(newest, set()).update(part)
    return chosen.difference(*apart.values()), apart


def timed_table(table: StreamTable, network: Network, memory: Memory, now: datetime) -> Timed[TableName]:
    """Say what the clock must know: a failed table is tried again at its next tick, not at once.

    What lies ahead, as after a clock was set back, says nothing: then it counts when the table was refreshed.
    """
    stretch = memory.stretch.get(table.name, 0)
    moments = [table.data_timestamp, memory.tried.get(table.name)]
    if table.last_error is not None or is_ahead(table.data_timestamp, now):
        moments.append(table.last_refresh_at)
    if table.status is Status.ERROR:
        stretch += min(table.consecutive_errors, _MOST_DOUBLINGS)
    known = [moment for moment in moments if moment is not None and not is_ahead(moment, now)]
    return Timed(table.name, network.schedules[table.name], max(known, default=None), stretch)


def _is_on(table: StreamTable) -> bool:
    """Tell whether a table is ever due: one without a location is being created and has no storage yet."""
    return table.status is not Status.SUSPENDED and bool(table.location)


def _bar(table: StreamTable, wanted: bool) -> str | None:
    """Say why nothing may be built on a table; one in ERROR is tried when it is due itself."""
    if table.status is Status.SUSPENDED:
        return "which is suspended"
    if table.status is Status.ERROR and not wanted:
        return "which is in status ERROR"
    return None


def _obstacles(
    network: Network,
    tables: Mapping[TableName, StreamTable],
    wanted: set[TableName],
    forced: Collection[TableName],
) -> dict[TableName, tuple[TableName, str]]:
    """Name for each table the first one on its way up, or itself, that nothing may be built on."""
    found: dict[TableName, tuple[TableName, str]] = {}
    for name in network.graph.order:
        above = next((found[one] for one in network.graph.upstreams[name] if one in found), None)
        reason = _bar(tables[name], name in wanted) if name not in forced else None
        if above is not None:
            found[name] = above
        elif reason is not None:
            found[name] = name, reason
    return found


def _waiting(network: Network, busy: Collection[TableName]) -> set[TableName]:
    return {*busy, *network.graph.downstream_of(busy)} if busy else set()


def _held(network: Network, busy: Collection[TableName]) -> set[TableName]:
    """Name what must wait for tables under way: what reads them, and each diamond of these as a whole."""
    held = _waiting(network, busy)
    while True:
        parted = [group for group in network.groups if not group.isdisjoint(held) and not group <= held]
        if not parted:
            return held
        held = _waiting(network, held.union(*parted))


def _with_diamonds(
    due: set[TableName], timed: set[TableName], network: Network, policy: DiamondPolicy
) -> set[TableName]:
    """Take a diamond whole: as soon as one table is due, or only when all are that ever become due."""
    chosen = set(due)
    for group in network.groups:
        if group.isdisjoint(due):
            continue
        if policy == "fastest" or group & timed <= due:
            chosen |= group
        else:
            chosen -= group
    return chosen
