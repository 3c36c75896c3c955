"""``[web]``: the site of a stream, and whether its rows are beacons of browsers or an access log."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from panstream.errors import ConfigError, translate_errors
from panstream.primitives.sender_counts import COLUMN
from panstream.primitives.toml_config import Section

Source = Literal["beacon", "log"]
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
# Columns of a beacon. The visitor is a hash of address, user agent, language and site, computed on receipt; those of
# ``MADE`` are derived from what the browser sent.
MADE = {
    "path": "string",
    "section": "string",
    "campaign": "string",
    "utm_source": "string",
    "utm_medium": "string",
    "utm_term": "string",
    "utm_content": "string",
    "referrer_host": "string",
    "entry": "bool",
    "country": "string",
    "device": "string",
    "browser": "string",
    "system": "string",
}
# Parameters of an address, by column.
UTM = {"campaign": "utm_campaign"} | {name: name for name in MADE if name.startswith("utm_")}
OF_THE_ID = frozenset(
    {"device", "browser", "system", "country"}
)  # columns that follow from texts which are part of the visitor's id
# Columns derived from an access log.
LOG_MADE = {name: kind for name, kind in MADE.items() if name not in ("path", "country")} | {"event": "string"}
BEACON = {
    "visitor": "int",
    **MADE,
    "event": "string",
    "value": "double",
    "url": "string",
    "referrer": "string",
    "language": "string",
    "agent": "string",
    COLUMN: "string",  # in which windows the browser counts the beacon
}
_SITE = re.compile(r"(?=.{1,253}$)(?!-)[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*")
_ORIGIN = re.compile(r"https?://[a-z0-9.\-]+(?::[0-9]{1,5})?|https?://\[[0-9a-f:]+\](?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """A site, the origins that may send beacons, and the proxies whose X-Forwarded-For is trusted."""

    site: str
    source: Source = "beacon"
    origins: tuple[str, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    counter: bool = False  # whether browsers count what they send, and store the counts

    def to_json(self) -> dict[str, Any]:
        """Return the fields that the HTTP interface shows."""
        return {"site": self.site, "source": self.source}


def normalize_hostname(name: str) -> str:
    """Return a host name in lower case, without www.; raise ConfigError if it is none.

    >>> normalize_hostname("WWW.Example.org")
    'example.org'
    """
    site = name.lower().removeprefix("www.")
    if _SITE.fullmatch(site) is None:
        raise ConfigError(f"site must be a host name such as example.org, got {name!r}")
    return site


def origins_of(site: str) -> tuple[str, ...]:
    """Return the default origins of a site's pages: http and https, with and without www."""
    return tuple(f"{scheme}://{prefix}{site}" for scheme in ("https", "http") for prefix in ("", "www."))


def parse_network(text: str) -> Network:
    """Parse an address or a network; raise ConfigError if it is neither."""
    refused = ConfigError(f"a trusted proxy must be an address or a network such as 10.0.0.0/8, got {text!r}")
    return translate_errors(lambda: ipaddress.ip_network(text), ValueError, lambda _: refused)


def read_web(top: Section, stream: Mapping[str, str], user: str | None, step: float | None) -> WebConfig | None:
    """Read ``[web]``; None if there is none. Raise ConfigError for columns that a beacon does not have."""
    if not top.has("web"):
        return None
    section = Section("[web]", top.required("web", dict), {"site", "source", "origins", "trusted_proxies", "counter"})
    site = normalize_hostname(section.required("site", str))
    source: Source = section.choice("source", get_args(Source)) or "beacon"
    counter: bool = section.optional("counter", bool, False)
    usual = origins_of(site)[: 1 if counter else None]
    origins = tuple(str(origin).lower() for origin in section.optional("origins", list, list(usual)))
    for origin in origins:
        if _ORIGIN.fullmatch(origin) is None:
            raise ConfigError(f"[web] origins must look like https://example.org, got {origin!r}")
    proxies = tuple(parse_network(str(proxy)) for proxy in section.optional("trusted_proxies", list, []))
    if source == "beacon":
        for name, kind in stream.items():
            if BEACON.get(name) != kind:
                column_names = ", ".join(f"{column} ({of})" for column, of in BEACON.items())
                raise ConfigError(f"[stream.columns] {name}: a beacon has the columns {column_names}")
        if user not in (None, "visitor"):
            raise ConfigError("[stream] user must be visitor, the one column of a beacon that tells visitors apart")
        if step == 0.0:
            raise ConfigError('[store] step = "none" is not for beacons: the times of commits would reveal each one')
    if counter and source != "beacon":
        raise ConfigError('[web] counter is kept by browsers that send beacons: it does not go with source = "log"')
    if counter and len(origins) != 1:
        raise ConfigError(
            "[web] counter needs exactly one of origins: a browser has a storage for each, so somebody who visits two "
            "would be counted twice as often as contributions says; redirect the others to it"
        )
    return WebConfig(site=site, source=source, origins=origins, trusted_proxies=proxies, counter=counter)
