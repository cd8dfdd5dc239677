"""Holding a change to its definition: the old rows and the change are the new rows, on every path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Row
from pyspark.sql.types import VariantVal

from headrace import Headrace
from headrace.catalog import SourceVersion
from headrace.plan.hidden import WEIGHT
from headrace.sources.changes import Limits, SourceChange, read_changes
from headrace.sources.delta import DeltaSource
from headrace.sources.registry import Sources
from headrace.sql.names import parse_name
from headrace.storage.read import source_rows

PATHS: Mapping[str, Limits] = {
    "feed on the driver": Limits(),
    "files on the driver": Limits(feed=False),
    "feed in Spark": Limits(driver=False),
    "files in Spark": Limits(driver=False, feed=False),
}


def source_of(hr: Headrace, name: str) -> DeltaSource:
    return Sources(hr.spark, source_rows).find(parse_name(name, hr.current_schema()))


def at(source: DeltaSource, version: int) -> SourceVersion:
    return SourceVersion(version, source.table_id(version))


def newest(source: DeltaSource) -> int:
    version = source.log.newest_version()
    assert version is not None
    return version


def change(
    hr: Headrace,
    name: str,
    old: int,
    new: int | None = None,
    columns: Sequence[str] | None = None,
    *,
    limits: Limits | None = None,
) -> SourceChange:
    """Read one change; all columns and up to the newest version unless told otherwise."""
    source = source_of(hr, name)
    new = newest(source) if new is None else new
    asked = columns if columns is not None else [field.name for field in source.state(new).fields]
    return read_changes(hr.spark, source, at(source, old), at(source, new), asked, limits=limits)


def weights(hr: Headrace, found: SourceChange) -> Counter[str]:
    """Collect a change as Spark sees it, and check that it is netted out."""
    net: Counter[str] = Counter()
    for row in found.to_frame(hr.spark).collect():
        values = row.asDict()
        weight = values.pop(WEIGHT)
        text = written(tuple(values.values()))
        assert weight != 0, f"a weight of nothing: {text}"
        assert text not in net, f"not netted out: {text}"
        net[text] = weight
    return net


def snapshot(hr: Headrace, name: str, version: int, columns: Sequence[str]) -> Counter[str]:
    """Collect a table's rows at a version."""
    rows = hr.spark.read.option("versionAsOf", version).table(name).select(*(f"`{one}`" for one in columns))
    return Counter(written(tuple(row)) for row in rows.collect())


def assert_exact(
    hr: Headrace,
    name: str,
    old: int,
    new: int | None = None,
    columns: Sequence[str] | None = None,
    *,
    paths: Sequence[str] = tuple(PATHS),
) -> dict[str, SourceChange]:
    """Read a change on every path, and compare old rows + change with the new rows."""
    source = source_of(hr, name)
    new = newest(source) if new is None else new
    asked = list(columns if columns is not None else (field.name for field in source.state(new).fields))
    before, after = snapshot(hr, name, old, asked), snapshot(hr, name, new, asked)
    found = {}
    for path in paths:
        found[path] = change(hr, name, old, new, asked, limits=PATHS[path])
        net = weights(hr, found[path])
        got = before.copy()
        got.update(net)
        assert +got == after, f"{path}, {old} to {new}: {_difference(got, after)}"
        assert min(got.values(), default=0) >= 0, f"{path} took away what was not there"
        if found[path].only_adds:
            assert min(net.values(), default=1) > 0
    return found


def _difference(got: Counter[str], wanted: Counter[str]) -> str:
    missing, extra = wanted.copy(), got.copy()
    missing.subtract(got)
    extra.subtract(wanted)
    return f"missing {dict(+missing)}, extra {dict(+extra)}"


def written(value: Any) -> str:
    """Write a value so that different values have different texts."""
    if isinstance(value, VariantVal):
        return f"variant {bytes(value.value).hex()} {bytes(value.metadata).hex()}"
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(written(entry) for entry in value.items())) + "}"
    if isinstance(value, Row | tuple | list):
        return "(" + ", ".join(written(item) for item in value) + ")"
    return repr(value)
