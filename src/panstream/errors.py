"""Every exception panstream raises.

::

    PanstreamError
    ├── InvalidParameter       a public parameter breaks its rule          (also a ValueError)
    │   └── SignalBelowNoise   ... because the noise would exceed the planned answer
    ├── ConfigError            a configuration breaks a rule               (also a ValueError)
    ├── UnsupportedQuery       a statement cannot be answered privately    (also a ValueError)
    ├── InvalidBatch           a batch was rejected; state unchanged       (also a ValueError)
    ├── BudgetExhausted        the call would cost more than was declared
    │   ├── UnboundedLoss      ... because nothing bounds what it would cost
    │   └── BudgetExceeded     ... by the queries of a configuration (also a ConfigError)
    ├── NotSupported           the algorithm cannot do this, whatever the data
    ├── InvalidBytes           serialised bytes are foreign, damaged or too new (also a ValueError)
    ├── MergeError             the two states must not be merged
    ├── ClockJumped            the system's clock is not plausible, so nothing is drawn
    ├── StoreError             the state could not be read or written; the old state is intact
    │   ├── StoreLocked        another process has the store open
    │   └── StoreDamaged       the files are corrupted, foreign, rolled back or too new
    │       ├── LatestSnapshotDamaged ... and the state before the newest is intact
    │       └── TornWrite      ... as after a crash
    ├── SinkError              answers could not be written to a database; they are in the store
    ├── SourceError            the input cannot be read as declared
    │   ├── BadRowError        ... because of one row, and bad rows stop the run
    │   ├── ConnectionLost     ... because the connection to Redis or a broker broke
    │   └── RedisCommandError  ... because Redis answered with an error
    ├── EvaluationFailed       an expression could not be evaluated for a batch
    ├── ClusterError           the cluster cannot be reached, or cannot continue
    ├── TwoPartyError          one of two machines cannot be reached, or does not fit the other
    ├── RequestRejected        a server rejected a request; ``code`` is the reason
    │   └── BatchStatusUnknown a batch may or may not have been counted, and was not sent again
    ├── ProducerFenced         a batch comes from a producer that is not open, or not in order
    ├── ServerUnreachable      a server did not answer, or was busy, at every attempt
    ├── FederationAborted      too few holders are left, or one refused and all are needed
    ├── PeerUnreachable        a data holder did not answer; a retry costs no budget
    └── MissingExtra           an optional dependency is absent            (also an ImportError)

A message names the parameter, the rule and the public value. It never contains an item, a key or a state. Nor do
chained errors: ``from None`` hides the error that was being handled, but still references it, with every variable of
its frames. Where those may be rows, keys or states, `translate_errors` raises outside of the handler, so that no
reference is left.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Exception)


class PanstreamError(Exception):
    """Root of all errors raised on purpose by panstream."""


class InvalidParameter(PanstreamError, ValueError):
    """A public parameter breaks its rule."""


class SignalBelowNoise(InvalidParameter):
    """At the planned size the noise would exceed the answer."""


class InvalidBatch(PanstreamError, ValueError):
    """A batch was rejected as a whole; the state is unchanged.

    ``row`` is the zero-based number of the first invalid row, or ``None`` if the error is not in one row (a wrong
    container type, say).
    """

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message if row is None else f"row {row}: {message}")
        self.row = row


class ConfigError(PanstreamError, ValueError):
    """The configuration breaks a rule; the message names section, key and rule."""


class UnsupportedQuery(PanstreamError, ValueError):
    """A statement cannot be answered privately, or is not supported."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None, hint: str = "") -> None:
        where = "" if line is None else f"line {line}, column {column}: "
        super().__init__(where + message + (f" ({hint})" if hint else ""))
        self.line = line
        self.column = column
        self.hint = hint


class BudgetExhausted(PanstreamError):
    """The call would cost more than was declared; nothing happened."""


class UnboundedLoss(BudgetExhausted):
    """The loss of the call has no bound for a ``unit`` with a declared limit; nothing happened."""

    def __init__(self, message: str, *, unit: str) -> None:
        super().__init__(message)
        self.unit = unit


