"""State to bytes and back: magic, versions, name, public parameters, declared fields, checksum. No pickle.

A :mod:`container <panstream.primitives.container>` whose header has the public parameters, the fields' shapes, the
state's id and its number of publications. Arrays of bits are packed eight to a byte, without a gap between rows; all
else is little-endian.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes
from panstream.primitives.container import STATE, read_container, to_pieces

FORMAT = 1
_ID = 16
_DTYPES = {"bits": np.uint8, "packed": np.uint8, "u1": np.uint8, "i4": np.int32, "i8": np.int64, "u8": np.uint64}

Role = Literal["public", "published", "noised", "noise"]
Identity = tuple[bytes, int]  # a state's id, and its number of publications


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """Constraints on a state field: element kind, shape (None where it may vary), and an exclusive upper bound.

    ``kind`` is "int" for a Python integer, "bits" for bytes 0 and 1, "packed" for rows of bits that memory holds eight
    to a byte (the shape counts bits; files are the same as for "bits"), or "u1", "i4", "i8", "u8".

    Args:
        kind: Kind of the elements.
        shape: Length of each axis; None where it may vary.
        below: Exclusive upper bound of the elements.
        at_least: Lower bound of the elements.
    """

    kind: str
    shape: tuple[int | None, ...] = ()
    below: int | None = None
    at_least: int | None = None


def public(**options: Any) -> Any:
    """Declare a state field that depends on calls and public parameters only.

    Args:
        options: Settings of ``dataclasses.field``.
    """
    return _declare("public", options)


def published(**options: Any) -> Any:
    """Declare a state field that is computed from published answers, or that an announced intrusion revealed.

    Args:
        options: Settings of ``dataclasses.field``.
    """
    return _declare("published", options)


def noised(**options: Any) -> Any:
    """Declare a state field whose distribution the privacy proof covers.

    Args:
        options: Settings of ``dataclasses.field``.
    """
    return _declare("noised", options)


def noise(**options: Any) -> Any:
    """Declare noise that is stored on purpose and that the proof counts as known to an attacker.

    Args:
        options: Settings of ``dataclasses.field``.
    """
    return _declare("noise", options)


def _declare(role: Role, options: dict[str, Any]) -> Any:
    default = options.pop("default", MISSING)
    return field(default=default, metadata={"role": role}, **options)


def field_role(declared: Field[Any]) -> Role | None:
    """Return how a state field was declared, or ``None`` if it was not."""
    role: Role | None = declared.metadata.get("role")
    return role


def encode(
    name: str,
    parameters: Mapping[str, Any] | str,
    state: Any,
    layout: Mapping[str, FieldLayout],
    *,
    identity: Identity | None = None,
    checksum: bool = True,
) -> bytes:
    """Return the bytes of a state with its public parameters, which may also be the text that ``to_json`` returned.

    ``identity`` is for states that can release. Without ``checksum`` zeros replace the checksum, for containers that
    authenticate their contents.
    """
    table: list[tuple[str, str, tuple[int, ...]]] = []
    payload: list[Any] = []
    for declared in fields(state):
        value = getattr(state, declared.name)
        expected = layout[declared.name]
        if expected.kind == "int":
            payload.append(struct.pack("<q", value))
            table.append((declared.name, "int", ()))
            continue
        array = np.ascontiguousarray(value, _DTYPES[expected.kind])
        raw, shape = _raw(array, expected)
        payload.append(np.ascontiguousarray(raw).reshape(-1).view(np.uint8).data)
        table.append((declared.name, _file_kind(expected), tuple(shape)))
    header = _header(name, parameters if isinstance(parameters, str) else to_json(parameters), tuple(table), identity)
    return b"".join(to_pieces(STATE, header, payload, checksum=checksum))


def to_json(parameters: Mapping[str, Any]) -> str:
    """Return public parameters as JSON, as the header of a state contains them."""
    return _dumps(_to_jsonable(parameters))


def _header(name: str, parameters: str, table: tuple[Any, ...], identity: Identity | None) -> bytes:
    """Return JSON with sorted keys; parts that are the same for all states of an algorithm are cached."""
    id_text = "" if identity is None else f'"id":"{identity[0].hex()}",'
    end = "" if identity is None else f',"published":"{identity[1]:016x}"'
    return f'{_header_start(name, table)}{id_text}"parameters":{parameters}{end}}}'.encode()


@lru_cache(maxsize=256)
def _header_start(name: str, table: tuple[Any, ...]) -> str:
    return f'{{"algorithm":{_dumps(name)},"fields":{_dumps(table)},"format":{FORMAT},'


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def read_header(data: bytes, *, checked: bool = True) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the unparsed bytes of the fields; ``checked`` compares the checksum."""
    header, body = read_container(data, STATE, checksum=checked, constants=True)
    version = header.get("format")
    if version != FORMAT:
        raise InvalidBytes(f"format version {version!r} is not known; this release reads version {FORMAT}")
    if not isinstance(header.get("algorithm"), str) or not isinstance(header.get("parameters"), dict):
        raise InvalidBytes("the header names no algorithm")
    header["parameters"] = {key: _from_jsonable(value) for key, value in header["parameters"].items()}
    return header, body


