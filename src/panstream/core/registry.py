"""Algorithm classes by name: those of the catalogue, and those that a program registers."""

from __future__ import annotations

import importlib
from dataclasses import is_dataclass
from typing import Any, TypeVar

from panstream.core.algorithm import Algorithm
from panstream.core.catalogue import ALGORITHMS
from panstream.errors import InvalidBytes, InvalidParameter

AlgorithmT = TypeVar("AlgorithmT")

_PARAMS = "__dataclass_params__"
_VERBS = ("claim", "layout", "initial_state", "batch", "update", "release")
_REGISTERED: dict[str, type[Any]] = {}


def register(algorithm: type[AlgorithmT]) -> type[AlgorithmT]:
    """Register an algorithm under its class name, for ``Monitor.from_bytes`` and the conformance suite.

    Args:
        algorithm: A frozen dataclass that derives from ``Algorithm``. It is returned, so this is a decorator, too.

    Raises:
        InvalidParameter: It is no algorithm, with what it lacks, or another one has its name.
    """
    _check_is_algorithm(algorithm)
    name = algorithm.__name__
    if name in ALGORITHMS or _REGISTERED.get(name, algorithm) is not algorithm:
        raise InvalidParameter(f"an algorithm named {name} is already registered")
    _REGISTERED[name] = algorithm
    return algorithm


def _check_is_algorithm(algorithm: Any) -> None:
    """Raise InvalidParameter for what cannot be stored and read again as an algorithm, naming all that is missing."""
    if not isinstance(algorithm, type) or Algorithm not in algorithm.__mro__:
        raise InvalidParameter(f"an algorithm must be a class that derives from Algorithm, got {algorithm!r:.80}")
    missing = [verb for verb in _VERBS if getattr(algorithm, verb) is getattr(Algorithm, verb)]
    if not hasattr(algorithm, "state_type"):
        missing.append("state_type")
    if missing:
        raise InvalidParameter(f"{algorithm.__name__} must define {', '.join(missing)}")
    if not is_dataclass(algorithm) or not getattr(algorithm, _PARAMS).frozen:
        raise InvalidParameter(f"{algorithm.__name__} must be a frozen dataclass: its fields are its public parameters")


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
