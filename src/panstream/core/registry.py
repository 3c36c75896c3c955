"""Algorithm classes by name: those of the catalogue, and those that a program registers."""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

from panstream.core.catalogue import ALGORITHMS
from panstream.errors import InvalidBytes, InvalidParameter

AlgorithmT = TypeVar("AlgorithmT")

_REGISTERED: dict[str, type[Any]] = {}


def register(algorithm: type[AlgorithmT]) -> type[AlgorithmT]:
    """Register an algorithm under its class name, for ``Monitor.from_bytes`` and the conformance suite."""
    name = algorithm.__name__
    if name in ALGORITHMS or _REGISTERED.get(name, algorithm) is not algorithm:
        raise InvalidParameter(f"an algorithm named {name} is already registered")
    _REGISTERED[name] = algorithm
    return algorithm


def find_algorithm(name: str) -> type[Any]:
    """Return the algorithm class called ``name``; raise InvalidBytes if there is none."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in ALGORITHMS:
        raise InvalidBytes(f"this version of panstream has no algorithm named {name[:64]!r}")
    algorithm_class: type[Any] = getattr(importlib.import_module(ALGORITHMS[name]), name)
    return algorithm_class


def algorithm_from_header(header: dict[str, Any]) -> Any:
    """Rebuild the algorithm described by the header of stored bytes.

    Raises:
        InvalidBytes: Unknown algorithm or invalid parameters.
    """
    kind = find_algorithm(header["algorithm"])
    try:
        return kind.from_parameters(header["parameters"])
    except (TypeError, InvalidParameter):
        message = f"the parameters are not those of {header['algorithm']}"
    raise InvalidBytes(message)
