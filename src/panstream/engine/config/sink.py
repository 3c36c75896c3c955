"""``[sink]``: the database or Kafka topic to which answers are copied."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from panstream.engine.config.kafka import KafkaAddress
from panstream.errors import ConfigError, InvalidParameter, translate_errors
from panstream.primitives.toml_config import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """Where answers are copied to; ``table`` is unused for a Kafka topic."""

    url: str
    table: str


def read_sink(top: Section, base: Path, directory: str | None) -> SinkConfig | None:
    """Read ``[sink]``; None if there is none."""
    if not top.has("sink"):
        return None
    section = Section("[sink]", top.required("sink", dict), {"url", "table"})
    url = section.required("url", str)
    table = section.optional("table", str, "panstream_answers")
    kind, _, path = url.partition(":")
    if kind not in ("sqlite", "duckdb", "postgresql", "kafka") or not path:
        raise ConfigError(
            '[sink] url must begin with "postgresql://" or "kafka://", or be "sqlite:FILE" or "duckdb:FILE"'
        )
    if re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", table) is None:
        raise ConfigError("[sink] table must be a name of small letters, digits and underscores")
    if directory is None:
        raise ConfigError("[sink] needs [store] directory: answers are copied from the log stored there")
    if kind == "kafka":
        address = translate_errors(
            partial(KafkaAddress.parse, url), InvalidParameter, lambda error: ConfigError(f"[sink] url: {error}")
        )
        if section.has("table") or "group=" in url or "begin=" in url:
            raise ConfigError("[sink] table, group and begin have no meaning for a Kafka topic: remove them")
        options = "" if address.config is None else f"?config={base / address.config}"
        return SinkConfig(url=f"kafka://{address.servers}/{address.topic}{options}", table=table)
    return SinkConfig(url=url if kind == "postgresql" else f"{kind}:{base / path}", table=table)


@dataclass(slots=True, kw_only=True)
class SinkState:
    """State of the copying; public, since it depends only on published answers and the database."""

    up: bool = True  # whether the last attempt succeeded
    copied: float | None = None  # when answers were last copied, in seconds since 1970
