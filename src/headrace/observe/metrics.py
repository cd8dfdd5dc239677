"""Counters and gauges in Prometheus's text format."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

Labels = Mapping[str, str]
_Key = tuple[tuple[str, str], ...]


class Metrics:
    """Named numbers with labels; any thread may change them.

    >>> metrics = Metrics({"ticks_total": ("counter", "Ticks that ran.")})
    >>> metrics.add("ticks_total")
    >>> print(metrics.render())
    # HELP headrace_ticks_total Ticks that ran.
    # TYPE headrace_ticks_total counter
    headrace_ticks_total 1
    """

    def __init__(self, described: Mapping[str, tuple[str, str]]) -> None:
        self._described = described
        self._lock = threading.Lock()
        self._values: dict[str, dict[_Key, float]] = {name: {} for name in described}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count up."""
        key = _key(labels)
        with self._lock:
            values = self._values[name]
            values[key] = values.get(key, 0) + amount

    def replace(self, name: str, samples: Iterable[tuple[Labels, float]]) -> None:
        """Set all samples of a gauge; those of tables that are gone vanish."""
        values = {_key(labels): value for labels, value in samples}
        with self._lock:
            self._values[name] = values

    def render(self) -> str:
        """Write all of it down."""
        with self._lock:
            values = {name: dict(samples) for name, samples in self._values.items()}
        lines = []
        for name, (kind, meaning) in self._described.items():
            lines += [f"# HELP headrace_{name} {meaning}", f"# TYPE headrace_{name} {kind}"]
            lines += [f"headrace_{name}{_shown(key)} {value:.15g}" for key, value in values[name].items()]
        return "\n".join(lines)


def _key(labels: Labels) -> _Key:
    return tuple(sorted(labels.items()))


def _shown(key: _Key) -> str:
    r"""Write labels.

    >>> _shown((("stream_table", 'a"b'),))
    '{stream_table="a\\"b"}'
    """
    if not key:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in key) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
