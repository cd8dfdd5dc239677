"""Column types that carry our records' values through the database and back unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import DateTime, Dialect, Text, TypeDecorator

from headrace.sql.names import TableName, parse_name, quote

T = TypeVar("T")
_BARE = re.compile(r"[a-z0-9_]+\Z")


class Encoded(TypeDecorator[T], Generic[T]):
    """A value kept as text, written by `encode` and read by `decode`."""

    impl = Text
    cache_ok = True

    def __init__(self, encode: Callable[[T], str], decode: Callable[[str], T]) -> None:
        super().__init__()
        self.encode = encode
        self.decode = decode

    def process_bind_param(self, value: T | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy passes it
        return None if value is None else self.encode(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> T | None:  # noqa: ARG002 - SQLAlchemy passes it
        return None if value is None else self.decode(value)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, always aware and in UTC; SQLite keeps no time zone, so none is stored there."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if dialect.name == "sqlite" else moment.astimezone(UTC)


def encode_name(name: TableName) -> str:
    """Write a name so that two different names never become one text, and plain names stay plain.

    >>> encode_name(TableName("shop", "orders")), encode_name(TableName("shop", "order.lines"))
    ('shop.orders', 'shop.`order.lines`')
    """
    return ".".join(part if _BARE.match(part) else quote(part) for part in name.parts)


def _encode_pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return json.dumps(pairs)


def _decode_pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in json.loads(text))


def _encode_tuple(values: tuple[str, ...]) -> str:
    return json.dumps(values)


def _decode_tuple(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _encode_mapping(values: dict[str, Any]) -> str:
    return json.dumps(dict(values), default=str)


def _decode_mapping(text: str) -> dict[str, Any]:
    mapping: dict[str, Any] = json.loads(text)
    return mapping


def name() -> Encoded[TableName]:
    return Encoded(encode_name, parse_name)


def choice(kind: type[StrEnum]) -> Encoded[StrEnum]:
    # `str.__str__` gives the value of an enum's member and also accepts the plain text of one.
    return Encoded(str.__str__, kind)


def pairs() -> Encoded[tuple[tuple[str, str], ...]]:
    return Encoded(_encode_pairs, _decode_pairs)


def texts() -> Encoded[tuple[str, ...]]:
    return Encoded(_encode_tuple, _decode_tuple)


def mapping() -> Encoded[dict[str, Any]]:
    return Encoded(_encode_mapping, _decode_mapping)
