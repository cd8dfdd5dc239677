"""Measurements of refreshes: what a change costs against recomputing, as ratios within one run."""
