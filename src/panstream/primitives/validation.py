"""Rules that public parameters must keep: one for every kind, so that all of them say the same words.

A rule names the parameter, itself and the value, which is public.
"""

from __future__ import annotations

import ipaddress
import math
import socket
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from numbers import Real
from typing import Any

from panstream.errors import InvalidParameter


def require_positive(**values: float | Fraction) -> None:
    """Refuse what is not above 0; infinity is, and stands for no noise at all.

    >>> require_positive(epsilon=-1.0)
    Traceback (most recent call last):
    panstream.errors.InvalidParameter: epsilon must be positive, got epsilon=-1.0
    """
    _require(values, lambda value: value > 0, "positive")


def require_finite(**values: float | Fraction) -> None:
    """Refuse what is not above 0, and infinity too: noise must be drawn."""
    _require(values, lambda value: 0 < value < math.inf, "positive and finite")


def require_at_least(minimum: float, **values: float | Fraction) -> None:
    """Refuse what is below ``minimum``."""
    _require(values, lambda value: value >= minimum, f"at least {minimum}")


def require_integer_in_range(low: int, high: int, **values: int) -> None:
    """Refuse what is not one of the whole numbers from ``low`` to ``high``.

    >>> require_integer_in_range(1, 2**62, horizon=0)
    Traceback (most recent call last):
    panstream.errors.InvalidParameter: horizon must be in 1..2**62, got horizon=0
    """
    _require(values, lambda value: low <= value <= high, f"in {low}..{_format_bound(high)}")


def require_int(low: int, high: int, **values: object) -> None:
    """Refuse what is not an ``int`` from ``low`` to ``high``, whatever else it may be."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidParameter(f"{name} must be an integer in {low}..{_format_bound(high)}, got {name}={value!r}")


def require_probability(**values: float) -> None:
    """Refuse what is not strictly between 0 and 1."""
    _require(values, lambda value: 0 < value < 1, "in (0, 1)")


def require_fraction(**values: float) -> None:
    """Refuse what is not from 0 to 1, both included."""
    _require(values, lambda value: 0 <= value <= 1, "in [0, 1]")


def _require(values: Mapping[str, Any], allowed: Callable[[Any], bool], rule: str) -> None:
    """Refuse what is no number, and what the rule does not allow.

    >>> require_positive(epsilon="1")
    Traceback (most recent call last):
    panstream.errors.InvalidParameter: epsilon must be a number, got epsilon='1'
    """
    for name, value in values.items():
        if not isinstance(value, Real):
            raise InvalidParameter(f"{name} must be a number, got {name}={value!r}")
        if not allowed(value):
            raise InvalidParameter(f"{name} must be {rule}, got {name}={value}")


def _format_bound(number: int) -> str:
    """Return a large power of two, or one less, as one writes it."""
    power = number.bit_length()
    if number >= 1 << 20 and number == 1 << (power - 1):
        return f"2**{power - 1}"
    return f"2**{power} - 1" if number >= 1 << 20 and number == (1 << power) - 1 else str(number)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, and cannot be reached from any other.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "0.0.0.0", "10.0.0.1", "")]
    [True, True, False, False, False]
    """
    if host in ("127.0.0.1", "::1"):  # asked for every request of a server without tokens
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" and _localhost_is_here()


@cache
def _localhost_is_here() -> bool:
    """Return whether this machine knows localhost, and only by loopback addresses: anybody may edit its table."""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo("localhost", None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)
