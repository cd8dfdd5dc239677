"""Table names: resolved at creation, stored qualified, quoted only when rendered."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import HeadraceError, Position

SESSION_CATALOG = "spark_catalog"
# Spark's session catalog accepts no other characters in the names of tables and schemas.
_VALID_PART = re.compile(r"[A-Za-z0-9_]+\Z")


def quote(identifier: str) -> str:
    """Quote one identifier for Spark SQL.

    >>> quote("odd `name`")
    '`odd ``name```'
    """
    return "`" + identifier.replace("`", "``") + "`"


@dataclass(frozen=True, order=True)
class TableName:
    """A fully qualified table name; Spark's session catalog folds the case of names, and so do we.

    >>> str(TableName("shop", "Orders"))
    'shop.orders'
    >>> TableName("shop", "orders").sql
    '`shop`.`orders`'
    """

    schema: str
    table: str
    catalog: str = SESSION_CATALOG

    def __post_init__(self) -> None:
        for field in ("schema", "table", "catalog"):
            object.__setattr__(self, field, getattr(self, field).lower())

    @property
    def parts(self) -> tuple[str, ...]:
        if self.catalog == SESSION_CATALOG:
            return (self.schema, self.table)
        return (self.catalog, self.schema, self.table)

    @property
    def sql(self) -> str:
        return ".".join(quote(part) for part in self.parts)

    def __str__(self) -> str:
        return ".".join(self.parts)

    @classmethod
    def of(cls, parts: tuple[str, ...], current_schema: str = "default") -> TableName:
        """Qualify one to three parts.

        >>> str(TableName.of(("orders",), "shop"))
        'shop.orders'
        """
        match parts:
            case (table,):
                return cls(current_schema, table)
            case (schema, table):
                return cls(schema, table)
            case (catalog, schema, table):
                return cls(schema, table, catalog)
        raise HeadraceError(
            "invalid_name",
            f"{'.'.join(parts)!r} is not a table name: it has {len(parts)} parts.",
            hint="Write table, schema.table or catalog.schema.table.",
        )


def split_name(text: str, *, position: Position | None = None) -> tuple[str, ...]:
    """Split a dotted name into its parts, honouring backquotes.

    >>> split_name("shop.`order lines`")
    ('shop', 'order lines')
    """
    parts = re.findall(r"`((?:[^`]|``)*)`|([^`.\s]+)", text.strip())
    pieces = [bare or quoted.replace("``", "`") for quoted, bare in parts]
    rebuilt = r"\s*\.\s*".join(
        re.escape(quote(piece)) if not bare else re.escape(bare)
        for piece, (_, bare) in zip(pieces, parts, strict=True)
    )
    if not pieces or not all(pieces) or not re.fullmatch(rebuilt, text.strip()):
        raise HeadraceError(
            "invalid_name",
            f"{text!r} is not a table name.",
            hint="Write table or schema.table; quote a part with backquotes: `part`.",
            position=position,
        )
    return tuple(pieces)


def parse_name(text: str, current_schema: str = "default") -> TableName:
    """Read a dotted, possibly quoted name and qualify it.

    >>> str(parse_name("`Orders`", "shop"))
    'shop.orders'
    """
    return TableName.of(split_name(text), current_schema)


def require_valid_name(name: TableName, *, position: Position | None = None) -> None:
    """Refuse a name that Spark's session catalog could not hold."""
    for part in name.parts:
        if not _VALID_PART.match(part):
            raise HeadraceError(
                "invalid_name",
                f"{part!r} cannot name a stream table: Spark accepts letters, digits and _ only.",
                hint="Choose a name of ASCII letters, digits and underscores.",
                position=position,
            )
