"""Measure the scheduler: a tick without changes, graphs of several shapes, and lags under a steady writer.

`python benchmarks/scheduler.py quiet|shapes|lags` measures one of them and writes its figures, with the
machine and its load, to `benchmarks/results/scheduler-<what>.json`; `lags` also draws a plot beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

import headrace
from headrace import Headrace
from headrace.catalog import Dependency, NewStreamTable
from headrace.scheduler.report import TickReport
from headrace.sql.names import TableName

RESULTS = Path(__file__).parent / "results"
SOURCE = "sales"
MODE = "DIFFERENTIAL"
LAGS = (3, 6, 12, 30, 60)


def main() -> None:
    options = _options()
    RESULTS.mkdir(exist_ok=True)
    with _lake() as hr:
        figures = MEASURES[options.what](hr, options)
    machine = {
        "cores": os.cpu_count(),
        "load": [round(one, 2) for one in os.getloadavg()],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    result = {"what": options.what, "machine": machine, "figures": figures}
    (RESULTS / f"scheduler-{options.what}.json").write_text(json.dumps(result, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(MEASURES))
    parser.add_argument("--tables", type=int, default=1000, help="tables of the tick without changes")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the source of the shapes")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, of which medians are shown")
    parser.add_argument("--warm-up", type=int, default=3, help="rounds of the shapes before those that count")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--minutes", type=float, default=10, help="length of the measurement of lags")
    return parser.parse_args()


@contextmanager
def _lake() -> Iterator[Headrace]:
    with tempfile.TemporaryDirectory() as folder, headrace.connect(warehouse=Path(folder) / "lake") as hr:
        hr.sql(f"CREATE TABLE {SOURCE} (id BIGINT, shop INT, amount BIGINT) USING delta")
        yield hr


def _fill(hr: Headrace, rows: int, start: int = 0, source: str = SOURCE) -> None:
    hr.spark.sql(
        f"INSERT INTO {source} SELECT id, CAST(id % 1000 AS INT), id % 97 FROM range({start}, {start + rows})"
    )


def _append(hr: Headrace, rows: int, start: int) -> None:
    """Add rows to each source by a writer other than Spark, which takes milliseconds."""
    folder = Path((hr.spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:"))
    ids = np.arange(start, start + rows)
    columns = {"id": ids, "shop": (ids % 1000).astype(np.int32), "amount": ids % 97}
    for table in hr.spark.catalog.listTables():
        if table.name.startswith(SOURCE):
            write_deltalake(folder / table.name, pa.table(columns), mode="append")


def _tick(hr: Headrace) -> TickReport:
    report = hr.run_once(at=datetime.now(UTC) + timedelta(days=1))
    if not report.ok:
        raise SystemExit(f"a tick failed: {report}")
    return report


def measure_quiet(hr: Headrace, options: argparse.Namespace) -> dict[str, Any]:
    """Time a tick over many tables of which none has anything to do."""
    _fill(hr, 1000)
    hr.create_stream_table("t0", f"SELECT id, amount FROM {SOURCE}", refresh_mode=MODE)
    _multiply(hr, options.tables)
    hr.run_once()
    times, jobs = [], 0
    for _ in range(options.rounds + 1):
        hr.spark.sparkContext.setJobGroup("quiet", "quiet")
        began = time.perf_counter()
        report = _tick(hr)
        times.append(time.perf_counter() - began)
        assert {one.action for one in report} == {"NO_DATA"}
        jobs += len(hr.spark.sparkContext.statusTracker().getJobIdsForGroup("quiet"))
    seconds = statistics.median(times[1:])
    print(f"{len(report):,} tables without a change: {seconds:.3f} s, {jobs} Spark jobs")
    return {"tables": len(report), "seconds": seconds, "spark_jobs": jobs}


def _multiply(hr: Headrace, count: int) -> None:
    """Make more tables like t0 by copying its storage, which is quicker than loading each."""
    first = hr.catalog.find(hr.qualify("t0"))
    fields = {field.name: getattr(first, field.name) for field in dataclasses.fields(NewStreamTable)}
    source = TableName("default", SOURCE)
    for number in range(1, count):
        name = TableName("default", f"t{number}")
        location = str(Path(first.location).parent / name.table)
        shutil.copytree(first.location, location)
        fields |= {"name": name, "location": location}
        hr.catalog.add(NewStreamTable(**fields), [Dependency(name, source, "TABLE", ("id", "amount"))])


def _chain(hr: Headrace) -> None:
    for number in range(10):
        source = f"t{number - 1}" if number else SOURCE
        hr.create_stream_table(f"t{number}", f"SELECT id, shop, amount FROM {source}", refresh_mode=MODE)


def _fan(hr: Headrace) -> None:
    hr.create_stream_table("base", f"SELECT id, shop, amount FROM {SOURCE}", refresh_mode=MODE)
    for number in range(19):
        query = f"SELECT shop, SUM(amount + {number}) AS s FROM base GROUP BY shop"
        hr.create_stream_table(f"t{number}", query, refresh_mode=MODE)


def _ladder(hr: Headrace) -> None:
    above = SOURCE
    for number in range(4):
        for side in "lr":
            query = f"SELECT shop, SUM(amount) AS amount FROM {above} GROUP BY shop"
            hr.create_stream_table(f"{side}{number}", query, refresh_mode=MODE)
        query = f"SELECT l.shop, l.amount + r.amount AS amount FROM l{number} l JOIN r{number} r USING (shop)"
        above = f"tip{number}"
        hr.create_stream_table(above, query, refresh_mode=MODE)


def _independent(hr: Headrace) -> None:
    """Tables whose change Spark computes."""
    for number in range(16):
        query = f"SELECT shop, STDDEV(amount + {number}) AS d, COUNT(*) AS n FROM {SOURCE} GROUP BY shop"
        hr.create_stream_table(f"t{number}", query, refresh_mode=MODE)


def _independent_on_driver(hr: Headrace) -> None:
    """Tables whose change is computed on the driver, by threads that share one interpreter."""
    for number in range(16):
        query = f"SELECT shop, SUM(amount + {number}) AS s, COUNT(*) AS n FROM {SOURCE} GROUP BY shop"
        hr.create_stream_table(f"t{number}", query, refresh_mode=MODE)


def _independent_windows(hr: Headrace) -> None:
    """Tables whose partitions are computed anew on the driver, most of it outside the interpreter."""
    for number in range(16):
        window = f"ROW_NUMBER() OVER (PARTITION BY shop ORDER BY amount + {number}, id)"
        query = f"SELECT id, shop, amount, {window} AS place FROM {SOURCE}"
        hr.create_stream_table(f"t{number}", query, refresh_mode=MODE)


def _independent_sources(hr: Headrace) -> None:
    """Tables whose change Spark computes, each over a source that no other one reads."""
    rows = hr.spark.table(SOURCE).count()
    for number in range(16):
        source = f"{SOURCE}{number}"
        hr.sql(f"CREATE TABLE {source} (id BIGINT, shop INT, amount BIGINT) USING delta")
        _fill(hr, rows, source=source)
        query = f"SELECT shop, STDDEV(amount) AS d, COUNT(*) AS n FROM {source} GROUP BY shop"
        hr.create_stream_table(f"t{number}", query, refresh_mode=MODE)


SHAPES: dict[str, Callable[[Headrace], None]] = {
    "chain of 10": _chain,
    "fan of 20": _fan,
    "diamond ladder": _ladder,
    "16 independent": _independent,
    "16 on the driver": _independent_on_driver,
    "16 windows": _independent_windows,
    "16 sources": _independent_sources,
}


def measure_shapes(hr: Headrace, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time ticks over graphs with 1, 2 and 4 workers, in turn, each after a change of one per cent."""
    _fill(hr, options.rows)
    rows, figures = options.rows, []
    for shape in options.shapes:
        SHAPES[shape](hr)
        walls: dict[int, list[float]] = {1: [], 2: [], 4: []}
        sums: dict[int, list[float]] = {1: [], 2: [], 4: []}
        busy: dict[int, list[float]] = {1: [], 2: [], 4: []}
        for number in range(options.warm_up + options.rounds):
            for workers in walls:
                _append(hr, options.rows // 100, start=rows)
                rows += options.rows // 100
                hr.scheduler.workers.limit = workers
                before = _processor_seconds(hr)
                report = _tick(hr)
                used = _processor_seconds(hr) - before
                assert {str(one.action) for one in report} == {MODE}, str(report)
                if number >= options.warm_up:
                    walls[workers].append(report.duration_ms / 1000)
                    busy[workers].append(used / report.duration_ms * 1000)
                    sums[workers].append(sum(one.duration_ms for one in report.results.values()) / 1000)
        for table in hr.catalog.all():
            assert hr.verify(table.name.sql).ok, table.name
        figures.append(_shape_figures(shape, len(report), walls, sums, busy))
        for table in reversed(hr.catalog.all()):
            if hr.catalog.get(table.name) is not None:
                hr.drop_stream_table(table.name.sql, cascade=True)
    return figures


def _processor_seconds(hr: Headrace) -> float:
    """What this process and its JVM have used of the processors so far."""
    stat = Path(f"/proc/{hr.spark.sparkContext._gateway.proc.pid}/stat").read_text()
    # The name of the process may hold spaces; after it come the numbers.
    numbers = stat.rpartition(")")[2].split()
    return time.process_time() + (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def _shape_figures(
    shape: str,
    tables: int,
    walls: dict[int, list[float]],
    sums: dict[int, list[float]],
    busy: dict[int, list[float]],
) -> dict[str, Any]:
    median = {workers: statistics.median(times) for workers, times in walls.items()}
    overhead = (median[1] - statistics.median(sums[1])) / tables
    speedup = {workers: median[1] / median[workers] for workers in (2, 4)}
    cores = {workers: round(statistics.median(shares), 2) for workers, shares in busy.items()}
    shown = "  ".join(
        f"{workers} workers {seconds:6.2f} s, {cores[workers]:.2f} cores"
        for workers, seconds in median.items()
    )
    print(
        f"{shape:16} {shown}  speed-up {speedup[2]:.2f}x {speedup[4]:.2f}x  overhead {overhead * 1000:.0f} ms"
    )
    return {
        "shape": shape,
        "tables": tables,
        "seconds": median,
        "sum_of_refreshes": {workers: statistics.median(times) for workers, times in sums.items()},
        "speedup": speedup,
        "cores_busy": cores,
        "overhead_per_table_ms": overhead * 1000,
    }


def measure_lags(hr: Headrace, options: argparse.Namespace) -> dict[str, Any]:
    """Run the service with twenty tables of mixed lags while somebody writes, and sample how old they are."""
    _fill(hr, 10_000)
    for number in range(20):
        lag = LAGS[number % len(LAGS)]
        query = f"SELECT shop, SUM(amount + {number}) AS s FROM {SOURCE} GROUP BY shop"
        hr.create_stream_table(f"t{number}", query, schedule=f"{lag} seconds", refresh_mode=MODE)
    service, stop = hr.service(), threading.Event()
    threads = [threading.Thread(target=service.run), threading.Thread(target=_write, args=(hr, stop))]
    for thread in threads:
        thread.start()
    # The first ticks compile and warm up; they do not count.
    time.sleep(min(30, options.minutes * 30))
    samples = _sample(hr, options.minutes * 60)
    stop.set()
    service.stop()
    for thread in threads:
        thread.join()
    for table in hr.catalog.all():
        assert hr.verify(table.name.sql).ok, table.name
    within = {lag: _within([one for one in samples if one[1] == lag]) for lag in LAGS}
    print(
        f"within their lag: {_within(samples):.1%}; " + ", ".join(f"{k} s {v:.1%}" for k, v in within.items())
    )
    (RESULTS / "scheduler-lags.svg").write_text(_plot(samples))
    return {
        "minutes": options.minutes,
        "tables": 20,
        "within": _within(samples),
        "within_by_lag": within,
        "samples": len(samples),
    }


def _write(hr: Headrace, stop: threading.Event) -> None:
    start = 10_000_000
    while not stop.wait(1):
        _fill(hr, 100, start=start)
        start += 100


def _sample(hr: Headrace, seconds: float) -> list[tuple[float, int, float]]:
    """Give (time, lag, age) of every table once a second."""
    samples = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        now = datetime.now(UTC)
        for table in hr.catalog.all():
            assert table.data_timestamp is not None
            lag = int(table.schedule.split()[0]) * (60 if "minute" in table.schedule else 1)
            samples.append((passed, lag, (now - table.data_timestamp).total_seconds()))
        time.sleep(1)
    return samples


def _within(samples: Sequence[tuple[float, int, float]]) -> float:
    return sum(age <= lag for _, lag, age in samples) / max(1, len(samples))


def _plot(samples: Sequence[tuple[float, int, float]]) -> str:
    """Draw the age of tables as a share of their lag over time; the line is the lag."""
    width, height, most = 800, 300, 2.0
    last = max(passed for passed, _, _ in samples) or 1
    # Some of the dots show as much as all of them.
    dots = "".join(
        f"M{40 + passed / last * (width - 60):.1f} "
        f"{height - 30 - min(age / lag, most) / most * (height - 50):.1f}h0"
        for passed, lag, age in samples[:: max(1, len(samples) // 3000)]
    )
    line = height - 30 - 1 / most * (height - 50)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{width}" height="{height}" fill="#fff"/>'
        f'<path d="{dots}" stroke="#36c" stroke-width="2" stroke-linecap="round"/>'
        f'<line x1="40" x2="{width - 20}" y1="{line}" y2="{line}" stroke="#c33"/>'
        f'<text x="8" y="{line + 4}">lag</text><text x="8" y="{height - 26}">0</text>'
        f'<text x="40" y="{height - 8}">0 s</text>'
        f'<text x="{width - 60}" y="{height - 8}">{last:.0f} s</text></svg>\n'
    )


MEASURES: dict[str, Callable[[Headrace, argparse.Namespace], Any]] = {
    "quiet": measure_quiet,
    "shapes": measure_shapes,
    "lags": measure_lags,
}

if __name__ == "__main__":
    main()
