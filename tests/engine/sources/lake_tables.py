"""Small Delta and Iceberg tables, written by hand as their specifications say."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq


def write_rows(path: Path, numbers: range, field_ids: Sequence[int] | None = None) -> None:
    """Write a Parquet file with the columns ip and n."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = {"ip": pa.string(), "n": pa.int64()}
    schema = pa.schema(
        [
            pa.field(name, kind, metadata=None if field_ids is None else {"PARQUET:field_id": str(field_ids[number])})
            for number, (name, kind) in enumerate(kinds.items())
        ]
    )
    pq.write_table(pa.table([[f"u{n}" for n in numbers], list(numbers)], schema=schema), path)


class DeltaTable:
    """A Delta table; every ``commit`` is a version."""

    def __init__(self, root: Path, *, partitioned: bool = False, reader: int = 1, **settings: str) -> None:
        self.root = root
        self.version = -1
        self._partitioned = partitioned
        (root / "_delta_log").mkdir(parents=True)
        protocol: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": 2}
        if reader > 2:
            protocol["readerFeatures"] = settings.pop("features").split(",")
        self.metadata = {
            "id": "a",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": "{}",
            "partitionColumns": ["day"] if partitioned else [],
            "configuration": settings,
        }
        self.live: dict[str, dict[str, Any]] = {}
        self.protocol = protocol
        self._write([{"protocol": protocol}, {"metaData": self.metadata}])

    def _write(self, actions: list[dict[str, Any]]) -> None:
        self.version += 1
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        (self.root / "_delta_log" / f"{self.version:020}.json").write_text(lines)

    def commit(self, added: dict[str, range], removed: Sequence[str] = (), **more: Any) -> None:
        """Add data files by name and rows, and remove others; the removed ones stay on disk."""
        actions: list[dict[str, Any]] = [{"remove": {"path": path, "dataChange": True}} for path in removed]
        for path in removed:
            self.live.pop(path)
        for path, numbers in added.items():
            name = path.replace("%25", "%")
            write_rows(self.root / name, numbers)
            values = {"day": name.split("/")[0].removeprefix("day=")} if self._partitioned else {}
            stats = json.dumps({"minValues": {"ip": "secret-in-stats"}})
            add = {"path": path, "partitionValues": values, "size": 1, "dataChange": True, "stats": stats, **more}
            self.live[path] = add
            actions.append({"add": add})
        self._write(actions)

    def checkpoint(self) -> None:
        """Write a checkpoint of the current version, and remove the commits before."""
        kind = pa.struct(
            [("path", pa.string()), ("partitionValues", pa.map_(pa.string(), pa.string())), ("stats", pa.string())]
        )
        adds = [
            {"path": add["path"], "partitionValues": list(add["partitionValues"].items()), "stats": add["stats"]}
            for add in self.live.values()
        ]
        rest: list[None] = [None] * len(adds)
        protocol = pa.struct([("minReaderVersion", pa.int32()), ("readerFeatures", pa.list_(pa.string()))])
        metadata = pa.struct(
            [("partitionColumns", pa.list_(pa.string())), ("configuration", pa.map_(pa.string(), pa.string()))]
        )
        settings = [
            {
                "partitionColumns": self.metadata["partitionColumns"],
                "configuration": list(self.metadata["configuration"].items()),  # type: ignore[attr-defined]
            }
        ]
        table = pa.table(
            {
                "add": pa.array([None, *adds], kind),
                "protocol": pa.array([self.protocol, *rest], protocol),
                "metaData": pa.array([*settings, *rest], metadata),
            }
        )
        log = self.root / "_delta_log"
        pq.write_table(table, log / f"{self.version:020}.checkpoint.parquet")
        for file in log.glob("*.json"):
            if int(file.name[:20]) <= self.version:
                file.unlink()


_DATA_FILE = {
    "type": "record",
    "name": "r2",
    "fields": [
        {"name": "content", "type": "int"},
        {"name": "file_path", "type": "string"},
        {"name": "file_format", "type": "string"},
        {"name": "record_count", "type": "long"},
    ],
}
_ENTRY = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [{"name": "status", "type": "int"}, {"name": "data_file", "type": _DATA_FILE}],
}
_MANIFEST = {
    "type": "record",
    "name": "manifest_file",
    "fields": [{"name": "manifest_path", "type": "string"}, {"name": "content", "type": "int"}],
}


class IcebergTable:
    """An Iceberg table of version 2; every ``commit`` is a snapshot of all of its files."""

    def __init__(self, root: Path, location: str | None = None) -> None:
        self.root = root
        self.location = location or f"file://{root}"
        self.snapshots: list[dict[str, Any]] = []
        self.files: dict[str, int] = {}  # with their content: data or deletes
        (root / "metadata").mkdir(parents=True)

    def commit(self, added: dict[str, range], *, removed: Sequence[str] = (), content: int = 0) -> None:
        """Add and remove files, and write manifest, manifest list and metadata."""
        number = len(self.snapshots) + 1
        for path in removed:
            self.files.pop(path)
        for path, numbers in added.items():
            write_rows(self.root / path, numbers, [1, 2])
            self.files[path] = content
        manifests = []
        for kind in sorted(set(self.files.values())):
            entries = [
                {
                    "status": 1,
                    "data_file": {
                        "content": kind,
                        "file_path": f"{self.location}/{path}",
                        "file_format": "PARQUET",
                        "record_count": 1,
                    },
                }
                for path, files_kind in self.files.items()
                if files_kind == kind
            ]
            deleted = [{"status": 2, "data_file": entries[0]["data_file"] | {"file_path": "gone"}}]  # type: ignore[operator]
            manifest = f"metadata/m{number}-{kind}.avro"
            self._avro(manifest, _ENTRY, entries + deleted)
            manifests.append({"manifest_path": f"{self.location}/{manifest}", "content": int(kind > 0)})
        listing = f"metadata/snap-{number}.avro"
        self._avro(listing, _MANIFEST, manifests)
        self.snapshots.append(
            {"snapshot-id": 7_000_000_000_000_000_000 + number, "manifest-list": f"{self.location}/{listing}"}
        )
        self.write_metadata(number)

    def write_metadata(self, number: int, suffix: str = "aaaa", version: int = 2) -> Path:
        """Write a metadata file."""
        fields = [
            {"id": 1, "name": "ip", "type": "string", "required": False},
            {"id": 2, "name": "n", "type": "long", "required": False},
        ]
        document = {
            "format-version": version,
            "location": self.location,
            "current-schema-id": 0,
            "schemas": [{"schema-id": 0, "fields": fields}],
            "current-snapshot-id": self.snapshots[-1]["snapshot-id"] if self.snapshots else -1,
            "snapshots": self.snapshots,
        }
        path = self.root / "metadata" / f"{number:05}-{suffix}.metadata.json"
        path.write_text(json.dumps(document))
        return path

    def _avro(self, path: str, schema: dict[str, Any], records: list[dict[str, Any]]) -> None:
        with (self.root / path).open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(schema), records, codec="deflate")
