"""Timings as medians of interleaved rounds, the machine they were taken on, and their table."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

# The heap of the embedded session in which the programs measure.
DRIVER_MEMORY = "4g"


@dataclass
class Timings:
    """Seconds by name; the first round of each name warms up and does not count."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def time(self, name: str, run: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = run()
        self.add(name, time.perf_counter() - began)
        return result

    def add(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)

    def median(self, name: str) -> float:
        taken = self.seconds[name]
        return statistics.median(taken[1:] or taken)


def in_turn(names: Sequence[T], number: int) -> list[T]:
    """Start each round with another one, so that none always runs first.

    >>> in_turn(["a", "b", "c"], 1)
    ['b', 'c', 'a']
    """
    start = number % len(names)
    return [*names[start:], *names[:start]]


def geometric_mean(ratios: Iterable[object]) -> float:
    """The mean of ratios, in which twice as fast and half as fast cancel out.

    >>> geometric_mean([2.0, 0.5])
    1.0
    """
    return statistics.geometric_mean([float(ratio) for ratio in ratios if isinstance(ratio, (int, float))])


def machine() -> dict[str, object]:
    """Describe where the figures come from."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "delta-spark": version("delta-spark"),
        "deltalake": version("deltalake"),
        "load": round(os.getloadavg()[0], 1),
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
    }


def write_results(path: Path, options: Mapping[str, object], results: Sequence[Mapping[str, object]]) -> None:
    """Keep the figures with the machine and the options they belong to, less where files are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {name: value for name, value in options.items() if not isinstance(value, Path)}
    report = {"machine": machine(), "options": settings, "results": list(results)}
    path.write_text(json.dumps(report, indent=1, default=str) + "\n", encoding="utf-8")


def as_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Align rows under their names, numbers to the right.

    >>> print(as_table([{"query": "scan", "FULL": 1.5}]))
    query  FULL
    scan    1.5
    """
    if not rows:
        return "nothing was measured"
    names = list(rows[0])
    cells = [[_shown(row.get(name)) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(names)]
    numeric = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names]
    lines = [names, *cells]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def _shown(value: object) -> str:
    if value is None:
        return ""
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and value < 1000
        else f"{value:,}"
        if isinstance(value, (int, float))
        else str(value)
    )
