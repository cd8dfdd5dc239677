"""Hold a stream table so that no refresh is under way while its definition comes, changes or goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from headrace.catalog import Catalog, Lease, this_owner
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.sql.names import TableName

# How long a statement that then loads a table waits for the refresh that is under way.
WAIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.05


@contextmanager
def alone_with(
    catalog: Catalog, settings: Settings, name: TableName, done: str, *, patience: float = 0
) -> Iterator[Lease]:
    """Hold the lease of a stream table, waiting so many seconds for who has it."""
    ttl = timedelta(seconds=settings.lease_ttl_seconds)
    deadline = time.monotonic() + patience
    with ExitStack() as held:
        while (lease := held.enter_context(catalog.lease(name, owner=this_owner(), ttl=ttl))) is None:
            if time.monotonic() >= deadline:
                raise HeadraceError(
                    "refresh_running",
                    f"{name} cannot be {done} while it is refreshed by {catalog.lease_owner(name)}.",
                    hint="Wait until that refresh is over; SHOW REFRESH HISTORY tells.",
                )
            time.sleep(_PAUSE_SECONDS)
        yield lease
