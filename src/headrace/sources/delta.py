"""A Delta table as a source: its identity, its version at a moment, and whether anything changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headrace.catalog import SourceVersion
from headrace.errors import HeadraceError
from headrace.sources.log import DeltaLog
from headrace.sources.state import StateReader, TableState
from headrace.sql.names import TableName


@dataclass
class DeltaSource:
    """One source table; the handle is kept between refreshes so that a look at its version costs little."""

    name: TableName
    location: str

    def __post_init__(self) -> None:
        self.log = DeltaLog(self.location)
        self._states = StateReader(self.log)

    def version_at(self, moment: datetime) -> SourceVersion:
        """Give the last version committed at or before a moment, with the table's identity."""
        version = self.log.version_at(moment)
        if version is None:
            raise source_missing(self.name)
        commit = self.log.commit(version)
        digest = commit.digest if commit is not None else None
        return SourceVersion(version, self.table_id(version), digest)

    def state_or_none(self, version: int) -> TableState | None:
        """Give the state at a version, or None where the log no longer tells it."""
        try:
            return self._states.at(version)
        except (OSError, ValueError, KeyError) as error:
            raise source_unreadable(self.name, str(error)) from error

    def state(self, version: int) -> TableState:
        """Give schema, properties and features as of a version."""
        found = self.state_or_none(version)
        if found is None:
            if self.log.newest_version() is None:
                raise source_missing(self.name)
            raise source_unreadable(self.name, f"version {version} is no longer in it.")
        return found

    def table_id(self, version: int) -> str:
        """Tell the table's identity; a table dropped and created anew has another."""
        return self.state(version).table_id

    def changed(self, old: SourceVersion, new: SourceVersion) -> bool:
        """Tell whether rows may differ between two versions."""
        if old.table_id != new.table_id or new.version < old.version or self.is_other(old):
            return True
        commits = self.log.commits(old.version, new.version)
        return any(commit is None or commit.changes_data for commit in commits)

    def is_other(self, read: SourceVersion) -> bool:
        """Tell whether a version that was read is another one by now, as where a copy took its place."""
        commit = self.log.commit(read.version) if read.commit is not None else None
        return commit is not None and commit.digest != read.commit

    def redescribed(self, old: SourceVersion, new: SourceVersion) -> bool:
        """Tell whether columns may differ between two versions, though no row was written."""
        commits = self.log.commits(old.version, new.version)
        return any(commit is not None and commit.metadata is not None for commit in commits)


def source_missing(name: TableName) -> HeadraceError:
    return HeadraceError(
        "source_missing",
        f"The source table {name} is gone.",
        hint="Create it again, or change the query with ALTER STREAM TABLE … AS.",
    )


def source_unreadable(name: TableName, reason: str) -> HeadraceError:
    return HeadraceError(
        "source_unreadable",
        f"The table {name} or its Delta log cannot be read: {reason}",
        hint="Check the table's files and that this process may read them.",
    )
