"""Functions whose value is not decided by their arguments alone, by the reason why."""

from __future__ import annotations

NON_DETERMINISTIC = frozenset(
    {
        "rand",
        "random",
        "randn",
        "randstr",
        "uniform",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
        "reflect",
        "try_reflect",
        "java_method",
    }
)

# Their value moves with the clock; a FULL refresh evaluates them anew.
TIME = frozenset(
    {
        "current_date",
        "curdate",
        "current_timestamp",
        "now",
        "localtimestamp",
        "current_time",
        "localtime",
        "getdate",
        "sysdate",
    }
)

# These read the clock only when they are called without arguments.
TIME_WITHOUT_ARGUMENTS = frozenset({"unix_timestamp", "to_unix_timestamp"})

SESSION = frozenset(
    {
        "current_user",
        "session_user",
        "user",
        "current_catalog",
        "current_database",
        "current_schema",
        "current_timezone",
        "current_path",
        "version",
    }
)

# Spark reads these without parentheses too, where no column has the name.
WITHOUT_PARENTHESES = frozenset(
    {
        "current_date",
        "current_timestamp",
        "localtimestamp",
        "current_time",
        "localtime",
        "current_user",
        "session_user",
        "user",
    }
)

# Their result depends on the order in which rows arrive, or on which of several ties is met first. They are
# recomputed from their whole group, so they are as exact as one run of the query; two runs may still differ.
ORDER_DEPENDENT_AGGREGATES = frozenset(
    {
        "first",
        "first_value",
        "last",
        "last_value",
        "any_value",
        "collect_list",
        "array_agg",
        "listagg",
        "string_agg",
        "collect_set",
        "mode",
        "max_by",
        "min_by",
        "approx_percentile",
        "percentile_approx",
        "histogram_numeric",
    }
)

# Functions that turn one row into many.
GENERATORS = frozenset(
    {
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
        "variant_explode",
        "variant_explode_outer",
    }
)
