"""Whose affair a failed refresh is, which decides whether trying again helps."""

from __future__ import annotations

import re
from enum import StrEnum

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from headrace.catalog import RefreshRecord
from headrace.errors import HeadraceError
from headrace.refresh.failure import NEEDS_A_PERSON


class Blame(StrEnum):
    """USER: the query or its data. SCHEMA: a source changed. SYSTEM: it may pass. INTERNAL: a defect."""

    USER = "user"
    SCHEMA = "schema"
    SYSTEM = "system"
    INTERNAL = "internal"


MAY_END_BY_ITSELF = frozenset({Blame.SYSTEM, Blame.SCHEMA})
_SYSTEM_CODES = frozenset(
    {
        "catalog_unreachable",
        "catalog_busy",
        "catalog_read_only",
        "lease_lost",
        # It outlived its own lease, as when the catalog was away: another took it for dead.
        "refresh_not_running",
        "source_unreadable",
    }
)
# Spark tells most of its own troubles only in the text of a message.
_SYSTEM_TEXT = re.compile(
    r"ExecutorLost|executor.{0,40}(lost|exited)|heartbeat timed out|OutOfMemory|No space left"
    r"|Too many open files|Connection (refused|reset)|SocketTimeout|UnknownHost|Broken pipe|FetchFailed"
    r"|Disk quota|Concurrent\w*Exception|SparkContext was shut down|stopped SparkContext|cancelled",
    re.IGNORECASE,
)
_NO_ROOM_TEXT = re.compile(r"OutOfMemory|No space left|Disk quota", re.IGNORECASE)


def lacks_room(error: BaseException) -> bool:
    """Tell whether memory or disk gave out, so that what takes less of it may still work.

    >>> lacks_room(OSError(28, "No space left on device"))
    True
    """
    return isinstance(error, MemoryError) or bool(_NO_ROOM_TEXT.search(str(error)))


def blame(error: BaseException) -> Blame:
    """Class an error of a refresh by its code and by what caused it.

    >>> blame(HeadraceError("source_missing", "The source table s.t is gone.")).value
    'schema'
    >>> blame(OSError(28, "No space left on device")).value
    'system'
    """
    code = error.code if isinstance(error, HeadraceError) else ""
    if code in NEEDS_A_PERSON:
        return Blame.SCHEMA
    if code in _SYSTEM_CODES or any(_is_system(one) for one in _causes(error)):
        return Blame.SYSTEM
    if code == "internal_error" or (code in {"", "refresh_failed"} and not _is_spark(error)):
        return Blame.INTERNAL
    return Blame.USER


def may_end_by_itself(record: RefreshRecord) -> bool:
    """Tell of a failure in the history whether it may be over without anybody changing the table."""
    is_interrupted = record.error_code == "refresh_interrupted"
    return is_interrupted or record.details.get("blame") in MAY_END_BY_ITSELF


def _causes(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__
    return chain


def _is_system(error: BaseException) -> bool:
    if isinstance(error, OSError | MemoryError | Py4JNetworkError):
        return True
    is_ours = isinstance(error, HeadraceError) and error.code == "refresh_failed"
    if is_ours or isinstance(error, PySparkException | Py4JJavaError):
        return bool(_SYSTEM_TEXT.search(str(error)))
    return False


def _is_spark(error: BaseException) -> bool:
    return any(isinstance(one, PySparkException | Py4JError) for one in _causes(error))
