"""Who may talk to a cluster: whoever holds a certificate, or, on loopback, whoever is on this machine. Nobody else.

A Dask port runs what it is sent: its messages are pickles and its calls are functions. So it is open to no stranger.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from panstream.errors import InvalidParameter

__all__ = ["check_client", "host_of", "is_loopback", "security_of"]

Role = Literal["client", "worker"]


def security_of(address: str, role: Role) -> Any:
    """Return Dask's security for an address: with certificates for tls://, None for tcp:// on loopback.

    Raise InvalidParameter for anything else, and where a certificate is missing.
    """
    scheme = urlsplit(address).scheme
    if scheme == "tcp" and is_loopback(host_of(address)):
        return None
    if scheme != "tls":
        raise InvalidParameter(
            f"address must be tls://host:port, or tcp:// on loopback, got {address!r}: whoever can connect to a plain Dask "
            f"port can run code there. Use tls:// and give {_settings(role)} (docs/howto/cluster.md)"
        )
    from distributed import Security

    found = Security(require_encryption=True)  # type: ignore[no-untyped-call]
    known = found.get_tls_config_for_role(role)  # type: ignore[no-untyped-call]
    for name in ("ca_file", "cert"):
        if not known[name]:
            raise InvalidParameter(f"tls:// needs certificates: give {_settings(role)} (docs/howto/cluster.md)")
    for name in ("ca_file", "cert", "key"):
        if known[name] and "\n" not in known[name] and not Path(known[name]).is_file():
            raise InvalidParameter(f"distributed.comm.tls: there is no {name.replace('_', '-')} {known[name]!r}")
    return found


def check_client(client: Any) -> None:
    """Raise InvalidParameter unless a Dask client talks to its cluster by TLS, on loopback, or within this process."""
    for address in (client.scheduler.address, *client.ncores()):
        parts = urlsplit(address)
        if parts.scheme not in ("tls", "inproc") and not (parts.scheme == "tcp" and is_loopback(host_of(address))):
            raise InvalidParameter(
                "client must be of a cluster on this machine or one with TLS (Client(..., security=Security(...))): cells "
                "in flight are exact, and whoever can connect to a plain Dask port can run code there"
            )


def host_of(address: str) -> str:
    """Return the host of an address."""
    return urlsplit(address).hostname or ""


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, and cannot be reached from any other.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "0.0.0.0", "10.0.0.1", "")]
    [True, True, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)} if host == "localhost" else set()
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(each).is_loopback for each in found)


def _settings(role: Role) -> str:
    return f"distributed.comm.tls.ca-file, {role}.cert and {role}.key in ~/.config/dask/distributed.yaml"
