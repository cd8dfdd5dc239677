"""Where one way of applying a change ends and the next begins.

Measured with `benchmarks/apply_paths.py`; its results are in `benchmarks/results/apply_paths.json`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds in bytes; those of files count them as stored, compressed."""

    # A change in Arrow is held once as it came and once as it is written.
    driver_change_bytes: int = 256 << 20
    # Below this a table is written anew in about the time that finding out which part to write takes.
    rewrite_bytes: int = 4 << 20
    # Copied files stay readable for every Delta reader, so small ones are copied: this many cost no more than
    # one small Spark job. Beyond, hiding rows is several times cheaper.
    copy_bytes: int = 16 << 20
    # A table beyond this gets vectors with the first change that is spread over it; from then on copies keep
    # it readable for nobody more, and only small files are copied in less time than their rows are hidden.
    large_bytes: int = 64 << 20
    copy_of_large_bytes: int = 1 << 20
    # The columns that are searched pass through the driver, one file per core at a time.
    search_bytes: int = 8 << 30
    # A file beyond this is not read on the driver, whatever its table's size.
    file_bytes: int = 1 << 30
    # Of a table of which so large a part is touched, Spark writes the whole: its MERGE would, after two more
    # passes over it.
    spark_rewrite_share: float = 0.5
