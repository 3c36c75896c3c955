"""``[statement]``: what only the operator can say in ``panstream statement`` and on ``/privacy``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from panstream.errors import ConfigError
from panstream.primitives.toml_config import Section

Intake = Literal["calls", "files", "growing files", "pipe", "redis", "mqtt", "kafka", "kafka with gzip", "http"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementConfig:
    """The operator's own words, and the ways by which rows arrive; a text that is missing is a gap on the page.

    Attributes:
        controller: Who is responsible, by name and address.
        contact: Where people can turn to.
        purpose: What the answers are for.
        why_epsilon: Why this much loss is acceptable.
        retention: How long answers are stored, and who deletes them.
        inputs: How rows arrive; empty if the operator has not declared it.
    """

    controller: str = ""
    contact: str = ""
    purpose: str = ""
    why_epsilon: str = ""
    retention: str = ""
    inputs: tuple[Intake, ...] = ()


def read_statement(top: Section) -> StatementConfig:
    """Read ``[statement]``; raise ConfigError for a value of another type, or for an unknown input."""
    names = {field.name for field in fields(StatementConfig)}
    section = Section("[statement]", top.optional("statement", dict, {}), names)
    inputs = section.optional("inputs", list, [])
    for intake in inputs:
        if intake not in get_args(Intake):
            raise ConfigError(f"[statement] inputs must be among {', '.join(get_args(Intake))}, got {intake!r}")
    texts = {name: section.optional(name, str, "").strip() for name in names - {"inputs"}}
    return StatementConfig(**texts, inputs=tuple(inputs))
