"""What is left on disk, field by field: file sizes, metadata, the public fields of states, and the log of releases."""

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

from panstream import codec
from panstream.algorithm import find
from panstream.errors import InvalidBytes, PanstreamError
from panstream.store.snapshot import SnapshotStore

__all__ = ["Fields", "observe_directory", "observe_text"]

Fields = dict[str, str]

_WIDTHS = {"u1": 1, "i4": 4, "i8": 8, "u8": 8}


def observe_directory(directory: Path, name: str = "store") -> Fields:
    """Return everything that a thief of the directory sees, apart from noised numbers."""
    found: Fields = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            place = f"{name}/{path.relative_to(directory).as_posix()}"
            found[f"{place}: size"] = str(path.stat().st_size)
            if path.name == "state.sealed":
                found |= dict(_sealed(path.parent, place))
            elif path.suffix == ".sqlite":
                found |= dict(_releases(path, place))
    return found


def observe_text(name: str, text: str) -> Fields:
    """Return printed lines as fields of their own."""
    lines = text.splitlines()
    return {f"{name}: lines": str(len(lines)), **{f"{name}: line {at}": line for at, line in enumerate(lines, 1)}}


def _sealed(directory: Path, place: str) -> Iterator[tuple[str, str]]:
    with SnapshotStore(directory) as store:
        parts = store.load() or {}
        yield f"{place}: commits", str(store.generation)
    yield f"{place}: parts", ", ".join(parts)
    for name, data in parts.items():
        if data.startswith(b"PANSTRM"):
            yield f"{place} {name}: size", str(len(data))
            yield from ((f"{place} {name}: {key}", value) for key, value in _state(data))
            continue
        try:
            yield from ((f"{place} {name}: {key}", value) for key, value in _flat(json.loads(data)))
        except ValueError:
            yield f"{place} {name}: bytes", hashlib.sha256(data).hexdigest()


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield f"{path}: keys", ", ".join(map(str, value))
        for key, each in value.items():
            yield from _flat(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        yield f"{path}: length", str(len(value))
        for at, each in enumerate(value):
            yield from _flat(each, f"{path}[{at}]")
    else:
        yield path, json.dumps(value)


def _state(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the header and the public fields of a state; of noised ones only the shape, which the header has."""
    header, start = codec.read_header(data, checked=False)
    yield from _flat({key: value for key, value in header.items() if key != "id"}, "header")
    roles = _roles(header)
    for name, kind, shape in header["fields"]:
        cells = int(np.prod(shape, dtype=np.int64)) if shape else 1
        size = 8 if kind == "int" else -(-cells // 8) if kind in ("bits", "packed") else cells * _WIDTHS[kind]
        if roles.get(name, "public") == "public":
            raw = data[start : start + size]
            yield f"field {name}", str(struct.unpack("<q", raw)[0]) if kind == "int" else raw.hex()
        start += size


def _roles(header: Mapping[str, Any]) -> dict[str, str | None]:
    try:
        return {each.name: codec.role_of(each) for each in fields(find(header["algorithm"]).state_type)}
    except (InvalidBytes, PanstreamError):
        return {}


def _releases(path: Path, place: str) -> Iterator[tuple[str, str]]:
    connection = sqlite3.connect(path)
    try:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
            yield f"{place} {table}: rows", str(len(rows))
            for at, row in enumerate(rows):
                yield f"{place} {table}: row {at}", json.dumps(row)
    finally:
        connection.close()
