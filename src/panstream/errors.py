"""Every exception panstream raises.

::

    PanstreamError
    ├── InvalidParameter       a public parameter breaks its rule          (also a ValueError)
    │   └── SignalBelowNoise   ... because the planned answer would drown in noise
    ├── ConfigError            a configuration breaks a rule               (also a ValueError)
    ├── UnsupportedQuery       a statement is no question that can be answered privately (also a ValueError)
    ├── InvalidBatch           a batch was refused whole; state unchanged  (also a ValueError)
    ├── BudgetExhausted        the call would cost more than was declared
    │   ├── UnboundedLoss      ... because nothing bounds what it would cost
    │   └── BudgetExceeded     ... by the queries of a configuration (also a ConfigError)
    ├── NotSupported           the algorithm cannot do this, whatever the data
    ├── InvalidBytes           serialised bytes are foreign, damaged or too new (also a ValueError)
    ├── MergeError             the two states must not be merged
    ├── ClockJumped            the system's clock cannot be believed, so nothing is drawn
    ├── StoreError             the state could not be read or written; the old state is intact
    │   ├── StoreLocked        another process has the store open
    │   └── StoreDamaged       the files are corrupted, foreign, rolled back or too new
    │       ├── LatestSnapshotDamaged ... and the state before the newest is whole
    │       └── TornWrite      ... as a crash leaves them
    ├── SinkError              answers could not be written to a database; they are in the store
    ├── SourceError            the input cannot be read as declared
    │   ├── BadRowError        ... because of one row, and bad rows stop the run
    │   ├── ConnectionLost     ... because the connection to Redis or a broker broke
    │   └── RedisCommandError  ... because Redis answered with an error
    ├── EvaluationFailed       an expression could not be evaluated for a batch
    ├── ClusterError           the cluster cannot be reached, or cannot go on
    ├── TwoPartyError          one of two machines cannot be reached, or does not fit the other
    ├── RequestRejected        a server refused a request; ``code`` says why
    │   └── BatchStatusUnknown a batch may or may not have been counted, and was not sent again
    ├── ProducerFenced         a batch comes from a producer that is not open, or not in order
    ├── ServerUnreachable      a server did not answer, or was busy, however often it was asked
    ├── FederationAborted      too few holders are left, or one refused and all are needed
    ├── PeerUnreachable        a data holder did not answer; asking again costs nothing
    └── MissingExtra           an optional dependency is absent            (also an ImportError)

A message names the parameter, the rule and the public value. It never contains an item, a key or a state. Nor does what
an error drags along: ``from None`` hides the error that was being handled and still keeps it, with every variable of
its frames. Where that may be rows, keys or states, `translate_errors` raises afterwards, so that nothing is kept.
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
    """At the planned size the answer would drown in noise."""


class InvalidBatch(PanstreamError, ValueError):
    """A batch was refused as a whole; the state is as it was before the call.

    ``row`` is the zero-based position of the first offending row, or ``None`` where the fault
    is not in one row (a wrong container type, say).
    """

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message if row is None else f"row {row}: {message}")
        self.row = row


class ConfigError(PanstreamError, ValueError):
    """The configuration breaks a rule; the message names the place and the rule."""


class UnsupportedQuery(PanstreamError, ValueError):
    """A statement is not one of the questions that panstream can answer privately."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None, hint: str = "") -> None:
        where = "" if line is None else f"line {line}, column {column}: "
        super().__init__(where + message + (f" ({hint})" if hint else ""))
        self.line = line
        self.column = column
        self.hint = hint


class BudgetExhausted(PanstreamError):
    """The call would cost more than was declared; nothing happened."""


class UnboundedLoss(BudgetExhausted):
    """Nothing bounds what the call would cost the ``unit`` that a limit was declared for; nothing happened."""

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
    """A server refused a request; sending it again would not help."""

    def __init__(self, message: str, *, code: str, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class BatchStatusUnknown(RequestRejected):
    """A batch may or may not have been counted: it was sent without an answer, and now the server cannot tell."""


class ProducerFenced(PanstreamError):
    """A batch or a request comes from a producer that is not open, or out of order; ``code`` says which."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class ServerUnreachable(PanstreamError):
    """A server did not answer, or was busy, however often it was asked."""


class ClockJumped(PanstreamError):
    """The system's clock jumped ahead further than was declared: nothing was drawn."""


class StoreError(PanstreamError):
    """The state could not be read or written; what was stored before is intact."""


class StoreLocked(StoreError):
    """Another process has the store open."""


class StoreDamaged(StoreError):
    """The files are corrupted, foreign, rolled back, or of a version this release does not know."""


class LatestSnapshotDamaged(StoreDamaged):
    """The newest state is damaged, and the one before it is whole and still there."""


class TornWrite(StoreDamaged):
    """A key or a state was not written to its end, as a crash leaves it; or it is foreign."""


class SinkError(PanstreamError):
    """Answers could not be written to a database; the store has them, and they will be copied when it can be."""


class SourceError(PanstreamError):
    """The input cannot be read as it was declared."""


class BadRowError(SourceError):
    """A malformed row was met and ``on_bad_row`` is "stop". ``row`` counts from 1, without the header."""

    def __init__(self, message: str, *, row: int) -> None:
        super().__init__(message)
        self.row = row


class ConnectionLost(SourceError):
    """The connection to Redis, or to an MQTT or Kafka broker, broke, or could not be made."""


class RedisCommandError(SourceError):
    """Redis answered a command with an error."""


class EvaluationFailed(PanstreamError):
    """An expression could not be evaluated for a micro-batch; why is not told, since the reason may quote values."""


class ClusterError(PanstreamError):
    """The cluster cannot be reached, or cannot go on."""


class TwoPartyError(PanstreamError):
    """One of the two machines that hold shares cannot be reached, refused a step, or does not fit the other."""


class PeerUnreachable(PanstreamError):
    """The other end of a channel did not answer in time, or not at all; a data holder may be asked again for free."""


class FederationAborted(PanstreamError):
    """A run over several holders cannot go on; the message says who dropped out and why."""


class MissingExtra(PanstreamError, ImportError):
    """An optional dependency is absent; the message holds the exact command that adds it to this environment."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency: {sys.executable} -m pip install {_packages(extra)}")
        self.feature = feature
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), (self.feature, self.extra)  # so that a process of a pool can send it


def import_optional(module: str, feature: str, extra: str) -> Any:
    """Return an optional dependency; raise MissingExtra if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        pass
    raise MissingExtra(feature, extra)


def _packages(extra: str) -> str:
    """Return what an extra consists of, as pip takes it: that can be had, wherever panstream itself came from."""
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
    """Return ``work()``; if that raises an error of ``caught``, raise what is ``translate`` of it, and keep nothing of
    it.
    """
    try:
        return work()
    except caught as error:
        translated_error = translate(error)
    raise translated_error
