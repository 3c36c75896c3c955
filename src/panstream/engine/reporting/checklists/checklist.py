"""A checklist: fields with an answer from the configuration, its evidence or the operator, or with nobody's yet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from panstream import __version__
from panstream.engine.config.config import Config
from panstream.engine.reporting.statement_page import PAGE, gap, html_list, html_table, paragraph
from panstream.primitives.escaping import html_text

Origin = Literal["configuration", "program", "evidence", "operator"]
_ORIGINS = {
    "configuration": "the configuration",
    "program": "how the program works",
    "evidence": "signed evidence",
    "operator": "the operator",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a checklist.

    Attributes:
        section: The heading that it stands under.
        name: What is asked.
        answer: The answer; empty if only the operator can give it and has not.
        origin: Where the answer is from.
        hint: What the operator has to fill in, if the answer is empty.
        key: The field's name in the machine-readable form, with dots for nesting; empty if there is none.
        value: The machine-readable answer, if it is not ``answer``.
    """

    section: str
    name: str
    answer: str
    origin: Origin = "configuration"
    hint: str = ""
    key: str = ""
    value: Any = None

    @property
    def is_filled(self) -> bool:
        """Return whether the field has an answer."""
        return bool(self.answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist:
    """A filled checklist.

    Attributes:
        title: What it is for.
        sources: Where the fields are from, with what was checked.
        fields: All fields, in order.
    """

    title: str
    sources: tuple[str, ...]
    fields: tuple[Field, ...]

    @property
    def open_fields(self) -> list[Field]:
        """Return the fields that only the operator can fill in, and has not."""
        return [field for field in self.fields if not field.is_filled]

    def to_html(self, config: Config, *, source: str, digest: str, now: datetime) -> str:
        """Return the page.

        Args:
            config: The configuration.
            source: Name of its file.
            digest: SHA-256 of the file, in hexadecimal.
            now: Time of the page, in UTC.
        """
        sections = [("What only the operator can fill in", _open_list(self.open_fields))]
        for heading in dict.fromkeys(field.section for field in self.fields):
            fields = [field for field in self.fields if field.section == heading]
            sections.append((heading, _table(fields)))
        sections.append(("Where these fields are from", [html_list(self.sources)]))
        body = "".join(f"<section><h2>{html_text(title)}</h2>{''.join(parts)}</section>" for title, parts in sections)
        made = (
            f"{self.title}. Made on {now.day} {now:%B %Y} by panstream {__version__} from {source} (SHA-256 {digest}). "
            "Not legal advice, and not approved by whoever published the checklist."
        )
        return PAGE.format(stream=html_text(config.stream.name), made=html_text(made), body=body)

    def to_yaml(self) -> str:
        """Return the fields that have a key as YAML; open ones are empty and marked."""
        tree: dict[str, Any] = {}
        for field in self.fields:
            if not field.key:
                continue
            *parents, last = field.key.split(".")
            branch = tree
            for parent in parents:
                branch = branch.setdefault(parent, {})
            branch[last] = field.value if field.value is not None else field.answer
        return "\n".join(_yaml_lines(tree, {field.key for field in self.open_fields}, 0, "")) + "\n"


def _open_list(fields: Sequence[Field]) -> Iterable[str]:
    if not fields:
        return [paragraph("Nothing: every field has an answer.")]
    return [
        paragraph("These fields have no answer yet:"),
        html_list(f"{field.name}: {field.hint}" for field in fields),
    ]


def _table(fields: Sequence[Field]) -> Iterable[str]:
    rows = [[field.name, field.answer or gap(), _ORIGINS[field.origin]] for field in fields]
    return [html_table(["field", "answer", "from"], rows)]


def _yaml_lines(branch: Any, open_keys: set[str], depth: int, path: str) -> Iterable[str]:
    """Yield lines of YAML; scalars and lists are written as JSON, which YAML contains."""
    for name, value in branch.items():
        key = f"{path}.{name}" if path else name
        indent = "  " * depth
        if isinstance(value, dict) and value:
            yield f"{indent}{name}:"
            yield from _yaml_lines(value, open_keys, depth + 1, key)
        else:
            todo = "  # to be filled in by the operator" if key in open_keys else ""
            yield f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}{todo}"
