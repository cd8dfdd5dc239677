"""Leases: at most one live holder per name, over threads, processes and machines.

The database's clock alone decides when a lease ends, so clocks of machines need not agree.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, bindparam, delete, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from headrace.catalog import schema
from headrace.catalog.database import Database
from headrace.catalog.owners import is_dead
from headrace.catalog.types import encode_name
from headrace.errors import HeadraceError
from headrace.sql.names import TableName

_leases = schema.leases
_log = logging.getLogger(__name__)

# Built once: a refresh with nothing to do spends most of its time on the catalog's few statements.
_RELEASE = delete(_leases).where(
    _leases.c.name == bindparam("held_name"), _leases.c.token == bindparam("held_token")
)


class now_ms(FunctionElement[int]):  # noqa: N801 - it reads as the SQL function it is
    """The database's clock in milliseconds since 1970."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "sqlite")
def _now_sqlite(_element: object, _compiler: object, **_options: object) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


@compiles(now_ms, "postgresql")
def _now_postgres(_element: object, _compiler: object, **_options: object) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"


@dataclass
class _Term:
    """Until when the holder may count on a lease, by its own clock; without a heartbeat it does not ask."""

    ends: float = math.inf


@dataclass(frozen=True)
class Lease:
    """A name held by one owner; the token tells this holding from every other."""

    name: str
    owner: str
    token: str
    _lost: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    _term: _Term = field(default_factory=_Term, repr=False, compare=False)

    @property
    def lost(self) -> bool:
        """Whether the lease ended under its holder, who then may write nothing more."""
        # A heartbeat that hangs in the network says nothing, and another may hold the lease by now.
        return self._lost.is_set() or time.monotonic() > self._term.ends

    def ensure_held(self) -> None:
        """Raise lease_lost when the lease ended; call it before a commit."""
        if self.lost:
            raise HeadraceError(
                "lease_lost",
                f"The lock on {self.name} was lost while the work ran.",
                hint="Nothing was committed. Run the refresh again; raise lease_ttl_seconds if this recurs.",
            )


class Leases:
    """The part of the catalog that says who may work on what."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire_lease(self, name: TableName | str, *, owner: str, ttl: timedelta) -> Lease | None:
        """Take a free, expired or orphaned lease; None when another live holder has it."""
        lease = Lease(_key(name), owner, uuid.uuid4().hex)
        while not self._swap(lease, ttl, _leases.c.expires_ms <= now_ms()):
            holder = self._holder(lease.name)
            if holder is None:
                continue
            if not is_dead(holder.owner):
                return None
            # The token in the condition makes only one of those who saw the death succeed.
            if self._swap(lease, ttl, _leases.c.token == holder.token):
                return lease
        return lease

    def renew_lease(self, lease: Lease, *, ttl: timedelta) -> bool:
        """Prolong a lease; false when it was taken over, and then it stays lost."""
        with self._database.write() as connection:
            renewed = connection.execute(
                update(_leases)
                .where(_leases.c.name == lease.name, _leases.c.token == lease.token)
                .values(expires_ms=_expiry(ttl))
            )
        if renewed.rowcount == 0:
            lease._lost.set()
        return renewed.rowcount == 1

    def release_lease(self, lease: Lease) -> None:
        """Give a lease back; one that was taken over meanwhile is left to its new holder."""
        with self._database.write() as connection:
            connection.execute(_RELEASE, {"held_name": lease.name, "held_token": lease.token})

    @contextmanager
    def lease(self, name: TableName | str, *, owner: str, ttl: timedelta) -> Iterator[Lease | None]:
        """Hold a lease, kept alive by a heartbeat, for the length of a block; None when another holds it."""
        began = time.monotonic()
        lease = self.acquire_lease(name, owner=owner, ttl=ttl)
        if lease is None:
            yield None
            return
        lease._term.ends = began + ttl.total_seconds()
        done = threading.Event()
        heartbeat = threading.Thread(
            target=self._beat, args=(lease, ttl, done), name=f"headrace-lease-{lease.name}", daemon=True
        )
        heartbeat.start()
        try:
            yield lease
        finally:
            done.set()
            heartbeat.join()
            self._release_quietly(lease)

    def lease_owner(self, name: TableName | str) -> str | None:
        """Who holds a live lease."""
        holder = self._holder(_key(name), live=True)
        return None if holder is None else holder.owner

    def _swap(self, lease: Lease, ttl: timedelta, takeable: ColumnElement[bool]) -> bool:
        """Compare and swap in one statement: insert the lease, or replace the one that may be taken."""
        values = {"owner": lease.owner, "token": lease.token, "expires_ms": _expiry(ttl)}
        insert: Any = sqlite.insert if self._database.is_sqlite else postgresql.insert
        statement = (
            insert(_leases)
            .values(name=lease.name, **values)
            .on_conflict_do_update(index_elements=[_leases.c.name], set_=values, where=takeable)
            .returning(_leases.c.token)
        )
        with self._database.write() as connection:
            return connection.execute(statement).first() is not None

    def _holder(self, name: str, *, live: bool = False) -> Lease | None:
        query = select(_leases.c.name, _leases.c.owner, _leases.c.token).where(_leases.c.name == name)
        if live:
            query = query.where(_leases.c.expires_ms > now_ms())
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else Lease(*row)

    def _beat(self, lease: Lease, ttl: timedelta, done: threading.Event) -> None:
        seconds = ttl.total_seconds()
        while not done.wait(seconds / 3):
            began = time.monotonic()
            try:
                if not self.renew_lease(lease, ttl=ttl):
                    return
                lease._term.ends = began + seconds
            except Exception as error:  # noqa: BLE001 - without a heartbeat nobody would notice the loss
                _log.warning("The lock on %s could not be renewed: %s", lease.name, error)
                # Unreachable for a whole ttl: another may hold it by now, so it counts as lost.
                if lease.lost:
                    lease._lost.set()
                    return

    def _release_quietly(self, lease: Lease) -> None:
        try:
            self.release_lease(lease)
        except Exception as error:  # noqa: BLE001 - it must not replace the block's own result or error
            _log.warning("The lock on %s ends only by itself: %s", lease.name, error)


def live_lease_of(name: ColumnElement[Any], token: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether a live lease covers a row with this name that was written under this token, or under none."""
    return (
        select(_leases.c.name)
        .where(
            _leases.c.name == name,
            _leases.c.expires_ms > now_ms(),
            or_(token.is_(None), _leases.c.token == token),
        )
        .exists()
    )


def break_dead_leases(connection: Connection, owner_is_dead: Callable[[str], bool]) -> None:
    """Remove leases that have expired or whose owner died."""
    connection.execute(delete(_leases).where(_leases.c.expires_ms <= now_ms()))
    for row in connection.execute(select(_leases)).all():
        if owner_is_dead(row.owner):
            connection.execute(delete(_leases).where(_leases.c.token == row.token))


def _key(name: TableName | str) -> str:
    return encode_name(name) if isinstance(name, TableName) else name


def _expiry(ttl: timedelta) -> ColumnElement[int]:
    expiry: ColumnElement[int] = now_ms() + int(ttl.total_seconds() * 1000)
    return expiry
