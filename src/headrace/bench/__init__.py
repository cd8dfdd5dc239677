"""Measurements of refreshes: what a change costs against recomputing, as ratios within one run."""

from __future__ import annotations

from enum import StrEnum


class Measure(StrEnum):
    """What can be measured."""

    MATRIX = "matrix"
    GROWTH = "growth"
    TPCH = "tpch"
