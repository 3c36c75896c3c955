"""``[[sketch]]``: a question whose windows are published as sketches when they close."""

from __future__ import annotations

from typing import Any

from panstream.errors import ConfigError
from panstream.primitives.toml_config import Section

_KEYS = {"name", "sql", "window", "epsilon", "expected", "publish", "key", "hash", "groups", "groups_per_user"}


def query_tables(top: Section) -> list[dict[str, Any]]:
    """Return every [[query]], and every [[sketch]] as one.

    Raises:
        ConfigError: There is none, a key is missing, or ``publish`` is not true.
    """
    queries = list(top.optional("query", list, []))
    for number, table in enumerate(top.optional("sketch", list, []), start=1):
        name = table.get("name", number) if isinstance(table, dict) else number
        section = Section(f"[[sketch]] {name}", table, _KEYS)
        if not section.optional("publish", bool, False):
            raise ConfigError(
                f"{section.label}: publish = true is missing: a sketch is published when its window closes; where only "
                "who came back is asked, SELECT RETENTION(user, 4) in a [[query]] costs less"
            )
        if "SKETCH" not in section.required("sql", str).upper():
            raise ConfigError(f"{section.label}: sql must be SELECT SKETCH(user) FROM the stream")
        queries.append({key: value for key, value in section.values.items() if key != "publish"})
    if not queries:
        raise ConfigError("at least one [[query]] is needed")
    return queries
