"""Decimal mark, date formats and encoding of text: declared, checked, and compiled before a row is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from panstream.errors import ConfigError, InvalidParameter, translate_errors
from panstream.primitives.toml_config import Section

_T = TypeVar("_T")

DecimalMark = Literal[".", ","]
Encoding = Literal["utf-8", "windows-1252", "latin-1", "utf-16", "utf-16-le", "utf-16-be"]

_FIELDS = "YymdHIMSfpbBz"  # in the order of ``primitives.kernels.sources.date_formats``
_NUMERIC = frozenset("YymdHIMSf")
_TIME = frozenset("HIMSfpz")
_SUPPORTED = ", ".join(f"%{letter}" for letter in _FIELDS)


@dataclass(frozen=True, slots=True)
class TextStyle:
    """The decimal mark of numbers, and the formats of dates and times: ISO 8601 if there are none."""

    decimal: DecimalMark = "."
    date_formats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.decimal not in get_args(DecimalMark):
            raise InvalidParameter(f"decimal must be one of . and , got {self.decimal!r}")
        for text in self.date_formats:
            check_date_format(text)

    @property
    def has_times(self) -> bool:
        """Return whether a date format has hours."""
        return any(f"%{letter}" in text for text in self.date_formats for letter in _TIME)


PLAIN = TextStyle()


def check_encoding(encoding: str) -> Encoding:
    """Return the canonical name of an encoding.

    Raises:
        InvalidParameter: It is not supported.
    """
    names = {"cp1252": "windows-1252", "iso-8859-1": "latin-1", "latin1": "latin-1", "utf8": "utf-8", "utf16": "utf-16"}
    normalized = names.get(encoding.lower().replace("_", "-"), encoding.lower().replace("_", "-"))
    if normalized not in get_args(Encoding):
        raise InvalidParameter(f"encoding must be one of {', '.join(get_args(Encoding))}, got {encoding!r}")
    return normalized  # type: ignore[return-value]


def date_formats_of(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return date formats in the order in which they are tried; raise InvalidParameter if one is invalid."""
    formats = () if value is None else (value,) if isinstance(value, str) else tuple(value)
    for text in formats:
        check_date_format(text)
    return formats


def check_date_format(text: str) -> None:
    """Raise InvalidParameter unless a format has a year, a month and a day once each, and only supported fields."""
    letters = [step for step, is_field in _tokens(text) if is_field]
    for wanted, what in (("Yy", "a year, %Y or %y"), ("mbB", "a month, %m, %b or %B"), ("d", "a day, %d")):
        if sum(letter in wanted for letter in letters) != 1:
            raise InvalidParameter(f"date_format must have {what}, once, got {text!r}")
    twice = [letter for letter in letters if letters.count(letter) > 1]
    if twice:
        raise InvalidParameter(f"date_format must have %{twice[0]} once at most, got {text!r}")
    if ("I" in letters) != ("p" in letters) or {"H", "I"} <= set(letters):
        raise InvalidParameter(f"date_format must have %H, or %I with %p, got {text!r}")


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Split a format into fields, by letter, and literal characters; the flag says which a token is."""
    tokens: list[tuple[str, bool]] = []
    characters = iter(text)
    for character in characters:
        if character != "%":
            tokens.append((character, False))
            continue
        letter = next(characters, "")
        if letter != "%" and (not letter or letter not in _FIELDS):
            raise InvalidParameter(f"date_format knows {_SUPPORTED} and %%, got %{letter} in {text!r}")
        tokens.append((letter, letter != "%"))
    return tokens


@lru_cache(maxsize=64)
def compile_date_formats(formats: tuple[str, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the steps of all formats for the parsing kernel, and the end index of each format among them."""
    from panstream.primitives.kernels.sources.date_formats import FULL, YEAR

    steps: list[int] = []
    ends: list[int] = []
    for text in formats:
        tokens = _tokens(text)
        for index, (token, is_field) in enumerate(tokens):
            if not is_field:
                steps += token.encode()
                continue
            numeric_next = index + 1 < len(tokens) and tokens[index + 1][1] and tokens[index + 1][0] in _NUMERIC
            steps.append(YEAR + _FIELDS.index(token) + (FULL if numeric_next else 0))
        ends.append(len(steps))
    return np.array(steps, np.int64), np.array(ends, np.int64)


@lru_cache(maxsize=4)
def utf8_table(encoding: Literal["windows-1252", "latin-1"]) -> NDArray[Any]:
    """Return, for every byte of a single-byte encoding, the length and up to three bytes of its UTF-8 form."""
    from panstream.primitives.kernels.sources.transcode import INVALID

    table = np.zeros((256, 4), np.uint8)
    for byte in range(256):
        try:
            text = bytes([byte]).decode(encoding).encode()
        except UnicodeDecodeError:
            text = bytes([INVALID])
        table[byte, 0] = len(text)
        table[byte, 1 : 1 + len(text)] = list(text)
    return table


def read_date_formats(section: Section, key: str) -> tuple[str, ...]:
    """Return the formats of dates that a configuration declares."""
    value = section.values[key]
    if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
        raise ConfigError(f"{section.label} {key} must be a string, or a list of strings")
    return _checked(section, lambda: date_formats_of(value))


def read_encoding(section: Section, key: str) -> Encoding:
    """Return the encoding of text that a configuration declares."""
    return _checked(section, lambda: check_encoding(section.required(key, str)))


def _checked(section: Section, read: Callable[[], _T]) -> _T:
    return translate_errors(read, InvalidParameter, lambda error: ConfigError(f"{section.label} {error}"))
