"""Where one way of applying a change ends and the next begins.

Measured with `benchmarks/apply_paths.py` and in docs/PERFORMANCE.md.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds in bytes; those of files count them as stored, compressed."""

    # A change in Arrow is held once as it came and once as it is written.
    driver_change_bytes: int = 256 << 20
    # Below this a table is written anew in about the time that finding out which part to write takes, and a
    # file is copied in about the time that hiding rows of it takes. Copies are read by every Delta reader.
    rewrite_bytes: int = 1 << 20
    copy_bytes: int = 1 << 20
    # Whether rows of larger files may be hidden by deletion vectors. Else they are copied on the driver up to
    # a larger bound, as much as passes through it in a few seconds, and by Spark beyond.
    vectors: bool = True
    copy_bytes_without_vectors: int = 256 << 20
    # The columns that are searched pass through the driver, one file per core at a time.
    search_bytes: int = 8 << 30
    # A file beyond this is not read on the driver, whatever its table's size.
    file_bytes: int = 1 << 30
    # Of a table of which so large a part is touched, Spark writes the whole: its MERGE would, after two more
    # passes over it.
    spark_rewrite_share: float = 0.5