class BudgetExceeded(ConfigError, BudgetExhausted):
    """The queries of a configuration cost more than the budget that it declares."""


class NotSupported(PanstreamError):
    """The algorithm cannot do this, whatever the data."""


class InvalidBytes(PanstreamError, ValueError):
    """Serialised bytes are foreign, damaged, or of a version this release does not know."""


class MergeError(PanstreamError):
    """The two states must not be merged."""


class RequestRejected(PanstreamError):
    """A server rejected a request; sending it again would not help."""

    def __init__(self, message: str, *, code: str, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class BatchStatusUnknown(RequestRejected):
    """A batch may or may not have been counted: it was sent without an answer, and the server no longer knows."""


class ProducerFenced(PanstreamError):
    """A batch or request is from a producer that is not open, or out of order; ``code`` is the reason."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class ServerUnreachable(PanstreamError):
    """A server did not answer, or was busy, at every attempt."""


class ClockJumped(PanstreamError):
    """The system's clock jumped ahead further than was declared: nothing was drawn."""


class StoreError(PanstreamError):
    """The state could not be read or written; what was stored before is intact."""


class StoreLocked(StoreError):
    """Another process has the store open."""


class StoreDamaged(StoreError):
    """The files are corrupted, foreign, rolled back, or of a version this release does not know."""


class LatestSnapshotDamaged(StoreDamaged):
    """The newest state is damaged; the one before it is intact."""


class TornWrite(StoreDamaged):
    """A key or a state was not written completely, as after a crash; or it is foreign."""


class SinkError(PanstreamError):
    """Answers could not be written to a database; the store has them, and copying is retried."""


class SourceError(PanstreamError):
    """The input cannot be read as it was declared."""


class BadRowError(SourceError):
    """A row is malformed and ``on_bad_row`` is "stop". ``row`` counts from 1, without the header."""

    def __init__(self, message: str, *, row: int) -> None:
        super().__init__(message)
        self.row = row


class ConnectionLost(SourceError):
    """The connection to Redis, or to an MQTT or Kafka broker, broke, or could not be made."""


class RedisCommandError(SourceError):
    """Redis answered a command with an error."""


class EvaluationFailed(PanstreamError):
    """An expression could not be evaluated for a micro-batch; without a reason, which might quote values."""


class ClusterError(PanstreamError):
    """The cluster cannot be reached, or cannot continue."""


class TwoPartyError(PanstreamError):
    """One of the two machines that hold shares cannot be reached, rejected a step, or does not match the other."""


class PeerUnreachable(PanstreamError):
    """The other end of a channel did not answer in time; a retry with a data holder costs no budget."""


class FederationAborted(PanstreamError):
    """A run over several holders cannot continue; the message names who dropped out, and why."""


class MissingExtra(PanstreamError, ImportError):
    """An optional dependency is absent; the message has the exact command that installs it in this environment."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency: {sys.executable} -m pip install {_packages(extra)}")
        self.feature = feature
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), (self.feature, self.extra)  # picklable, for process pools


def import_optional(module: str, feature: str, extra: str) -> Any:
    """Import an optional dependency; raise MissingExtra if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        pass
    raise MissingExtra(feature, extra)


def _packages(extra: str) -> str:
    """Return the requirements of an extra for pip; unlike panstream itself, they can be installed from an index."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires("panstream") or []
    except PackageNotFoundError:
        declared = []
    ending = re.compile(rf";\s*extra\s*==\s*['\"]{extra}['\"]\s*$")
    packages = [ending.sub("", requirement).strip() for requirement in declared if ending.search(requirement)]
    return " ".join(f"'{package}'" for package in packages) or f"'panstream[{extra}]'"


def translate_errors(
    work: Callable[[], _T], caught: type[_E] | tuple[type[_E], ...], translate: Callable[[_E], PanstreamError]
) -> _T:
    """Return ``work()``; if that raises an error of ``caught``, raise ``translate(error)`` instead.

    Raised outside of the except block, so that the new error does not reference the old one and its frames.
    """
    try:
        return work()
    except caught as error:
        translated_error = translate(error)
    raise translated_error
