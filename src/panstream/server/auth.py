"""Tokens, their scopes, and quotas per token.

A token is 32 random bytes. The token file has one line per token, ``name scopes sha256``: the hash of 256 random bits
cannot be inverted. Without tokens only programs on this machine are served. Usage is counted per token name, in memory
only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from panstream.errors import InvalidParameter, translate_errors
from panstream.primitives.noise.entropy import system_entropy
from panstream.primitives.validation import is_loopback
from panstream.server.errors import HttpError

SCOPES = ("ingest", "read", "admin")
_BODY_GRACE = 5.0  # seconds before the minimum rate of a body applies
_PREFIX = "pan_"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGrant:
    """The name of a token, by which quotas are counted, and what it allows."""

    name: str
    scopes: frozenset[str]


_ANYBODY = TokenGrant(name="anybody on this machine", scopes=frozenset(SCOPES))


def create_token(path: Path, name: str, scopes: list[str]) -> str:
    """Create a token and append its hash to the file, which is created if missing.

    Returns:
        The token; it cannot be recovered from the file.

    Raises:
        InvalidParameter: If the name or a scope is invalid, or the name is in use.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidParameter("name must have 1 to 64 letters, digits, dots, dashes or underscores")
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidParameter(f"scope must be one of {', '.join(SCOPES)}, got {scope!r}")
    if not scopes:
        raise InvalidParameter(f"a token needs a scope: {', '.join(SCOPES)}")
    if path.exists() and name in {grant.name for _, grant in _read(path)}:
        raise InvalidParameter(f"a token named {name!r} already exists; remove its line first")
    raw = np.empty(32, np.uint8)
    system_entropy(raw)
    token = _PREFIX + base64.urlsafe_b64encode(raw.tobytes()).rstrip(b"=").decode()
    ordered = ",".join(scope for scope in SCOPES if scope in scopes)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        newline = b"\n" if size and file.read(1) != b"\n" else b""  # an editor may have left the last line open
        file.write(newline + f"{name} {ordered} {_digest(token).hex()}\n".encode())
    return token


def _read(path: Path) -> list[tuple[bytes, TokenGrant]]:
    refused = InvalidParameter(f"the token file {path.name!r} cannot be read")
    lines = translate_errors(lambda: path.read_text().splitlines(), (OSError, UnicodeDecodeError), lambda _: refused)
    grants = []
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            grants.append(_parse_line(line, f"{path.name}, line {number}"))
    names = [grant.name for _, grant in grants]
    if len(set(names)) < len(names):
        raise InvalidParameter(f"{path.name}: two tokens have the same name")
    return grants


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _parse_line(line: str, label: str) -> tuple[bytes, TokenGrant]:
    name, scopes, digest = (*line.split(), "", "", "")[:3]
    scope_set = frozenset(scopes.split(","))
    if len(line.split()) != 3 or not scope_set <= set(SCOPES) or re.fullmatch("[0-9a-f]{64}", digest) is None:
        raise InvalidParameter(f"{label} must read: name, scopes joined by commas, SHA-256 in hexadecimal")
    return bytes.fromhex(digest), TokenGrant(name=name, scopes=scope_set)


@dataclass(slots=True)
class Authenticator:
    """Checks tokens. With ``hashes`` None, requests to a loopback name need none."""

    hashes: tuple[tuple[bytes, TokenGrant], ...] | None
    path: Path | None = None

    @classmethod
    def load(cls, path: Path | None, host: str) -> Authenticator:
        """Read a token file, which a server needs unless its host is a loopback address.

        Raises:
            InvalidParameter: If the file is missing, invalid or empty.
        """
        if path is None:
            if not is_loopback(host):
                raise InvalidParameter("tokens are needed unless host is a loopback address, got no token file")
            return cls(None)
        grants = _read(path)
        if not grants:
            raise InvalidParameter(f"{path.name} holds no token; create one with: panstream token {path.name} NAME")
        return cls(tuple(grants), path)

    def reload(self) -> int:
        """Read the token file again and return its number of tokens; an empty file revokes all of them.

        Raises:
            InvalidParameter: If the file cannot be read or is invalid; the tokens stay as they are.
        """
        if self.path is not None:
            self.hashes = tuple(_read(self.path))
        return len(self.hashes or ())

    def check(self, headers: Mapping[str, str], scope: str | None) -> TokenGrant:
        """Return the grant of a request's token; ``scope`` None needs no token.

        Raises:
            HttpError: If the token is unknown, lacks the scope, or the request comes from another site's page.
        """
        self._check_site(headers)
        if self.hashes is None or scope is None:
            return _ANYBODY
        kind, _, token = headers.get("authorization", "").partition(" ")
        grant = self.grant(token.strip()) if kind.lower() == "bearer" else None
        if grant is None:
            raise HttpError("unauthorized")
        if scope not in grant.scopes:
            raise HttpError("forbidden", f"this needs a token with scope {scope}")
        return grant

    def grant(self, token: str) -> TokenGrant | None:
        """Return the grant of a token, None if it is unknown; in time that does not depend on the token."""
        presented = _digest(token)
        match = None
        for stored, grant in self.hashes or ():
            if hmac.compare_digest(stored, presented):
                match = grant
        return match

    def _check_site(self, headers: Mapping[str, str]) -> None:
        """Refuse requests of other sites' pages, which can make a browser send them (CSRF, DNS rebinding)."""
        host = headers.get("host", "")
        if self.hashes is None and not is_loopback(_name(host)):
            raise HttpError("misdirected")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise HttpError("forbidden", "requests from pages of another site are refused")


