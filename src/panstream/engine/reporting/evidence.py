"""Signed evidence of audits: read what ``panstream audit --evidence`` has written, and verify it.

A piece of evidence is a JSON document and a detached Ed25519 signature of its bytes, in a file of the same name with
``.sig`` behind it: ``evidence-20260302T080000Z.json`` and ``evidence-20260302T080000Z.json.sig``. OpenSSL verifies it
as well as this module does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from panstream import __version__
from panstream.engine.config.statement import StatementConfig
from panstream.errors import ConfigError
from panstream.primitives.signing import is_signed, read_public_key

FORMAT = "panstream evidence"
FORMAT_VERSION = 1
SIGNATURE_SUFFIX = ".sig"
_NAME = re.compile(r"evidence-\d{8}T\d{6}Z\.json")
_MAX_BYTES = 4 << 20  # a server reads it between two requests; one with every trial has .2 MB
_AUDITS = ("claims", "system", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A document whose signature was verified.

    Attributes:
        name: Name of its file.
        document: The parsed JSON document.
        finished: When the last audit ended.
    """

    name: str
    document: Mapping[str, Any]
    finished: datetime

    @property
    def passed(self) -> bool:
        """Return whether every audit passed, and detected every injected leak if leaks were injected."""
        controls = self.document["positive_controls"]
        return all(self.document["audits"][name]["passed"] is True for name in _AUDITS) and (
            not controls["ran"] or controls["passed"] is True
        )

    @property
    def version(self) -> str:
        """Return the version of panstream that was audited."""
        return str(self.document["panstream"]["version"])

    @property
    def controls_ran(self) -> bool:
        """Return whether leaks were injected, to see that the audits find them."""
        return bool(self.document["positive_controls"]["ran"])

    def is_about(self, digest: str) -> bool:
        """Return whether the configuration with this SHA-256, in hexadecimal, was audited."""
        return bool(self.document["configuration"]["sha256"] == digest)

    def age_days(self, now: datetime) -> int:
        """Return the number of whole days since the audits ended."""
        return max(0, (now - self.finished).days)

    def summary(self, digest: str) -> dict[str, Any]:
        """Return date and result as plain JSON values, as ``/healthz`` shows them."""
        return {
            "date": self.finished.isoformat().replace("+00:00", "Z"),
            "passed": self.passed,
            "version": self.version,
            "this_version": self.version == __version__,
            "this_configuration": self.is_about(digest),
            "positive_controls": self.controls_ran,
        }


def read_evidence(path: Path, key: Ed25519PublicKey) -> Evidence:
    """Read a document and verify its signature before anything in it is used.

    Args:
        path: The document; its signature lies beside it.
        key: The public key of whoever ran the audits.

    Raises:
        ConfigError: A file is missing, the signature does not fit, or the document has another format.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path.name} is larger than any evidence")
        data = path.read_bytes()
        signature = path.with_name(path.name + SIGNATURE_SUFFIX).read_bytes()
    except OSError as error:
        name = Path(str(error.filename)).name
        raise ConfigError(f"the evidence {name} cannot be read: {error.strerror}") from None
    if not is_signed(data, signature, key):
        raise ConfigError(f"{path.name} is not what was signed with this key: it was changed, or signed by another")
    try:
        document = json.loads(data)
        if document["format"] != FORMAT or document["format_version"] != FORMAT_VERSION:
            raise ValueError
        evidence = Evidence(
            name=path.name, document=document, finished=datetime.fromisoformat(document["finished"]).astimezone(UTC)
        )
        _ = evidence.passed, evidence.controls_ran, evidence.summary("")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path.name} is signed, but is no evidence that this version can read") from None
    return evidence


def latest_evidence(statement: StatementConfig) -> Evidence | None:
    """Return the newest evidence in the declared directory.

    Args:
        statement: The operator's ``[statement]``.

    Returns:
        None if no directory is declared, or if there is no document in it.

    Raises:
        ConfigError: The newest document, or the key, cannot be read or does not fit.
    """
    if statement.evidence is None or statement.evidence_key is None:
        return None
    try:
        names = sorted(path.name for path in statement.evidence.iterdir() if _NAME.fullmatch(path.name))
    except OSError:
        return None
    if not names:
        return None
    return read_evidence(statement.evidence / names[-1], read_public_key(statement.evidence_key))


def evidence_reader(statement: StatementConfig, digest: str) -> Callable[[], dict[str, Any] | None]:
    """Return a function that returns the summary of the newest evidence, read again only if the directory changed.

    Args:
        statement: The operator's ``[statement]``.
        digest: SHA-256 of the configuration's file, in hexadecimal.
    """
    cached: dict[str, Any] | None = None
    seen: int | None = None

    def read() -> dict[str, Any] | None:
        nonlocal cached, seen
        if statement.evidence is None:
            return None
        try:
            changed = statement.evidence.stat().st_mtime_ns
        except OSError:
            changed = 0
        if changed != seen:
            try:
                evidence = latest_evidence(statement)
                cached = None if evidence is None else evidence.summary(digest)
            except ConfigError as error:
                cached = {"error": str(error)}
            seen = changed
        return cached

    return read


def evidence_sentence(statement: StatementConfig, digest: str, now: datetime) -> str:
    """Return what the privacy statement says about audits on this machine.

    Args:
        statement: The operator's ``[statement]``.
        digest: SHA-256 of the configuration's file, in hexadecimal.
        now: The time of the page.
    """
    if statement.evidence is None:
        return "This page does not say that they were run on this machine."
    try:
        evidence = latest_evidence(statement)
    except ConfigError as error:
        return f"The operator declares signed evidence, but it cannot be used: {error}."
    if evidence is None:
        return "The operator declares signed evidence of such runs, but there is none yet."
    days = evidence.age_days(now)
    age = "today" if days == 0 else "1 day ago" if days == 1 else f"{days:,} days ago"
    result = "all of them passed" if evidence.passed else "not all of them passed"
    text = f"They were run by the operator {age} ({evidence.name}, signed): {result}."
    if not evidence.is_about(digest):
        text += " That was with another configuration than this page's."
    if evidence.version != __version__:
        text += f" That was version {evidence.version} of panstream, not {__version__}."
    if not evidence.controls_ran:
        text += " Leaks were not injected to test the audits themselves: that needs a source checkout."
    return text
