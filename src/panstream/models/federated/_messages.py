"""Encode and decode messages: a kind, JSON fields and raw arrays in a container, size-limited, decoded strictly.

The header has kind, fields and arrays = [[name, type, shape], ...]; the arrays follow it as little-endian values, one
after the other. Equal messages have equal bytes on every platform, so the digest of a question identifies it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar, Self, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes, InvalidParameter
from panstream.primitives.container import MAX_MESSAGE_HEADER, MESSAGE, read_container, to_pieces

LARGEST_MESSAGE = 1 << 28
_TYPES: dict[str, np.dtype[Any]] = {"<i8": np.dtype("<i8"), "<f8": np.dtype("<f8"), "<u2": np.dtype("<u2")}
_MAX_DIMENSIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A kind, plain JSON fields and named arrays.

    >>> data = Message(kind="hello", fields={"run": "a"}, arrays={"x": np.arange(3)}).encode()
    >>> Message.decode(data).arrays["x"].tolist()
    [0, 1, 2]
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def encode(self, limit: int = LARGEST_MESSAGE) -> bytes:
        """Return the bytes of the message; raise InvalidParameter above ``limit`` bytes or for another array type."""
        layout = []
        body = []
        for name, array in self.arrays.items():
            kind = array.dtype.newbyteorder("<").str
            if kind not in _TYPES:
                raise InvalidParameter(f"array {name!r} must be of int64, float64 or uint16, got {array.dtype}")
            layout.append([name, kind, list(array.shape)])
            body.append(np.ascontiguousarray(array, _TYPES[kind]).tobytes())
        content = {"kind": self.kind, "fields": dict(self.fields), "arrays": layout}
        header = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        data = b"".join(to_pieces(MESSAGE, header, body))
        if len(data) > limit or len(header) > MAX_MESSAGE_HEADER:
            raise InvalidParameter(f"a message must have at most {limit} bytes")
        return data

    @classmethod
    def decode(cls, data: bytes, limit: int = LARGEST_MESSAGE) -> Message:
        """Read a message; raise InvalidBytes for anything that `encode` would not have written."""
        if len(data) > limit:
            raise InvalidBytes(f"a message must have at most {limit} bytes")
        header, body = read_container(data, MESSAGE, max_header=MAX_MESSAGE_HEADER)
        _check_header(header)
        arrays: dict[str, NDArray[Any]] = {}
        end = 0
        for name, kind, shape in header["arrays"]:
            size = math.prod(shape) * _TYPES[kind].itemsize
            if end + size > len(body):
                raise InvalidBytes("an array of the message is cut short")
            arrays[name] = np.frombuffer(body[end : end + size], _TYPES[kind]).reshape(shape)
            end += size
        if end != len(body):
            raise InvalidBytes("the message has bytes that belong to no array")
        return cls(kind=header["kind"], fields=header["fields"], arrays=arrays)


class MessageBody:
    """The content of a message: a dataclass whose field types say how each field is decoded and encoded.

    The types are ``Annotated[type, read]`` or ``Annotated[type, read, write]``, named at module level. ``read`` turns a
    JSON value or an array into the field's value or raises TypeError; ``write`` is its inverse (default: identity).
    """

    __slots__ = ()

    kind: ClassVar[str]

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Decode exactly these fields; raise TypeError if one is missing, unknown or of a wrong type."""
        forms = cls._forms()
        if values.keys() != forms.keys():
            raise TypeError
        return cls(**{name: read(values[name]) for name, (read, *_) in forms.items()})

    def fields(self) -> dict[str, Any]:
        """Return the encoded fields by name."""
        forms = self._forms().items()
        return {name: write[0](getattr(self, name)) if write else getattr(self, name) for name, (_, *write) in forms}

    @classmethod
    @cache
    def _forms(cls) -> dict[str, tuple[Any, ...]]:
        hints = get_type_hints(cls, include_extras=True)
        return {name: hint.__metadata__ for name, hint in hints.items() if get_origin(hint) is Annotated}


def one_of(allowed: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return a reader that passes allowed values through and raises TypeError for others."""

    def read(value: Any) -> Any:
        if not allowed(value):
            raise TypeError
        return value

    return read


def list_of(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a reader of lists that applies ``read`` to every entry."""

    def read_all(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list):
            raise TypeError
        return tuple(read(value) for value in values)

    return read_all


def digest(data: bytes) -> str:
    """Return the SHA-256 of a question's bytes, which identifies it in ledgers and answers."""
    return hashlib.sha256(data).hexdigest()


def _check_header(header: dict[str, Any]) -> None:
    if header.keys() != {"kind", "fields", "arrays"}:
        raise InvalidBytes("the header of the message must have kind, fields and arrays")
    if not isinstance(header["kind"], str) or not isinstance(header["fields"], dict):
        raise InvalidBytes("kind must be a string and fields an object")
    if not isinstance(header["arrays"], list) or not all(_is_layout(layout) for layout in header["arrays"]):
        raise InvalidBytes("arrays must be a list of [name, type, shape]")
    names = [name for name, _, _ in header["arrays"]]
    if len(set(names)) != len(names):
        raise InvalidBytes("two arrays of the message have the same name")


def _is_layout(layout: Any) -> bool:
    return (
        isinstance(layout, list)
        and len(layout) == 3
        and isinstance(layout[0], str)
        and isinstance(layout[1], str)
        and layout[1] in _TYPES
        and isinstance(layout[2], list)
        and len(layout[2]) <= _MAX_DIMENSIONS
        and all(type(size) is int and 0 <= size <= LARGEST_MESSAGE for size in layout[2])
    )
