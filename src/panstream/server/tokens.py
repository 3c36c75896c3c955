"""Bearer tokens with scopes, stored as hashes in a text file: one line a token, ``name scopes sha256``.

A token is 32 random bytes, so a plain SHA-256 of it cannot be guessed back.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panstream.errors import InvalidParameter
from panstream.randomness.entropy import system_entropy
from panstream.server.openapi import SCOPES

__all__ = ["ANYBODY", "Holder", "Tokens", "create_token"]

_PREFIX = "pan_"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who a token was made for, and what it allows. Limits are kept by this name."""

    name: str
    scopes: frozenset[str]


ANYBODY = Holder(name="anybody on this machine", scopes=frozenset(SCOPES))


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a file."""

    hashes: tuple[tuple[bytes, Holder], ...]

    @classmethod
    def load(cls, path: Path) -> Tokens:
        """Read a file of tokens."""
        found = _read(path)
        if not found:
            raise InvalidParameter(f"{path.name} holds no token; make one with: panstream token {path.name} NAME")
        return cls(tuple(found))

    def holder(self, token: str) -> Holder | None:
        """Return whose token this is. Takes equally long whatever the token."""
        presented, match = _digest(token), None
        for stored, holder in self.hashes:
            if hmac.compare_digest(stored, presented):
                match = holder
        return match


def create_token(path: Path, name: str, scopes: list[str]) -> str:
    """Add a token to the file, made if need be, and return it: the file keeps only its hash."""
    if _NAME.fullmatch(name) is None:
        raise InvalidParameter("name must have 1 to 64 letters, digits, dots, dashes or underscores")
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidParameter(f"scope must be one of {', '.join(SCOPES)}, got {scope!r}")
    if not scopes:
        raise InvalidParameter(f"a token needs a scope: {', '.join(SCOPES)}")
    if path.exists() and name in {holder.name for _, holder in _read(path)}:
        raise InvalidParameter(f"there is a token named {name!r} already; remove its line first")
    raw = np.empty(32, np.uint8)
    system_entropy(raw)
    token = _PREFIX + base64.urlsafe_b64encode(raw.tobytes()).rstrip(b"=").decode()
    ordered = ",".join(scope for scope in SCOPES if scope in scopes)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        cut = b"\n" if size and file.read(1) != b"\n" else b""  # an editor may have left the last line open
        file.write(cut + f"{name} {ordered} {_digest(token).hex()}\n".encode())
    return token


def _read(path: Path) -> list[tuple[bytes, Holder]]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        lines = None
    if lines is None:
        raise InvalidParameter(f"the file of tokens {path.name!r} cannot be read")
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            found.append(_parsed(line, f"{path.name}, line {number}"))
    names = [holder.name for _, holder in found]
    if len(set(names)) < len(names):
        raise InvalidParameter(f"{path.name}: two tokens have the same name")
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _parsed(line: str, place: str) -> tuple[bytes, Holder]:
    parts = line.split()
    scopes = frozenset(parts[1].split(",")) if len(parts) == 3 else frozenset()
    digest = parts[2] if len(parts) == 3 else ""
    if not scopes or not scopes <= set(SCOPES) or re.fullmatch("[0-9a-f]{64}", digest) is None:
        raise InvalidParameter(f"{place} must read: name, scopes joined by commas, SHA-256 in hexadecimal")
    return bytes.fromhex(digest), Holder(name=parts[0], scopes=scopes)
