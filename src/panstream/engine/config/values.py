"""Declared bounds of values, and declared keys of GROUP BY."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from panstream.engine.sql.lookup_tables import read_group_keys
from panstream.engine.sql.parser import ParsedQuery, ParsedSelect
from panstream.errors import ConfigError
from panstream.primitives.toml_config import Section


def read_bounds(section: Section) -> dict[str, tuple[float, float]]:
    """Return ``bounds``: lower and upper ends by value or answer name."""
    column_bounds = {}
    for name, ends in section.optional("bounds", dict, {}).items():
        numbers = isinstance(ends, list) and all(type(end) in (int, float) for end in ends)
        if not numbers or len(ends) != 2 or not ends[0] < ends[1]:
            raise ConfigError(f"{section.label}: bounds.{name} must be two numbers, the lower one first")
        column_bounds[name] = (float(ends[0]), float(ends[1]))
    return column_bounds


def bounded_names(part: ParsedQuery) -> list[str]:
    """Return the names under which ``bounds`` may list a part: its value, and the names of its answers."""
    return [] if part.value is None else [part.value, *(output.name for output in part.outputs)]


def part_bounds(
    part: ParsedQuery, bounds: Mapping[str, tuple[float, float]], options: Mapping[str, Any]
) -> dict[str, float]:
    """Return the declared bounds of a part's value, as ``lower`` and ``upper``; empty without any."""
    part_bounds = part.bounds or next((bounds[word] for word in bounded_names(part) if word in bounds), None)
    if part_bounds is None and "lower" not in options and "upper" not in options:
        part_bounds = part.literal_bounds
    return {} if part_bounds is None else {"lower": part_bounds[0], "upper": part_bounds[1]}


def read_groups(section: Section, select: ParsedSelect, base: Path) -> dict[str, tuple[Any, ...]]:
    """Return the declared keys of every column of GROUP BY that has them."""
    declared = section.optional("groups", dict, {})
    parsed = select.parts[0]
    missing = [key for key in parsed.group_by if key not in declared]
    if missing and not select.is_open_domain:
        raise ConfigError(
            f"{section.label}: GROUP BY {missing[0]} needs its keys declared: groups = {{ {missing[0]} = [...] }}; "
            "unlisted keys can only be found by COUNT(*) alone, grouped by one key: join several with ||"
        )
    extra = [key for key in declared if key not in parsed.group_by]
    if extra:
        raise ConfigError(f"{section.label}: groups names {extra[0]!r}, which the query does not group by")
    if not missing and section.has("max_item_bytes"):
        raise ConfigError(f"{section.label}: max_item_bytes is for GROUP BY a key whose values are not listed")
    group_keys = {}
    for key, values in declared.items():
        if isinstance(values, dict):
            listed = Section(f"{section.label}: groups.{key}", values, {"file"})
            values = read_group_keys(base / listed.required("file", str), key, listed.label)
        if not isinstance(values, list) or not values or len(set(map(repr, values))) != len(values):
            raise ConfigError(f"{section.label}: groups.{key} must list different keys")
        group_keys[key] = tuple(values)
    return group_keys
