"""Which commits' change files may stand for what the commits did to some columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.sources.log import Commit
from headrace.sources.state import Field, TableState, fields_of

_EXACT_ENGINES = ("Apache-Spark", "Databricks-Runtime")
_EXACT_BY_DELTA_RS = ("MERGE", "DELETE")


def has_exact_feed(commit: Commit) -> bool:
    """Tell whether a commit's change files come from a writer that is known to write them right.

    delta-rs leaves out rows of an UPDATE that become equal to others, and Trino has left out the old rows of
    tables with deletion vectors: what such writers did is read from the data files.
    """
    engine = str(commit.info.get("engineInfo", ""))
    if engine.startswith("delta-rs"):
        return commit.operation in _EXACT_BY_DELTA_RS
    return engine.startswith(_EXACT_ENGINES)


def usable_feeds(
    before: TableState | None, after: TableState, commits: Sequence[Commit], fields: Sequence[Field]
) -> frozenset[int]:
    """List the versions whose change files hold columns as the newest version knows them.

    A column that was dropped is not in change files written meanwhile, though the data files of before still
    hold it when RESTORE brings it back: the two cannot be added up.
    """
    state = before
    if state is None and not any(commit.metadata for commit in commits):
        state = after
    wanted, usable = [_stored_as(field) for field in fields], set[int]()
    fits = state is not None and _fits(state, fields, wanted)
    for commit in commits:
        if commit.metadata is not None:
            fits = _fits(after.after(commit), fields, wanted)
        if fits and commit.change_files and has_exact_feed(commit):
            usable.add(commit.version)
    return frozenset(usable)


def _fits(state: TableState, fields: Sequence[Field], wanted: Sequence[Any]) -> bool:
    found = [state.field(field.name) for field in fields]
    return [_stored_as(one) if one is not None else None for one in found] == wanted


def _stored_as(field: Field) -> tuple[str, Any]:
    """Give what files know of a column: physical names and types.

    >>> _stored_as(Field("a", "long", {"comment": "x"}))
    ('a', 'long')
    """
    return field.physical, _stored_type(field.type)


def _stored_type(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return tuple(_stored_as(one) for one in fields_of(kind))
    parts = ("elementType", "keyType", "valueType")
    return kind["type"], *(_stored_type(kind[part]) for part in parts if part in kind)