def _name(host: str) -> str:
    """Return the host in a Host header, without the port; empty if the header is invalid.

    >>> [_name(host) for host in ("[::1]:80", "localhost:80", "127.0.0.1", "[::1]evil.example", "::1")]
    ['::1', 'localhost', '127.0.0.1', '', '']
    """
    match = _HOST.fullmatch(host)
    return "" if match is None else match[1] or match[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every limit of a server. Sizes are bytes, times are seconds."""

    body: int = 16 << 20  # of one body as sent
    unpacked: int = 64 << 20  # of one body decompressed
    rows: int = 1_000_000  # of one body
    memory: int = 256 << 20  # of all bodies at a time; one token may use half of what others leave
    staged: int = 64 << 20  # of all batches in parts that wait for their commit; within memory
    staged_time: float = 600.0  # that parts wait for another one or the commit
    rate: float = 2_000.0  # requests a second of one token; bursts of twice as many
    max_concurrent: int = 64  # requests of one token
    connections: int = 512  # of all together
    address_connections: int = 256  # from one address, or IPv6 network of 64 bits
    handshake_time: float = 5.0
    head: int = 16 << 10  # of one request's head
    head_time: float = 10.0
    body_time: float = 30.0
    body_rate: float = 32_768.0  # bytes a second of a body, after its first seconds
    producers: int = 1_000  # of one token, open at a time
    out_of_order: int = 32  # batches that a producer may have in flight
    order_time: float = 20.0  # that a batch waits for an earlier one of its producer

    @property
    def window(self) -> int:
        """The number of batches that a producer may have in flight.

        Batches that wait for a missing one use at most half of the token's requests, so that it can be received.

        >>> Limits().window, Limits(max_concurrent=8).window, Limits(max_concurrent=1).window
        (32, 4, 1)
        """
        return max(1, min(self.out_of_order, self.max_concurrent // 2))

    def body_timeout(self, received: int) -> float:
        """Return the seconds that a body may have taken after ``received`` bytes.

        >>> Limits().body_timeout(0), Limits().body_timeout(327_680), Limits().body_timeout(16 << 20)
        (5.0, 15.0, 30.0)
        """
        return min(self.body_time, _BODY_GRACE + received / self.body_rate)


@dataclass(slots=True)
class _TokenUsage:
    """Current usage of one token; ``allowance`` is a token bucket for the request rate, as of ``updated``."""

    allowance: float
    updated: float
    concurrent: int = 0
    memory: int = 0


@dataclass(slots=True)
class QuotaTracker:
    """Limits request rate, concurrency and memory per token."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    _uses: dict[str, _TokenUsage] = field(default_factory=dict)
    _memory: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def request(self, name: str) -> Iterator[None]:
        """Count a request as in progress for the time of the block."""
        self.enter(name)
        try:
            yield
        finally:
            self.leave(name)

    def enter(self, name: str) -> None:
        """Count a request as in progress until ``leave``.

        Raises:
            HttpError: If the token's rate or number of concurrent requests is exceeded.
        """
        burst = 2.0 * self.limits.rate
        now = self.clock()
        use = self._use(name)
        use.allowance = min(burst, use.allowance + (now - use.updated) * self.limits.rate)
        use.updated = now
        if use.allowance < 1.0 or use.concurrent >= self.limits.max_concurrent:
            raise HttpError("rate_limited", retry_after=1)
        use.allowance -= 1.0
        use.concurrent += 1

    def leave(self, name: str) -> None:
        """Count a request as done."""
        self._uses[name].concurrent -= 1

    def reserve(self, size: int, name: str = "") -> None:
        """Reserve memory for a body of a token; from any thread.

        A token may hold half of what the others leave, so that there is always some for the next one.

        Raises:
            HttpError: If that is exceeded.
        """
        with self._lock:
            use = self._use(name)
            others = self._memory - use.memory
            full = size > 0 and 2 * (use.memory + size) > self.limits.memory - others
            if not full:
                self._memory += size
                use.memory += size
        if full:
            raise HttpError("rate_limited", "too many events are waiting under this token; try again", retry_after=1)

    def release_memory(self, size: int, name: str = "") -> None:
        """Return reserved memory; from any thread."""
        with self._lock:
            self._memory -= size
            self._use(name).memory -= size

    def _use(self, name: str) -> _TokenUsage:
        return self._uses.get(name) or self._uses.setdefault(name, _TokenUsage(2.0 * self.limits.rate, self.clock()))
