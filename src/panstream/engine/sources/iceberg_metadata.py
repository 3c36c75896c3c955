"""The metadata of an Iceberg table, versions 1 and 2: from a metadata file to the data files of its snapshot.

The specification is https://iceberg.apache.org/spec/. Manifests have bounds of columns, which quote values of rows;
they are decoded with the rest and dropped.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from panstream.engine.sources.lake_tables import (
    ICEBERG_METADATA,
    InputPath,
    Snapshot,
    TableFile,
    no_file,
    read_bytes,
)
from panstream.errors import SourceError, import_optional

_NEWEST = 2  # format version
_DELETED = 2  # status of an entry in a manifest
_DATA = 0  # content of a manifest or file


def iceberg_snapshot(files: Mapping[str, InputPath], name: str, wanted: str | None) -> Snapshot:
    """Return the data files of a snapshot of an Iceberg table, the current one of its newest metadata by default."""
    damaged = False
    try:
        return _read(files, name, wanted)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, EOFError, OSError):
        damaged = True
    assert damaged
    raise SourceError(f"{name}: its Iceberg metadata is damaged or incomplete")


def _read(files: Mapping[str, InputPath], name: str, wanted: str | None) -> Snapshot:
    metadata = _metadata(files, name)
    if int(metadata["format-version"]) > _NEWEST:
        raise SourceError(f"{name}: Iceberg tables of version {metadata['format-version']} are not supported")
    current = metadata.get("current-snapshot-id")
    snapshot_id = current if wanted is None else int(wanted)
    if snapshot_id in (None, -1):
        return Snapshot(id="none", files=())
    snapshots = {int(entry["snapshot-id"]): entry for entry in metadata["snapshots"]}
    if snapshot_id not in snapshots:
        raise SourceError(f"{name}: snapshot {snapshot_id} is not in its metadata any more (it has expired)")
    snapshot = snapshots[snapshot_id]
    location = _plain(str(metadata["location"]))
    field_ids = _field_ids(metadata, snapshot)
    data: list[TableFile] = []
    for manifest in _manifests(snapshot, files, location, name):
        for entry in _avro(_bytes_of(str(manifest["manifest_path"]), files, location, name), name):
            described = entry["data_file"]
            if entry["status"] == _DELETED:
                continue
            if manifest.get("content", _DATA) != _DATA or described.get("content", _DATA) != _DATA:
                raise SourceError(
                    f"{name}: this Iceberg table has deleted rows (position or equality deletes), which are not "
                    "supported; rewrite_data_files with delete-file-threshold=1 applies them"
                )
            if str(described["file_format"]).upper() != "PARQUET":
                raise SourceError(f"{name}: only Iceberg tables of Parquet files are supported")
            relative = _relative(str(described["file_path"]), location, name)
            if relative not in files:
                raise no_file(name, relative)
            data.append(TableFile(path=files[relative], relative=relative, field_ids=field_ids))
    return Snapshot(id=str(snapshot_id), files=tuple(sorted(data, key=lambda file: file.relative)))


def _metadata(files: Mapping[str, InputPath], name: str) -> dict[str, Any]:
    numbered = [(int(match[1] or match[2]), path) for path in files if (match := ICEBERG_METADATA.fullmatch(path))]
    newest = max(number for number, _ in numbered)
    paths = [path for number, path in numbered if number == newest]
    if len(paths) > 1:
        raise SourceError(
            f"{name}: two metadata files have the number {newest}, and only its catalog knows which one counts: name "
            "that file, TABLE/metadata/....metadata.json, as the input"
        )
    data = read_bytes(files[paths[0]], name)
    document: dict[str, Any] = json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    return document


def _field_ids(metadata: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, int]:
    schemas = {int(schema.get("schema-id", 0)): schema for schema in metadata.get("schemas", ())}
    number = int(snapshot.get("schema-id", metadata.get("current-schema-id", 0)))
    schema = schemas[number] if schemas else metadata["schema"]
    return {str(column["name"]): int(column["id"]) for column in schema["fields"]}


def _manifests(
    snapshot: Mapping[str, Any], files: Mapping[str, InputPath], location: str, name: str
) -> Iterator[Mapping[str, Any]]:
    if "manifest-list" not in snapshot:  # in the oldest tables
        yield from ({"manifest_path": path} for path in snapshot["manifests"])
        return
    yield from _avro(_bytes_of(str(snapshot["manifest-list"]), files, location, name), name)


def _bytes_of(address: str, files: Mapping[str, InputPath], location: str, name: str) -> bytes:
    relative = _relative(address, location, name)
    if relative not in files:
        raise no_file(name, relative)
    return read_bytes(files[relative], name)


def _avro(data: bytes, name: str) -> Iterator[dict[str, Any]]:
    fastavro = import_optional("fastavro", f"reading the Iceberg table {name}", "iceberg")
    yield from fastavro.reader(io.BytesIO(data))


def _plain(address: str) -> str:
    """Return an address without its scheme: the same table may be written by s3a:// and read by s3://."""
    parts = urlsplit(address)
    return f"{parts.netloc}{parts.path}".rstrip("/") if parts.scheme else address.rstrip("/")


def _relative(address: str, location: str, name: str) -> str:
    plain = _plain(address)
    if not plain.startswith(f"{location}/"):
        raise SourceError(f"{name}: this Iceberg table refers to files outside its location; they cannot be read")
    return plain.removeprefix(f"{location}/")
