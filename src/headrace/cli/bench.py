"""`bench`: what a change costs against recomputing, on the user's own machine."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headrace.bench import Measure
from headrace.cli.command import Json, Place, err, out
from headrace.display import json_text


def bench(
    place: Place,
    what: Annotated[
        list[Measure] | None,
        typer.Argument(
            help="matrix: eight queries. growth: the same change on a table ten times as large. "
            "tpch: its 22 queries. All of them unless some are named.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1000, max=100_000_000, help="Rows of the table.")] = 200_000,
    change: Annotated[float, typer.Option(min=0.0001, max=1, help="Share of the rows that changes.")] = 0.01,
    scale: Annotated[float, typer.Option(min=0.001, max=100, help="Scale factor of TPC-H.")] = 0.05,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Measured rounds after one to warm up.")] = 3,
    json: Json = False,
) -> None:
    """Measure refreshes by the change against recomputing."""
    import headrace
    from headrace.bench.measure import as_table, machine
    from headrace.bench.short import Short

    # A folder of its own: a measurement leaves nothing in anybody's lake.
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", ignore_cleanup_errors=True) as folder:
        warehouse = place.warehouse or Path(folder)
        with headrace.connect(warehouse=warehouse / "bench-lake") as hr:
            short = Short(
                hr=hr,
                rows=rows,
                share=change,
                scale=f"{scale:g}",
                rounds=rounds,
                report=lambda line: err().print(line),
            )
            results = {each.value: short.measure(each) for each in _chosen(what)}
    if json:
        measured = [{"what": name, "results": rows} for name, rows in results.items()]
        print(json_text([{"machine": machine(), "measured": measured}]))
        return
    for name, rows_of in results.items():
        out().print(f"\n{name}\n{as_table(rows_of)}", markup=False, highlight=False, soft_wrap=True)


def _chosen(named: Sequence[Measure] | None) -> list[Measure]:
    """Take what is named, else all that can be measured here."""
    from headrace.bench.tpch import can_generate

    if named:
        return list(dict.fromkeys(named))
    if can_generate():
        return list(Measure)
    err().print("tpch is left out: its data are made by tpchgen-cli (pip install tpchgen-cli)")
    return [one for one in Measure if one is not Measure.TPCH]
