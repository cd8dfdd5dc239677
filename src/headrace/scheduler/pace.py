"""How long refreshes of a table take against its period, and how much longer the period must be for them."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.catalog import Action, RefreshRecord, RefreshState
from headrace.refresh.choice import is_first_load
from headrace.scheduler.clock import SHORTEST_PERIOD_MS, canonical_period

# Refreshes that tell how long the next one will take.
RECENT = 3
# A refresh that takes more of its period than this leaves too little room for the next.
_MOST_OF_PERIOD = 0.8
_MOST_DOUBLINGS = 10
# What takes less leaves room in every period.
SHORTEST_TROUBLE = _MOST_OF_PERIOD * SHORTEST_PERIOD_MS / 1000


def shows_pace(action: Action, reason: str) -> bool:
    """Tell whether a refresh says how long others take: loading a table once does not, nor having no work."""
    return action not in (Action.NO_DATA, Action.REINITIALIZE) and not is_first_load(reason)


def current_period(lag: float, history: Iterable[RefreshRecord]) -> tuple[float, int]:
    """Give the seconds between refreshes after a history, the newest first, and how often they doubled."""
    recent = [
        record.duration_ms / 1000
        for record in history
        if record.state is RefreshState.COMPLETED
        and record.action is not None
        and record.duration_ms is not None
        and shows_pace(record.action, record.reason)
    ][:RECENT]
    doublings = doublings_for(lag, max(recent, default=0.0))
    return canonical_period(lag, stretch=doublings).total_seconds(), doublings


def doublings_for(lag: float, seconds: float) -> int:
    """Tell how often the period of a lag must be doubled for a refresh to take at most 80 % of it.

    >>> [doublings_for(60, seconds) for seconds in (1, 19, 20, 40, 100)]
    [0, 0, 1, 2, 3]
    """
    doublings = 0
    while doublings < _MOST_DOUBLINGS and is_too_slow(
        seconds, canonical_period(lag, stretch=doublings).total_seconds()
    ):
        doublings += 1
    return doublings


def is_too_slow(seconds: float, period: float) -> bool:
    """Tell whether what takes so long leaves too little room in its period."""
    return seconds > _MOST_OF_PERIOD * period
