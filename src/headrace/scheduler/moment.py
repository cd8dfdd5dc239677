"""Moments as users give them: with a time zone, and where contents are asked for, not still to come."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.errors import HeadraceError


def checked_moment(at: datetime) -> datetime:
    """Refuse what is no moment, or means another one in another time zone.

    >>> checked_moment(datetime(2026, 1, 1))
    Traceback (most recent call last):
    headrace.errors.HeadraceError: [invalid_moment] The moment 2026-01-01T00:00:00 has no time zone. ...
    """
    if not isinstance(at, datetime):
        raise HeadraceError(
            "invalid_moment",
            f"{at!r} is not a moment.",
            hint="Give a datetime with a time zone, such as datetime.now(UTC).",
        )
    if at.utcoffset() is None:
        raise HeadraceError(
            "invalid_moment",
            f"The moment {at.isoformat()} has no time zone.",
            hint="Give it one, such as datetime.now(UTC).",
        )
    return at


def checked_past(at: datetime, *, newest: datetime | None) -> datetime:
    """Refuse a moment after now and after the newest contents: what will be then nobody knows yet."""
    latest = max(filter(None, (datetime.now(UTC), newest)))
    if checked_moment(at) > latest:
        raise HeadraceError(
            "invalid_moment",
            f"The moment {at.isoformat()} is still to come.",
            hint="Give the data timestamp of a run, or leave it out for the newest common one.",
        )
    return at
