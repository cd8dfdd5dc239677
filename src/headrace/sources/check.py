"""What happened to a source between two versions, told by its log alone: history, identity and schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from pyspark.sql.types import DataType, StructType

from headrace.catalog import SourceVersion
from headrace.sources.arrow_types import CHAR_TYPE
from headrace.sources.delta import DeltaSource
from headrace.sources.difference import Difference, commit_difference, net_difference
from headrace.sources.feeds import usable_feeds
from headrace.sources.log import Commit
from headrace.sources.state import Field, TableState, fields_inside, fields_of, physical_names

_VARCHAR = re.compile(r"varchar\(\d+\)")


class SourceEvent(StrEnum):
    """The gravest thing that happened to a source, from nothing to what needs a person."""

    UNCHANGED = "unchanged"
    DATA_CHANGED = "data changed"
    RESTORED = "restored"
    TYPE_WIDENED = "type widened"
    TYPE_CHANGED = "type changed"
    REPARTITIONED = "repartitioned"
    HISTORY_LOST = "history lost"
    RECREATED = "re-created"
    COLUMN_RENAMED = "column renamed"
    COLUMN_DROPPED = "column dropped"


@dataclass(frozen=True, kw_only=True)
class SourceFinding:
    """What a refresh must know of a source; `old_readable` tells whether its old version can be queried."""

    event: SourceEvent
    detail: str = ""
    columns: tuple[str, ...] = ()
    old_readable: bool = True

    @property
    def has_changes(self) -> bool:
        return self.event is not SourceEvent.UNCHANGED

    @property
    def is_incremental(self) -> bool:
        """Tell whether the change can be read and means what it meant before."""
        return self.event in (SourceEvent.UNCHANGED, SourceEvent.DATA_CHANGED, SourceEvent.RESTORED)


def check_source(
    source: DeltaSource,
    old: SourceVersion,
    new: SourceVersion,
    columns_used: Sequence[str],
    recorded_types: Mapping[str, str],
) -> SourceFinding:
    """Tell what happened to the used columns and the history of a source since a version."""
    state = source.state(new.version)
    recreated = old.table_id != new.table_id
    # A version's metadata outlives neither the log's cleanup nor the table.
    before = None if recreated else source.state_or_none(old.version)
    schema = check_columns(before, state, columns_used, recorded_types)
    if schema is not None:
        return schema
    if recreated:
        return SourceFinding(
            event=SourceEvent.RECREATED,
            detail=f"{source.name} was dropped and created anew",
            old_readable=False,
        )
    if source.is_other(old):
        return SourceFinding(
            event=SourceEvent.RECREATED,
            detail=f"a copy of {source.name} that went its own way took its place: "
            f"version {old.version} is not the one that was read",
            old_readable=False,
        )
    if before is None:
        # Every later commit may be there, and still nothing tells what the columns were.
        return _lost(source, f"version {old.version} is no longer in its log")
    return _check_history(source, old.version, new.version, before, columns_used)


def check_columns(
    before: TableState | None,
    after: TableState,
    columns_used: Sequence[str],
    recorded_types: Mapping[str, str],
) -> SourceFinding | None:
    """Compare the used columns with what was recorded of them; None where all are as they were."""
    recorded = {name.casefold(): kind for name, kind in recorded_types.items()}
    findings = (_check_column(name, before, after, recorded.get(name.casefold())) for name in columns_used)
    return max(
        (one for one in findings if one is not None),
        key=lambda one: list(SourceEvent).index(one.event),
        default=None,
    )


def _check_column(
    name: str, before: TableState | None, after: TableState, recorded: str | None
) -> SourceFinding | None:
    was, now = before.field(name) if before else None, after.field(name)
    if now is None:
        return _gone(name, was, after)
    if was is not None and was.physical != now.physical:
        return _other(name, f"column {name}")
    old_type = spark_type(was).simpleString() if was is not None else recorded
    new_type = spark_type(now).simpleString()
    if recorded is not None and recorded != new_type:
        old_type = recorded
    if was is not None and (old_type is None or old_type == new_type):
        if physical_names(was) != physical_names(now):
            return _other(name, f"a field of column {name}")
        # Spark pads CHAR when it reads or compares it, though what is stored is the same string.
        old_type, new_type = declared_type(was) or new_type, declared_type(now) or new_type
    if old_type is None or old_type == new_type:
        return None
    widened = is_widened(old_type, new_type)
    return SourceFinding(
        event=SourceEvent.TYPE_WIDENED if widened else SourceEvent.TYPE_CHANGED,
        detail=f"column {name} was {old_type} and is {new_type}",
        columns=(name,),
    )


def declared_type(field: Field) -> str | None:
    """Give the type of a column that holds CHAR as it was declared; a VARCHAR compares as its string does.

    >>> declared_type(Field("a", "string", {CHAR_TYPE: "struct<b:char(3),c:varchar(9)>"}))
    'struct<b:char(3),c:string>'
    >>> declared_type(Field("a", "string", {CHAR_TYPE: "varchar(9)"}))
    """
    declared = _VARCHAR.sub("string", str(field.metadata.get(CHAR_TYPE, "")))
    inside = [text for one in fields_inside(field.type) if (text := declared_type(one))]
    texts = ([declared] if re.search(r"\bchar\(", declared) else []) + inside
    return ", ".join(texts) or None


def _other(column: str, what: str) -> SourceFinding:
    return SourceFinding(
        event=SourceEvent.TYPE_CHANGED,
        detail=f"{what} was dropped and another of the same name was added",
        columns=(column,),
    )


def _gone(name: str, was: Field | None, after: TableState) -> SourceFinding:
    renamed = [one.name for one in after.fields if was is not None and one.physical == was.physical]
    if renamed:
        return SourceFinding(
            event=SourceEvent.COLUMN_RENAMED,
            detail=f"column {name} is now called {renamed[0]}",
            columns=(name,),
        )
    return SourceFinding(event=SourceEvent.COLUMN_DROPPED, detail=f"column {name} is gone", columns=(name,))


def _check_history(
    source: DeltaSource, old: int, new: int, before: TableState, columns_used: Sequence[str]
) -> SourceFinding:
    if new < old:
        return _lost(source, f"its newest version is {new}, older than {old}")
    listed = list(source.log.commits(old, new))
    commits = [commit for commit in listed if commit is not None]
    if len(commits) < len(listed):
        return _lost(source, "commits since then are gone from its log")
    moved = _repartitioned(before, commits, columns_used)
    if moved:
        detail = f"it was partitioned by other columns, and {', '.join(moved)} moved"
        return SourceFinding(event=SourceEvent.REPARTITIONED, detail=detail, columns=moved)
    after = source.state(new)
    fields = [field for name in columns_used if (field := after.field(name)) is not None]
    feeds = usable_feeds(before, after, commits, fields)
    by_commit, net = commit_difference(commits, feeds=feeds), net_difference(commits)
    lost = Difference(tuple(piece for piece in net.pieces if piece.weight < 0))
    old_readable = not lost.missing(source.location)
    if not by_commit.pieces:
        return SourceFinding(event=SourceEvent.UNCHANGED, old_readable=old_readable)
    if by_commit.missing(source.location) and net.missing(source.location):
        return _lost(source, "files of that time were vacuumed")
    restored = next(_restores(commits), None)
    return SourceFinding(
        event=SourceEvent.RESTORED if restored else SourceEvent.DATA_CHANGED,
        detail=f"{source.name} was restored in version {restored.version}" if restored else "",
        old_readable=old_readable,
    )


def _repartitioned(
    before: TableState, commits: Sequence[Commit], columns_used: Sequence[str]
) -> tuple[str, ...]:
    """Name the used columns that some files between two versions hold, and others only in their paths."""
    states = [before, *(before.after(commit) for commit in commits if commit.metadata)]
    columns = [frozenset(one.casefold() for one in state.partition_columns) for state in states]
    moved = frozenset().union(*columns) - columns[0].intersection(*columns)
    return tuple(name for name in columns_used if name.casefold() in moved)


def _restores(commits: Sequence[Commit]) -> Iterator[Commit]:
    return (commit for commit in commits if commit.operation == "RESTORE")


def _lost(source: DeltaSource, reason: str) -> SourceFinding:
    return SourceFinding(
        event=SourceEvent.HISTORY_LOST,
        detail=f"the history of {source.name} does not reach back: {reason}",
        old_readable=False,
    )


def spark_type(field: Field) -> DataType:
    """Give a column's Spark type.

    >>> spark_type(Field("a", "long")).simpleString()
    'bigint'
    """
    one = {"name": field.name, "type": field.type, "nullable": True, "metadata": dict(field.metadata)}
    return StructType.fromJson({"type": "struct", "fields": [one]}).fields[0].dataType


def column_types(state: TableState) -> Mapping[str, str]:
    """Give a table's columns, in folded case, with their Spark types."""
    return _column_types(state.metadata["schemaString"])


