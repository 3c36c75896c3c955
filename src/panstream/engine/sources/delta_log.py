"""The log of a Delta table: checkpoints and commits, replayed up to a version.

The protocol is https://github.com/delta-io/delta/blob/master/PROTOCOL.md. Statistics in the log quote values of rows;
of checkpoints they are not read, and the text of commits is dropped once it is parsed.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from panstream.engine.arrow import pa
from panstream.engine.sources.lake_tables import InputPath, Snapshot, TableFile, no_file, read_bytes
from panstream.errors import SourceError

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_FEATURES = {"timestampNtz", "vacuumProtocolCheck", "deletionVectors", "columnMapping"}  # the last two only if unused
_NEWEST_READER = 3
_COLUMNS = [
    *(f"add.{name}" for name in ("path", "partitionValues", "deletionVector")),
    *(f"metaData.{name}" for name in ("configuration", "partitionColumns", "format")),
    *(f"protocol.{name}" for name in ("minReaderVersion", "readerFeatures")),
]


def delta_snapshot(files: Mapping[str, InputPath], name: str, wanted: str | None) -> Snapshot:
    """Return the data files of a version of a Delta table, the newest by default."""
    commits = {int(match[1]): path for path in files if (match := _COMMIT.fullmatch(path))}
    checkpoints = _complete_checkpoints(files)
    newest = max([*commits, *checkpoints], default=None)
    if newest is None:
        raise SourceError(f"{name}: its _delta_log has no versions")
    version = newest if wanted is None else int(wanted)
    start = max((number for number in checkpoints if number <= version), default=-1)
    needed = range(start + 1, version + 1)
    if start < 0 and not commits:
        raise SourceError(f"{name}: its _delta_log has no versions")
    state = _Replay(name)
    try:
        for path in checkpoints.get(start, ()):
            state.apply(_checkpoint_actions(read_bytes(files[path], name)))
        for number in needed:
            if number not in commits:
                raise SourceError(f"{name}: version {number} of its _delta_log is missing")
            state.apply(_commit_actions(read_bytes(files[commits[number]], name)))
    except (ValueError, TypeError, AttributeError, KeyError, pa.ArrowException):
        state.is_damaged = True
    return state.snapshot(version, files)


def _complete_checkpoints(files: Iterable[str]) -> dict[int, list[str]]:
    parts: dict[tuple[int, int], list[str]] = {}
    for path in sorted(files):
        if match := _CHECKPOINT.fullmatch(path):
            parts.setdefault((int(match[1]), int(match[3] or 1)), []).append(path)
    return {version: paths for (version, count), paths in parts.items() if len(paths) == count}


def _checkpoint_actions(data: bytes) -> Iterator[dict[str, Any]]:
    from pyarrow import parquet

    file = parquet.ParquetFile(io.BytesIO(data))
    leaves = [file.schema.column(number).path for number in range(len(file.schema))]
    columns = [path for path in leaves if any(path == name or path.startswith(f"{name}.") for name in _COLUMNS)]
    yield from file.read(columns=columns, use_threads=False).to_pylist()


def _commit_actions(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        if line.strip():
            yield json.loads(line)


class _Replay:
    """The state of a table's log, action by action."""

    def __init__(self, name: str) -> None:
        self.is_damaged = False
        self._name = name
        self._protocol: dict[str, Any] | None = None
        self._metadata: dict[str, Any] | None = None
        self._files: dict[str, tuple[dict[str, str | None], bool]] = {}  # partition values, whether rows are deleted

    def apply(self, actions: Iterable[dict[str, Any]]) -> None:
        """Apply the actions of one commit or checkpoint: within one, a file may be removed and added again."""
        added: dict[str, tuple[dict[str, str | None], bool]] = {}
        for action in actions:
            if protocol := action.get("protocol"):
                self._protocol = protocol
            if metadata := action.get("metaData"):
                self._metadata = metadata
            if removed := action.get("remove"):
                self._files.pop(unquote(removed["path"]), None)
            if file := action.get("add"):
                vector = file.get("deletionVector")
                is_cut = vector is not None and any(value is not None for value in vector.values())
                added[unquote(file["path"])] = dict(file.get("partitionValues") or {}), is_cut
        self._files |= added

    def snapshot(self, version: int, files: Mapping[str, InputPath]) -> Snapshot:
        """Return the snapshot, or raise SourceError for what cannot be read as whole files with named columns."""
        name = self._name
        if self.is_damaged or self._protocol is None or self._metadata is None:
            raise SourceError(f"{name}: its _delta_log is damaged or incomplete")
        reader = int(self._protocol["minReaderVersion"])
        unknown = set(self._protocol.get("readerFeatures") or ()) - _FEATURES
        if reader > _NEWEST_READER or unknown:
            what = ", ".join(sorted(map(str, unknown))) or f"reader version {reader}"
            raise SourceError(f"{name}: this Delta table needs features that are not supported: {what[:200]}")
        settings = dict(self._metadata.get("configuration") or {})
        if settings.get("delta.columnMapping.mode", "none") != "none":
            raise SourceError(f"{name}: this Delta table has renamed columns (column mapping), which are not supported")
        if any(is_cut for _, is_cut in self._files.values()):
            raise SourceError(
                f"{name}: this Delta table has files with deleted rows (deletion vectors), which are not supported; "
                "REORG TABLE ... APPLY (PURGE) rewrites them"
            )
        columns = list(self._metadata.get("partitionColumns") or ())
        snapshot_files = []
        for relative, (values, _) in sorted(self._files.items()):
            if "://" in relative or relative.startswith("/"):
                raise SourceError(f"{name}: this Delta table refers to files elsewhere (a clone); read the original")
            if relative not in files:
                raise no_file(name, relative)
            constants = {column: values.get(column) or None for column in columns}  # "" is NULL
            snapshot_files.append(TableFile(path=files[relative], relative=relative, values=constants))
        return Snapshot(id=str(version), files=tuple(snapshot_files))