def read_identity(header: Mapping[str, Any]) -> Identity:
    """Return the id of a state and its number of publications."""
    try:
        name = bytes.fromhex(header["id"])
        published = int(header["published"], 16)
    except (KeyError, TypeError, ValueError):
        name = b""
        published = 0
    if len(name) != _ID or not 0 <= published < 1 << 62:
        raise InvalidBytes("the header does not say which state this is")
    return name, published


def decode(data: bytes, state_type: type[Any], layout: Mapping[str, FieldLayout], *, checked: bool = True) -> Any:
    """Read a state of ``state_type``; raise InvalidBytes unless its fields match ``layout`` exactly."""
    header, body = read_header(data, checked=checked)
    names = [declared.name for declared in fields(state_type)]
    table = header.get("fields")
    if not isinstance(table, list) or [row[0] if isinstance(row, list) and row else None for row in table] != names:
        raise InvalidBytes("the fields are not those of this algorithm's state")
    values: dict[str, Any] = {}
    pos = 0
    for row in table:
        values[row[0]], pos = _read_field(body, pos, row, layout[row[0]])
    if pos != len(body):
        raise InvalidBytes("there are more bytes than the fields account for")
    return state_type(**values)


def _read_field(body: memoryview, pos: int, row: list[Any], expected: FieldLayout) -> tuple[Any, int]:
    if len(row) != 3 or row[1] != _file_kind(expected) or not _fits(row[2], expected.shape):
        raise InvalidBytes(f"field {row[0]} does not have the shape that the parameters ask for")
    if expected.kind == "int":
        if pos + 8 > len(body):
            raise InvalidBytes(f"field {row[0]} is cut short")
        (number,) = struct.unpack_from("<q", body, pos)
        _check_range(row[0], number, number, expected)
        return number, pos + 8
    count = int(np.prod(row[2], dtype=object)) if row[2] else 1
    item = np.dtype(_DTYPES[expected.kind])
    size = (count + 7) // 8 if row[1] == "bits" else count * item.itemsize
    if pos + size > len(body):
        raise InvalidBytes(f"field {row[0]} is cut short")
    raw = np.frombuffer(body, np.uint8, size, pos)
    if expected.kind == "packed":
        return _rows_of(raw, row), pos + size
    if expected.kind == "bits":
        array: NDArray[Any] = np.unpackbits(raw, count=count, bitorder="little")
    else:
        array = raw.view(item.newbyteorder("<")).astype(item)
    if array.size:
        _check_range(row[0], int(array.min()), int(array.max()), expected)
    return array.reshape(row[2]), pos + size


def _file_kind(expected: FieldLayout) -> str:
    return "bits" if expected.kind == "packed" else expected.kind


def _raw(array: NDArray[Any], expected: FieldLayout) -> tuple[NDArray[Any], list[int]]:
    """Return an array in the layout of files, and its shape."""
    if expected.kind == "bits":
        return np.packbits(array.ravel(), bitorder="little"), list(array.shape)
    if expected.kind != "packed":
        return _little_endian(array), list(array.shape)
    width = expected.shape[-1]
    assert width is not None
    if width % 8 and array.ndim > 1:  # rows end within a byte
        cells = np.unpackbits(array, axis=-1, count=width, bitorder="little")
        return np.packbits(cells.ravel(), bitorder="little"), list(cells.shape)
    return array, [*array.shape[:-1], width]


def _rows_of(raw: NDArray[np.uint8], row: list[Any]) -> NDArray[np.uint8]:
    """Return rows of packed bits in the layout of memory: every row starts at a byte."""
    *rows, width = row[2]
    if width % 8 and rows:
        cells = np.unpackbits(raw, count=int(np.prod(row[2], dtype=object)), bitorder="little")
        return np.packbits(cells.reshape(row[2]), axis=-1, bitorder="little")
    if width % 8 and raw[-1] >> width % 8:
        raise InvalidBytes(f"field {row[0]} holds a value outside its range")
    return raw.reshape(*rows, -(-width // 8)).copy()


def _check_range(name: str, low: int, high: int, expected: FieldLayout) -> None:
    if (expected.below is not None and high >= expected.below) or (
        expected.at_least is not None and low < expected.at_least
    ):
        raise InvalidBytes(f"field {name} holds a value outside its range")


def _fits(shape: Any, expected: tuple[int | None, ...]) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) == len(expected)
        and all(isinstance(size, int) and size >= 0 for size in shape)
        and all(want is None or size == want for size, want in zip(shape, expected, strict=True))
    )


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    if sys.byteorder == "little":  # arrays in memory are native
        return array
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


_SCALARS = frozenset({bool, int, float, str})


def _to_jsonable(value: Any) -> Any:
    """Return JSON values; bytes become an object of their own, so that they are decoded as bytes."""
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {key: _to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_jsonable(item) for item in value]
    return value


def _from_jsonable(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"bytes"}:
        return base64.b64decode(value["bytes"])
    if isinstance(value, list):
        return tuple(_from_jsonable(item) for item in value)
    return value
