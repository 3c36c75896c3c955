"""Who may ask for what: tokens, and without tokens only programs on this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from panstream.server.refusals import Refusal
from panstream.server.tokens import ANYBODY, Holder, Tokens

__all__ = ["Access", "is_loopback"]


@dataclass(frozen=True, slots=True)
class Access:
    """Checks requests. ``tokens`` of None lets everybody in who comes by a loopback name."""

    tokens: Tokens | None

    def check(self, headers: Mapping[str, str], scope: str | None) -> Holder:
        """Return who is asking, or refuse. ``scope`` of None is open to all."""
        self._check_site(headers)
        if self.tokens is None or scope is None:
            return ANYBODY
        kind, _, token = headers.get("authorization", "").partition(" ")
        holder = self.tokens.holder(token.strip()) if kind.lower() == "bearer" else None
        if holder is None:
            raise Refusal("unauthorized")
        if scope not in holder.scopes:
            raise Refusal("forbidden", f"this needs a token with scope {scope}")
        return holder

    def _check_site(self, headers: Mapping[str, str]) -> None:
        """Keep web pages of other sites out: they can make a browser send requests to servers it can reach."""
        host = headers.get("host", "")
        if self.tokens is None and not is_loopback(_name(host)):
            raise Refusal("misdirected")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise Refusal("forbidden", "requests from pages of another site are refused")


def is_loopback(host: str) -> bool:
    """Return whether a name or address can only be this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host in ("localhost", "127.0.0.1", "::1"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
