"""Read the observable contents of a store and of a release log, field by field."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from panstream.core.registry import find_algorithm
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import InvalidBytes, PanstreamError
from panstream.primitives import codec
from panstream.primitives.container import STATE

_WIDTHS = {"u1": 1, "i4": 4, "i8": 8, "u8": 8}


def observe_store(directory: Path, label: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the metadata and of the public fields of the states in a store."""
    with SnapshotStore(directory) as store:
        parts = store.load() or {}
        yield f"{label}: commits", str(store.generation)
    yield f"{label}: parts", ", ".join(parts)
    for name, data in parts.items():
        if data.startswith(STATE):
            yield f"{label} {name}: size", str(len(data))
            yield from ((f"{label} {name}: {key}", value) for key, value in _state(data))
            continue
        try:
            yield from ((f"{label} {name}: {key}", value) for key, value in _flat(json.loads(data)))
        except ValueError:
            yield f"{label} {name}: bytes", _digest(data)


def observe_releases(path: Path, label: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the rows of a release log."""
    connection = sqlite3.connect(path)
    try:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
            yield f"{label} {table}: rows", str(len(rows))
            for index, row in enumerate(rows):
                yield f"{label} {table}: row {index}", json.dumps(row, default=_digest)
    finally:
        connection.close()


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield f"{path}: keys", ", ".join(map(str, value))
        for key, child in value.items():
            yield from _flat(child, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(child, dict | list) for child in value):
        yield f"{path}: length", str(len(value))
        for index, child in enumerate(value):
            yield from _flat(child, f"{path}[{index}]")
    else:
        yield path, json.dumps(value)


def _state(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the header and the public fields of a state; of noised fields the header has the shape."""
    header, body = codec.read_header(data, checked=False)
    yield from _flat({key: value for key, value in header.items() if key != "id"}, "header")
    roles = _roles(header)
    start = 0
    for name, kind, shape in header["fields"]:
        cells = int(np.prod(shape, dtype=np.int64)) if shape else 1
        size = 8 if kind == "int" else -(-cells // 8) if kind in ("bits", "packed") else cells * _WIDTHS[kind]
        if roles.get(name, "public") == "public":
            raw = body[start : start + size]
            yield f"field {name}", str(struct.unpack("<q", raw)[0]) if kind == "int" else raw.hex()
        start += size


def _roles(header: Mapping[str, Any]) -> dict[str, str | None]:
    try:
        state_fields = fields(find_algorithm(header["algorithm"]).state_type)
        return {field.name: codec.field_role(field) for field in state_fields}
    except (InvalidBytes, PanstreamError):
        return {}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
