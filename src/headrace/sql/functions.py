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

AGGREGATES = frozenset(
    {
        "any",
        "any_value",
        "approx_count_distinct",
        "approx_percentile",
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "corr",
        "count",
        "count_if",
        "count_min_sketch",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kurtosis",
        "last",
        "last_value",
        "listagg",
        "max",
        "max_by",
        "mean",
        "median",
        "min",
        "min_by",
        "mode",
        "percentile",
        "percentile_approx",
        "percentile_cont",
        "percentile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "schema_of_json_agg",
        "schema_of_variant_agg",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "try_avg",
        "try_sum",
        "var_pop",
        "var_samp",
        "variance",
        "approx_top_k",
        "kll_sketch_agg_bigint",
        "kll_sketch_agg_double",
        "kll_sketch_agg_float",
        "theta_sketch_agg",
        "theta_union_agg",
        "theta_intersection_agg",
    }
)

# What an aggregate gives over no rows, where that is not NULL.
COUNTING_AGGREGATES = frozenset({"count", "count_if", "approx_count_distinct", "regr_count"})
COLLECTING_AGGREGATES = frozenset({"collect_list", "collect_set", "array_agg"})

# Window functions whose value ties in the order leave open: those that look at no frame, those that look at
# its first row, and all.
UNFRAMED_WINDOWS = frozenset({"row_number", "ntile", "lag", "lead"})
FRAME_START_WINDOWS = frozenset({"first_value", "first", "any_value"})
ORDER_SENSITIVE_WINDOWS = UNFRAMED_WINDOWS | FRAME_START_WINDOWS | {"last_value", "last", "nth_value"}
