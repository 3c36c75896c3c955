"""Fields of a section's dataclass: each carries the function that reads and checks its key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, TypeVar

from panstream.errors import ConfigError, UnsupportedQuery, translate_errors
from panstream.primitives.toml_config import Section

Reader = Callable[[Section, str], Any]
_T = TypeVar("_T")


def option(read: Reader, default: Any = None) -> Any:
    """Declare a field that is read from the key of the same name, by ``read``."""
    return field(default=default, metadata={"read": read})


def keys_of(config: type[Any]) -> dict[str, Reader]:
    """Return the readers of a section's keys."""
    return {key.name: key.metadata["read"] for key in fields(config) if key.metadata}


def present_values(section: Section, config: type[Any]) -> dict[str, Any]:
    """Read the keys that are present in a section; the dataclass has the defaults of the others."""
    return {key: read(section, key) for key, read in keys_of(config).items() if section.has(key)}


def typed(kind: type[Any]) -> Reader:
    """Read a value of one type."""
    return lambda section, key: section.optional(key, kind)


def integer(low: int, high: int) -> Reader:
    """Read a whole number within bounds."""
    return lambda section, key: section.integer(key, low, high)


def one_of(*options: str) -> Reader:
    """Read one of some words."""
    return lambda section, key: section.choice(key, options)


def duration_or_keyword(word: str, meaning: float | None) -> Reader:
    """Read a duration in seconds, or a word that has a meaning of its own."""
    return lambda section, key: meaning if section.values[key] == word else section.duration(key)


def read_universe(section: Section, key: str) -> Any:
    """Read a number of users, or a list of their ids."""
    value = section.values[key]
    return tuple(value) if isinstance(value, list) else section.integer(key, 1, 1 << 62)


def read_not_negative(section: Section, key: str) -> float:
    """Read a number that may be 0."""
    return 0.0 if section.values[key] == 0 else section.positive_number(key)


def read_names(section: Section, key: str) -> tuple[str, ...]:
    """Read a list of names."""
    values = section.required(key, list)
    if not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{section.label} {key} must be a list of names")
    return tuple(values)


def checked_sql(label: str, read: Callable[[], _T]) -> _T:
    """Return what ``read`` returns; raise ConfigError with ``label`` where SQL is not supported."""
    return translate_errors(read, UnsupportedQuery, lambda error: ConfigError(f"{label}: {error}"))
