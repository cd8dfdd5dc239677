"""Short forms of the programs under `benchmarks/`, for a user's own machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import headrace
from headrace.bench import Measure
from headrace.bench.growth import MODES as GROWTH_MODES
from headrace.bench.growth import measure_bases
from headrace.bench.matrix import MODES, Matrix
from headrace.bench.tpch import QUERIES as TPCH_QUERIES
from headrace.bench.tpch import Tpch
from headrace.bench.workload import PATTERNS, QUERIES, SOURCES, Cell, Workload

_GROWN = 10
_GROWTH_QUERIES = ("scan", "join", "aggregate")


@dataclass(frozen=True, kw_only=True)
class Short:
    """How much is measured, and who is told how far it is."""

    hr: headrace.Headrace
    rows: int
    share: float
    scale: str
    rounds: int
    report: Callable[[str], None]

    def measure(self, what: Measure) -> list[dict[str, object]]:
        """Measure one of them; every result is compared with its query."""
        return {Measure.MATRIX: self._matrix, Measure.GROWTH: self._growth, Measure.TPCH: self._tpch}[what]()

    def _matrix(self) -> list[dict[str, object]]:
        """Every query in every mode, with changes all over the table and in its newest part."""
        self.report(f"matrix: {self.rows:,} rows, {3 * len(QUERIES)} stream tables")
        matrix = self._loaded(Workload(self.hr.spark, "bench_matrix", self.rows), list(QUERIES))
        return [
            row
            for pattern in PATTERNS
            for row in matrix.measure(Cell(self.rows, self.share, pattern), self.rounds)
        ]

    def _growth(self) -> list[dict[str, object]]:
        """The same number of recent changes of a table and of one ten times as large."""
        sizes = (self.rows, _GROWN * self.rows)
        self.report(f"growth: {sizes[0]:,} and {sizes[1]:,} rows")
        workloads = [Workload(self.hr.spark, f"bench_growth_{rows}", rows) for rows in sizes]
        matrices = [self._loaded(workload, _GROWTH_QUERIES, GROWTH_MODES) for workload in workloads]
        change = max(1, round(self.rows * self.share))
        return measure_bases(matrices, change, "recent", self.rounds, self.report)

    def _tpch(self) -> list[dict[str, object]]:
        """The queries of TPC-H while all its tables change."""
        self.report(f"tpch: scale {self.scale}, {3 * len(TPCH_QUERIES)} stream tables")
        tpch = Tpch(self.hr.spark, SOURCES["feed"])
        tpch.load(self.scale)
        matrix = Matrix(self.hr, tpch, TPCH_QUERIES, report=self.report)
        matrix.create()
        return list(matrix.measure(Cell(tpch.rows, self.share, "uniform"), self.rounds))

    def _loaded(self, workload: Workload, queries: Sequence[str], modes: Sequence[str] = MODES) -> Matrix:
        workload.load()
        matrix = Matrix(self.hr, workload, queries, modes, self.report)
        matrix.create()
        return matrix
