"""Read configuration files (engine, federated runs, synthesisers), with errors that name the section and key.

Every key is checked; an unknown one is rejected with the most similar known one, since a misspelt privacy setting must
not be ignored silently.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from panstream.errors import ConfigError, InvalidParameter, translate_errors
from panstream.primitives.durations import parse_duration, parse_period

_KINDS = {str: "string", int: "whole number", float: "finite number", dict: "table", list: "list"}
_KINDS |= {bool: "truth value, true or false"}


def load_config_file(path: Path, what: str = "configuration file") -> Any:
    """Parse a file of TOML, or of JSON if it begins with a brace; raise ConfigError if that fails."""

    def to_config_error(error: Exception) -> ConfigError:
        if isinstance(error, FileNotFoundError):
            return ConfigError(f"there is no {what} {path.name!r}")
        if isinstance(error, OSError):
            return ConfigError(f"the {what} {path.name!r} cannot be read: {error.strerror}")
        return ConfigError(f"the {what} {path.name!r} is not valid {kind}: {error}")

    kind = "TOML"
    text = translate_errors(lambda: path.read_text("utf-8"), (OSError, UnicodeDecodeError), to_config_error)
    if not text.lstrip().startswith("{"):
        return translate_errors(lambda: tomllib.loads(text), ValueError, to_config_error)
    kind = "JSON"
    return translate_errors(lambda: json.loads(text), (ValueError, RecursionError), to_config_error)


def toml_key(name: str) -> str:
    """Format a name as a TOML key, quoted if necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def toml_lines(values: Mapping[str, Any]) -> list[str]:
    """Format a table as lines of keys and values; nested tables take one line each.

    >>> toml_lines({"name": "visits", "groups": {"north west": [1, 2.5]}})
    ['name = "visits"', 'groups = { "north west" = [1, 2.5] }']
    """
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in values.items()]


def toml_value(value: Any) -> str:
    """Format a value as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(toml_lines(value)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str) and "\\" in value and value.isprintable() and not set("'\"") & set(value):
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | str) else str(value)


class Section:
    """One table of a file, whose keys must be among ``known``; ``label`` names it in errors."""

    def __init__(self, label: str, values: Any, known: Collection[str]) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(f"{label} must be a table")
        self.label = label
        self.values = values
        for key in values:
            if key not in known:
                with_word = sorted(name for name in known if key in name.split("_"))  # "ahead" for "max_ahead"
                near = with_word or difflib.get_close_matches(key, known, 1)
                raise ConfigError(f"{label}: unknown key {key!r}" + (f", did you mean {near[0]!r}?" if near else ""))

    def has(self, key: str) -> bool:
        """Return whether the key has a value."""
        return self.values.get(key) is not None

    def optional(self, key: str, kind: type[Any], default: Any = None) -> Any:
        """Return the value of a key, of the given type (float: any finite number), or the default."""
        value = self.values.get(key)
        if value is None:
            return default
        fits = isinstance(value, int | float if kind is float else kind) and isinstance(value, bool) == (kind is bool)
        if not fits or (kind is float and not math.isfinite(value)):
            raise ConfigError(f"{self.label}: {key} must be a {_KINDS[kind]}")
        return float(value) if kind is float else value

    def required(self, key: str, kind: type[Any]) -> Any:
        """Return the value of a key; raise ConfigError if it is missing or empty."""
        value = self.optional(key, kind)
        if value is None or value == "":
            raise ConfigError(f"{self.label}: {key} is missing")
        return value

    def positive_number(self, key: str) -> float:
        """Return a positive number; raise ConfigError if it is missing."""
        value: float = self.required(key, float)
        if not value > 0:
            raise ConfigError(f"{self.label}: {key} must be positive, got {key}={value:g}")
        return value

    def integer(self, key: str, low: int, high: int) -> int | None:
        """Return an integer in ``low..high``, or None."""
        value: int | None = self.optional(key, int)
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{self.label}: {key} must be in {low}..{high}, got {key}={value}")
        return value

    def duration(self, key: str) -> float | None:
        """Return a duration in seconds, or None."""
        return self._parsed(key, parse_duration)

    def period(self, key: str) -> float | None:
        """Return a duration or a unit of the calendar in seconds, or None."""
        return self._parsed(key, parse_period)

    def _parsed(self, key: str, parse: Callable[..., float]) -> float | None:
        if not self.has(key):
            return None
        return translate_errors(
            lambda: parse(self.values[key], name=key),
            InvalidParameter,
            lambda error: ConfigError(f"{self.label}: {error}"),
        )

    def choice(self, key: str, options: Collection[str]) -> Any:
        """Return one of ``options``, or None."""
        value = self.optional(key, str)
        if value is not None and value not in options:
            raise ConfigError(f"{self.label}: {key} must be one of {', '.join(options)}, got {value!r}")
        return value