@lru_cache(maxsize=1024)
def _column_types(schema: str) -> Mapping[str, str]:
    fields = fields_of(json.loads(schema))
    return {field.name.casefold(): spark_type(field).simpleString() for field in fields}


_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "double", "decimal"),
    "smallint": ("int", "bigint", "double", "decimal"),
    "int": ("bigint", "double", "decimal"),
    "bigint": ("decimal",),
    "float": ("double",),
    "decimal": ("decimal",),
    "date": ("timestamp_ntz",),
}


def is_widened(old: str, new: str) -> bool:
    """Tell a widened type from another one, as Delta's type widening understands it.

    >>> is_widened("int", "bigint"), is_widened("bigint", "int")
    (True, False)
    >>> is_widened("decimal(5,2)", "decimal(9,2)"), is_widened("decimal(5,2)", "decimal(6,4)")
    (True, False)
    """
    if new.partition("(")[0] not in _WIDER.get(old.partition("(")[0], ()):
        return False
    return not old.startswith("decimal") or _holds(new, old)


def _holds(wide: str, narrow: str) -> bool:
    """Tell whether a decimal type has room for all values of another."""
    (wide_precision, wide_scale), (precision, scale) = (
        map(int, kind.removeprefix("decimal(").removesuffix(")").split(",")) for kind in (wide, narrow)
    )
    return wide_scale >= scale and wide_precision - wide_scale >= precision - scale
