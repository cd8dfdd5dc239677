"""`bench`: what a change costs against recomputing, on the user's own machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.command import Json, Place, err, out
from headrace.display import json_text


def bench(
    place: Place,
    rows: Annotated[int, typer.Option(min=1000, max=100_000_000, help="Rows of the table.")] = 200_000,
    change: Annotated[float, typer.Option(min=0.0001, max=1, help="Share of the rows that changes.")] = 0.01,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Measured rounds after one to warm up.")] = 3,
    json: Json = False,
) -> None:
    """Measure refreshes by the change against recomputing."""
    import headrace
    from headrace.bench.matrix import Matrix
    from headrace.bench.measure import as_table, machine
    from headrace.bench.workload import PATTERNS, QUERIES, Cell, Workload

    # A folder of its own: a measurement leaves nothing in anybody's lake.
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", ignore_cleanup_errors=True) as folder:
        warehouse = place.warehouse or Path(folder)
        with headrace.connect(warehouse=warehouse / "bench-lake") as hr:
            workload = Workload(hr.spark, "bench", rows)
            matrix = Matrix(hr, workload, list(QUERIES), report=lambda line: err().print(line))
            err().print(f"Loading {rows:,} rows and {3 * len(QUERIES)} stream tables")
            workload.load()
            matrix.create()
            results = [
                row for pattern in PATTERNS for row in matrix.measure(Cell(rows, change, pattern), rounds)
            ]
    if json:
        print(json_text([{"machine": machine(), "results": results}]))
    else:
        out().print(as_table(results), markup=False, highlight=False, soft_wrap=True)
