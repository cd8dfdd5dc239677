"""Choose how a change is applied, and say why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headrace.storage.apply.limits import Limits


class Path(StrEnum):
    """The ways of applying a change; each is one commit."""

    NOTHING = "nothing"
    APPEND = "append"
    REWRITE = "rewrite"
    FILES = "files"
    VECTORS = "vectors"
    SPARK_APPEND = "spark append"
    SPARK_MERGE = "spark merge"
    SPARK_REWRITE = "spark rewrite"


@dataclass(frozen=True)
class Choice:
    """A path and the reason for it."""

    path: Path
    reason: str


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the choice depends on.

    `change_bytes` is None for a change that lives in Spark; `touched_*` are the files that may hold
    a lost row.
    """

    inserted: int
    deleted: int
    change_bytes: int | None
    table_bytes: int = 0
    table_files: int = 0
    touched_bytes: int = 0
    touched_files: int = 0
    largest_touched: int = 0


def choose_path(sizes: Sizes, limits: Limits, *, spark_only: str = "") -> Choice:
    """Choose the cheapest path that the sizes allow; `spark_only` says why only Spark may write.

    >>> sizes = Sizes(inserted=10, deleted=0, change_bytes=800, table_bytes=9_000_000, table_files=3)
    >>> print(choose_path(sizes, Limits()).reason)
    the change only adds 10 rows
    """
    if not sizes.inserted and not sizes.deleted:
        return Choice(Path.NOTHING, "the change is empty")
    if spark_only or _too_large(sizes, limits):
        return _choose_of_spark(sizes, limits, spark_only or "the change is too large for one machine")
    if not sizes.deleted:
        return Choice(Path.APPEND, f"the change only adds {sizes.inserted} rows")
    if sizes.table_bytes <= limits.rewrite_bytes:
        return Choice(Path.REWRITE, f"the table is small: {_megabytes(sizes.table_bytes)}")
    touched = f"{sizes.touched_files} of {sizes.table_files} files, {_megabytes(sizes.touched_bytes)}"
    if sizes.touched_bytes <= (limits.copy_bytes if limits.vectors else limits.copy_bytes_without_vectors):
        return Choice(Path.FILES, f"the change may touch {touched}")
    is_searchable = sizes.touched_bytes <= limits.search_bytes and sizes.largest_touched <= limits.file_bytes
    if limits.vectors and is_searchable:
        return Choice(Path.VECTORS, f"the change is spread over {touched}")
    return _choose_of_spark(sizes, limits, f"the change is spread over {touched}")


def _too_large(sizes: Sizes, limits: Limits) -> bool:
    return sizes.change_bytes is None or sizes.change_bytes > limits.driver_change_bytes


def _choose_of_spark(sizes: Sizes, limits: Limits, why: str) -> Choice:
    if not sizes.deleted:
        return Choice(Path.SPARK_APPEND, f"{why}; it only adds {sizes.inserted} rows")
    if sizes.table_bytes and sizes.touched_bytes >= limits.spark_rewrite_share * sizes.table_bytes:
        return Choice(Path.SPARK_REWRITE, f"{why}; most of the table may be touched")
    return Choice(Path.SPARK_MERGE, f"{why}; it may touch {_megabytes(sizes.touched_bytes)}")


def _megabytes(size: int) -> str:
    """Print a size.

    >>> _megabytes(2_500_000)
    '2.5 MB'
    """
    return f"{size / 1e6:.1f} MB"
