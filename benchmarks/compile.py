"""How long it takes to compile queries to their change: `python benchmarks/compile.py [--json file]`.

Text to checked query, operators, change, SQL, without caches and without Spark; medians of
processor time, on which other work on the machine has little influence.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from headrace.delta import State, compile_change, plan_query
from headrace.sql.analysis import Column, Table, analyze
from headrace.sql.names import TableName

WIDTH = 12
RUNS = 15


def table(name: TableName) -> Table:
    return Table(name, tuple(Column(f"c{place}", "int") for place in range(WIDTH)))


def joined(ways: int) -> str:
    """A join of tables in a row, of which two columns each are asked for."""
    items = ", ".join(f"t{n}.c1 AS a{n}, t{n}.c2 AS b{n}" for n in range(ways))
    joins = " ".join(f"JOIN t{n} ON t{n}.c0 = t{n - 1}.c3 AND t{n}.c4 > 0" for n in range(1, ways))
    return f"SELECT {items} FROM t0 {joins} WHERE t0.c5 IS NOT NULL"


QUERIES = {
    "filter": "SELECT c0, c1 FROM t0 WHERE c2 > 1",
    "two-way join": joined(2),
    "eight-way join": joined(8),
    "join + aggregate": "SELECT t0.c0, SUM(t1.c2) AS s FROM t0 JOIN t1 ON t0.c0 = t1.c1 GROUP BY t0.c0",
    "correlated subquery": "SELECT c0 FROM t0 WHERE c1 > (SELECT AVG(c2) FROM t1 WHERE t1.c0 = t0.c0)",
}


def compiled(text: str) -> str:
    """The change query of a text when every source changed."""
    analysis = analyze(text, current_schema="default", resolve=table)
    return compile_change(plan_query(analysis), frozenset(analysis.sources)).sql(bind)


def bind(name: TableName, state: State) -> str:
    return f"{name.sql}_{state.value}"


def milliseconds(text: str) -> float:
    times = []
    for run in range(RUNS):
        began = time.process_time()
        # A comment makes another text of it, which no cache knows.
        compiled(f"{text} -- {run}")
        times.append((time.process_time() - began) * 1000)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the medians there too")
    arguments = parser.parse_args()
    measured = {name: round(milliseconds(text), 1) for name, text in QUERIES.items()}
    for name, median in measured.items():
        print(f"{name:20} {median:8.1f} ms")
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
