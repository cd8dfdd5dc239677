"""What a statement says, as frozen records: the stream-table statements, and Spark's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headrace.errors import Position

NameParts = tuple[str, ...]
OptionValue = bool | int | float | str

REFRESH_MODES = ("AUTO", "DIFFERENTIAL", "FULL", "IMMEDIATE")
# The path of a table may be written where a name may: delta.`/lake/orders`.
_FILE_FORMATS = frozenset({"delta", "parquet", "orc", "json", "csv", "text", "avro", "directory"})


@dataclass(frozen=True)
class CreateStreamTable:
    """CREATE STREAM TABLE; `query` is `text[query_offset:…]` of the statement, without the semicolon."""

    name: NameParts
    query: str
    query_offset: int
    query_position: Position
    name_position: Position
    or_replace: bool = False
    if_not_exists: bool = False
    schedule: str | None = None
    schedule_position: Position | None = None
    refresh_mode: str | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    cluster_by: tuple[str, ...] = ()
    comment: str | None = None


@dataclass(frozen=True)
class SetSchedule:
    schedule: str
    position: Position


@dataclass(frozen=True)
class SetRefreshMode:
    refresh_mode: str


@dataclass(frozen=True)
class SetQuery:
    query: str
    query_offset: int
    query_position: Position


@dataclass(frozen=True)
class Suspend:
    pass


@dataclass(frozen=True)
class Resume:
    pass


@dataclass(frozen=True)
class Rename:
    to: NameParts
    position: Position


AlterAction = SetSchedule | SetRefreshMode | SetQuery | Suspend | Resume | Rename


@dataclass(frozen=True)
class AlterStreamTable:
    name: NameParts
    action: AlterAction
    name_position: Position


@dataclass(frozen=True)
class AlterStreamTables:
    """ALTER STREAM TABLES, which is about all of them."""

    action: Suspend | Resume


@dataclass(frozen=True)
class DropStreamTable:
    name: NameParts
    name_position: Position
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class RefreshStreamTable:
    name: NameParts
    name_position: Position
    full: bool = False
    upstream: bool = False


@dataclass(frozen=True)
class ShowStreamTables:
    pass


@dataclass(frozen=True)
class DescribeStreamTable:
    name: NameParts
    name_position: Position


@dataclass(frozen=True)
class ShowRefreshHistory:
    name: NameParts | None = None
    name_position: Position | None = None


@dataclass(frozen=True)
class ExplainStreamTable:
    name: NameParts
    name_position: Position


@dataclass(frozen=True)
class ExplainCreate:
    create: CreateStreamTable


@dataclass(frozen=True)
class CreateSource:
    """CREATE SOURCE; `kind` is in capitals, option names in lower case."""

    name: NameParts
    kind: str
    options: Mapping[str, OptionValue]
    name_position: Position


@dataclass(frozen=True)
class DropSource:
    name: NameParts
    name_position: Position


@dataclass(frozen=True)
class TargetWrite:
    """What a Spark statement writes to.

    `kind` is `table` for a name or a path and `schema` where a whole schema goes. Only Spark can know the
    name of a `dynamic` target, as in `IDENTIFIER(variable)`, and all of a `statement`, as in
    `EXECUTE IMMEDIATE variable`; `name` is then empty and `expression` is what gives it.
    """

    name: NameParts
    verb: str
    position: Position
    kind: Literal["table", "schema", "dynamic", "statement"] = "table"
    expression: str = ""

    @property
    def path(self) -> str | None:
        """The path written to, where the target is a path and not a name.

        >>> TargetWrite(("delta", "/lake/orders"), "DELETE", Position(1, 1)).path
        '/lake/orders'
        """
        if len(self.name) == 2 and self.name[0].lower() in _FILE_FORMATS and "/" in self.name[1]:
            return self.name[1]
        return None


@dataclass(frozen=True)
class Passthrough:
    """A statement for Spark, unchanged, with the tables and schemas it is aimed at."""

    text: str
    target_writes: tuple[TargetWrite, ...] = ()


Statement = (
    CreateStreamTable
    | AlterStreamTable
    | AlterStreamTables
    | DropStreamTable
    | RefreshStreamTable
    | ShowStreamTables
    | DescribeStreamTable
    | ShowRefreshHistory
    | ExplainStreamTable
    | ExplainCreate
    | CreateSource
    | DropSource
    | Passthrough
)
