"""Delta and Iceberg tables: the data files of one snapshot, by the table's own log.

Reading a table's directory as plain Parquet would count rows that were deleted or rewritten. A snapshot that does not
consist of whole data files, because rows in them are marked as deleted, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from panstream.engine.sources.object_stores import RemoteFile
from panstream.errors import SourceError

InputPath: TypeAlias = Path | RemoteFile
TableKind: TypeAlias = Literal["Delta", "Iceberg"]

DELTA_LOG = "_delta_log/"
ICEBERG_METADATA = re.compile(r"metadata/(?:v(\d+)|(\d+)-[^/]*)\.(?:gz\.)?metadata\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A data file of a snapshot.

    Attributes:
        path: The file.
        relative: Its path below the table.
        values: Partition columns that the table's log says and the file need not have, as text; None is NULL.
        field_ids: The ids that the columns must have in the file; empty if columns are known by name.
    """

    path: InputPath
    relative: str
    values: Mapping[str, str | None] = field(default_factory=dict)
    field_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One state of a table: its id, a public number of the table's log, and its data files in the order of the log."""

    id: str
    files: tuple[TableFile, ...]


def table_kind(files: Mapping[str, InputPath]) -> TableKind | None:
    """Return which kind of table the files below a directory are, by their relative paths; None for plain files."""
    if any(relative.startswith(DELTA_LOG) for relative in files):
        return "Delta"
    return "Iceberg" if any(ICEBERG_METADATA.fullmatch(relative) for relative in files) else None


def read_snapshot(kind: TableKind, files: Mapping[str, InputPath], name: str, wanted: str | None = None) -> Snapshot:
    """Return a snapshot of a table.

    Args:
        kind: Delta or Iceberg.
        files: All files below the table's directory, by their relative paths.
        name: What messages call the table.
        wanted: The id of the snapshot; the newest by default.

    Raises:
        SourceError: The table's log is damaged, or the snapshot has deletions or features that are not supported.
    """
    from panstream.engine.sources.delta_log import delta_snapshot
    from panstream.engine.sources.iceberg_metadata import iceberg_snapshot

    if kind == "Delta":
        return delta_snapshot(files, name, wanted)
    return iceberg_snapshot(files, name, wanted)


def read_bytes(path: InputPath, label: str) -> bytes:
    """Return the contents of a small file of a table's log."""
    try:
        with path.open("rb", buffering=0) if isinstance(path, Path) else path.open() as file:
            return bytes(file.readall() or b"")
    except OSError:
        pass
    raise SourceError(f"{label}: {path.name} could not be read")


def no_file(label: str, relative: str) -> SourceError:
    """Return the error for a data file that the log names and the directory lacks."""
    return SourceError(
        f"{label}: {relative.rpartition('/')[2]} belongs to the snapshot but is not there: were old files removed "
        "(VACUUM, expire_snapshots) before they were counted?"
    )
