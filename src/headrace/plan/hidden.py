"""Names of columns that no user sees, each with its reason."""

from __future__ import annotations

# How many copies of a row a change adds (positive) or takes away (negative).
WEIGHT = "__hr_weight"
# Tells the new state (1) from the old one (-1) when both go through one operator; it becomes the weight.
SIDE = "__hr_side"
# Stands where a relation needs a column and the query reads none.
NOTHING = "__hr_nothing"
# A call that stands for a subquery until it becomes a join.
SUBQUERY = "__HR_SUBQUERY"
