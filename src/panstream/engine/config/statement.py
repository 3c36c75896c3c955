"""``[statement]``: what only the operator can say in ``panstream statement`` and on ``/privacy``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
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
        evidence: Directory of signed evidence, where ``panstream audit --evidence`` writes it.
        evidence_key: File of the public key that verifies it.
    """

    controller: str = ""
    contact: str = ""
    purpose: str = ""
    why_epsilon: str = ""
    retention: str = ""
    inputs: tuple[Intake, ...] = ()
    evidence: Path | None = None
    evidence_key: Path | None = None


def read_statement(top: Section, base: Path) -> StatementConfig:
    """Read ``[statement]``.

    Args:
        top: The whole configuration.
        base: Directory that paths are relative to.

    Raises:
        ConfigError: A value is of another type, an input is unknown, or one of the paths is missing.
    """
    names = {field.name for field in fields(StatementConfig)}
    section = Section("[statement]", top.optional("statement", dict, {}), names)
    inputs = section.optional("inputs", list, [])
    for intake in inputs:
        if intake not in get_args(Intake):
            raise ConfigError(f"[statement] inputs must be among {', '.join(get_args(Intake))}, got {intake!r}")
    paths = {name: section.optional(name, str) for name in ("evidence", "evidence_key")}
    if (paths["evidence"] is None) != (paths["evidence_key"] is None):
        raise ConfigError(
            "[statement] evidence and evidence_key go together: the key verifies what is in the directory"
        )
    texts = {name: section.optional(name, str, "").strip() for name in names - {"inputs", *paths}}
    evidence, key = (None if path is None else base / path for path in paths.values())
    return StatementConfig(**texts, inputs=tuple(inputs), evidence=evidence, evidence_key=key)
