"""A Delta table as a source: its identity, its version at a moment, and whether anything changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headrace.catalog import SourceVersion
from headrace.errors import HeadraceError
from headrace.sources.log import DeltaLog
from headrace.sql.names import TableName


@dataclass
class DeltaSource:
    """One source table; the handle is kept between refreshes so that a look at its version costs little."""

    name: TableName
    location: str

    def __post_init__(self) -> None:
        self.log = DeltaLog(self.location)
        self._identity: tuple[int, object, str] | None = None

    def version_at(self, moment: datetime) -> SourceVersion:
        """Give the last version committed at or before a moment, with the table's identity."""
        version = self.log.version_at(moment)
        if version is None:
            raise source_missing(self.name)
        return SourceVersion(version=version, table_id=self.table_id(version))

    def table_id(self, version: int) -> str:
        """Tell the table's identity; a table dropped and created anew has another."""
        if not self._identity_holds(version):
            self._identity = (version, self.log.stamp(version), self._read_table_id(version))
        assert self._identity is not None
        return self._identity[2]

    def changed(self, old: SourceVersion, new: SourceVersion) -> bool:
        """Tell whether rows may differ between two versions."""
        if old.table_id != new.table_id or new.version < old.version:
            return True
        commits = self.log.commits(old.version, new.version)
        return any(commit is None or commit.changes_data for commit in commits)

    def _identity_holds(self, version: int) -> bool:
        if self._identity is None:
            return False
        known, stamp, _ = self._identity
        if known > version or stamp is None or self.log.stamp(known) != stamp:
            return False
        commits = self.log.commits(known, version)
        return all(commit is not None and commit.metadata is None for commit in commits)

    def _read_table_id(self, version: int) -> str:
        for candidate in range(version, max(version - 20, -1), -1):
            commit = self.log.commit(candidate)
            if commit is None:
                break
            if commit.metadata is not None:
                return str(commit.metadata["id"])
        return self._read_table_id_from_snapshot()

    def _read_table_id_from_snapshot(self) -> str:
        try:
            return str(DeltaTable(self.location, without_files=True).metadata().id)
        except TableNotFoundError:
            raise source_missing(self.name) from None
        except DeltaError as error:
            raise HeadraceError(
                "source_unreadable",
                f"The Delta log of {self.name} cannot be read: {error}",
                hint="Check the table's files and that this process may read them.",
            ) from error


def source_missing(name: TableName) -> HeadraceError:
    return HeadraceError(
        "source_missing",
        f"The source table {name} is gone.",
        hint="Create it again, or change the query with ALTER STREAM TABLE … AS.",
    )
