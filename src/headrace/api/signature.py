"""Know which commits a statement made: while it runs, its session signs them in their user metadata."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

_COMMIT_NOTE = "spark.databricks.delta.commitInfo.userMetadata"
_KEY = "headrace_write"


@dataclass
class _Signing:
    """The signature of one session, which all statements share that it runs at one time."""

    signature: str = field(default_factory=lambda: uuid.uuid4().hex)
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    before: str | None = None
    signed: str = ""


_sessions: WeakKeyDictionary[SparkSession, _Signing] = WeakKeyDictionary()
_sessions_lock = threading.Lock()


@contextmanager
def signed_commits(spark: SparkSession) -> Iterator[str]:
    """Sign what this session commits meanwhile, and give the signature; what the user notes there stays.

    It is the same for all statements of a session, since a session has one setting for all its threads: who
    looks for commits of one statement must keep the others of the session away from its table.
    """
    with _sessions_lock:
        signing = _sessions.setdefault(spark, _Signing())
    with signing.lock:
        _sign(spark, signing)
        signing.users += 1
    try:
        yield signing.signature
    finally:
        with signing.lock:
            signing.users -= 1
            if signing.users == 0:
                _put_back(spark, signing)


def _sign(spark: SparkSession, signing: _Signing) -> None:
    now = spark.conf.get(_COMMIT_NOTE, None)
    if signing.signature not in (now or ""):
        signing.before, signing.signed = now, add_signature(now, signing.signature)
        spark.conf.set(_COMMIT_NOTE, signing.signed)


def _put_back(spark: SparkSession, signing: _Signing) -> None:
    # A script may have set another note, which stays.
    if spark.conf.get(_COMMIT_NOTE, None) != signing.signed:
        return
    if signing.before is None:
        spark.conf.unset(_COMMIT_NOTE)
    else:
        spark.conf.set(_COMMIT_NOTE, signing.before)


def add_signature(note: str | None, signature: str) -> str:
    """Add a signature to a commit's note so that a JSON object stays one.

    >>> add_signature(None, "7f"), add_signature('{"job": 3}', "7f"), add_signature("nightly", "7f")
    ('{"headrace_write":"7f"}', '{"job": 3,"headrace_write":"7f"}', 'nightly {"headrace_write":"7f"}')
    """
    member = json.dumps({_KEY: signature}, separators=(",", ":"))
    if not note:
        return member
    try:
        known = json.loads(note)
    except ValueError:
        known = None
    if not isinstance(known, dict):
        return f"{note} {member}"
    return f"{note.rstrip()[:-1]},{member[1:]}" if known else member
