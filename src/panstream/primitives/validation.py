"""Checks of public parameters, one per rule, so that messages are the same everywhere.

A message names the parameter, the rule and the value, which is public. All checks raise InvalidParameter.
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
    """Require values above 0; infinity is allowed and means no noise.

    >>> require_positive(epsilon=-1.0)
    Traceback (most recent call last):
    panstream.errors.InvalidParameter: epsilon must be positive, got epsilon=-1.0
    """
    _require(values, lambda value: value > 0, "positive")


def require_finite(**values: float | Fraction) -> None:
    """Require finite values above 0, where noise must be drawn."""
    _require(values, lambda value: 0 < value < math.inf, "positive and finite")


def require_at_least(minimum: float, **values: float | Fraction) -> None:
    """Require values of at least ``minimum``."""
    _require(values, lambda value: value >= minimum, f"at least {minimum}")


def require_integer_in_range(low: int, high: int, **values: int) -> None:
    """Require numbers from ``low`` to ``high``.

    >>> require_integer_in_range(1, 2**62, horizon=0)
    Traceback (most recent call last):
    panstream.errors.InvalidParameter: horizon must be in 1..2**62, got horizon=0
    """
    _require(values, lambda value: low <= value <= high, f"in {low}..{_format_bound(high)}")


def require_int(low: int, high: int, **values: object) -> None:
    """Require instances of ``int``, not bool, from ``low`` to ``high``."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidParameter(f"{name} must be an integer in {low}..{_format_bound(high)}, got {name}={value!r}")


def require_probability(**values: float) -> None:
    """Require values strictly between 0 and 1."""
    _require(values, lambda value: 0 < value < 1, "in (0, 1)")


def require_delta(**values: float) -> None:
    """Raise InvalidParameter unless every value is at least 0 and below 1.

    >>> require_delta(delta=0.0)
    """
    _require(values, lambda x: 0 <= x < 1, "in [0, 1)")


def require_fraction(**values: float) -> None:
    """Require values from 0 to 1, both included."""
    _require(values, lambda value: 0 <= value <= 1, "in [0, 1]")


def _require(values: Mapping[str, Any], allowed: Callable[[Any], bool], rule: str) -> None:
    """Require numbers for which ``allowed`` is true.

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
    """Format a large power of two, or one less, as a power."""
    power = number.bit_length()
    if number >= 1 << 20 and number == 1 << (power - 1):
        return f"2**{power - 1}"
    return f"2**{power} - 1" if number >= 1 << 20 and number == (1 << power) - 1 else str(number)


def is_loopback(host: str) -> bool:
    """Return whether a host is an address that only this machine can reach.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "0.0.0.0", "10.0.0.1", "")]
    [True, True, False, False, False]
    """
    if host in ("127.0.0.1", "::1"):  # fast path: called for every request of a server without tokens
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" and _localhost_is_here()


@cache
def _localhost_is_here() -> bool:
    """Return whether localhost resolves to loopback addresses only: /etc/hosts may say otherwise."""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo("localhost", None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)
