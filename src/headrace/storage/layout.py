"""How a stream table lies on disk, and why."""

from __future__ import annotations

# Rows of one Parquet row group: small enough that a search for changed rows skips most of a large file, large
# enough that dictionaries and compression still pay.
ROW_GROUP_ROWS = 128 * 1024

# Columns with statistics, Delta's own default.
INDEXED_COLUMNS = 32

# Characters of a text that its bounds keep, Delta's own default.
STATISTICS_PREFIX = 32

# Copying a touched file costs its whole size, so files are kept to what is copied in a fraction of a second …
_SMALLEST_FILE_ROWS = 256 * 1024
# … but a table must not fall into so many that listing them costs more than reading.
_FILES_WANTED = 64
_LARGEST_FILE_ROWS = 4 * 1024 * 1024

# Commits between two checkpoints of the log: a reader replays at most these one by one.
CHECKPOINT_INTERVAL = 20


def rows_per_file(rows: int) -> int:
    """Tell how many rows a file of a table of this size should hold at most.

    >>> rows_per_file(1_000), rows_per_file(100_000_000), rows_per_file(10**12)
    (262144, 1562500, 4194304)
    """
    return min(max(_SMALLEST_FILE_ROWS, rows // _FILES_WANTED), _LARGEST_FILE_ROWS)


def table_properties(*, mapped_columns: bool = False, change_feed: bool = False) -> dict[str, str]:
    """List the properties of a new stream table.

    >>> table_properties()["delta.enableDeletionVectors"]
    'false'
    """
    properties = {
        # Without vectors every Delta reader reads the table, old ones too; a table gets them with the first
        # change for which copying files would cost more.
        "delta.enableDeletionVectors": "false",
        # A feed makes every commit write its rows twice: only a table that others follow needs it.
        "delta.enableChangeDataFeed": "true" if change_feed else "false",
        # Row tracking adds two fields to every file and a counter to every commit, for identities that we do
        # not use: a row is its value.
        "delta.enableRowTracking": "false",
        "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    }
    if mapped_columns:
        properties["delta.columnMapping.mode"] = "name"
    return properties
