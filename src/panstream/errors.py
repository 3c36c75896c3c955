"""Every exception panstream raises.

::

    PanstreamError
    ├── InvalidParameter      a public parameter breaks its rule          (also a ValueError)
    ├── InvalidBatch          a batch was refused whole; state unchanged  (also a ValueError)
    ├── BudgetExhausted       the call would cost more than was declared
    │   └── NotBounded        ... because nothing bounds what it would cost
    ├── NotSupported          the algorithm cannot do this, whatever the data
    ├── InvalidBytes          serialised bytes are foreign, damaged or too new (also a ValueError)
    ├── MergeRefused          the two states must not be merged
    ├── InsecureSource        a test source was used where real privacy is promised
    ├── ClockJumped           the system's clock cannot be believed, so nothing is drawn
    ├── StoreError            the state could not be read or written; the old state is intact
    │   ├── StoreLocked       another process has the store open
    │   └── StoreDamaged      the files are corrupted, foreign, rolled back or too new
    ├── RequestRefused        a server refused a request; ``code`` says why
    │   └── BatchUncertain    a batch may or may not have been counted, and was not sent again
    ├── ProducerRefused       a batch comes from a producer that is not open, or not in order
    ├── ServerUnreachable     a server did not answer, or was busy, however often it was asked
    ├── HolderUnreachable     a data holder did not answer; asking again costs nothing
    ├── FederationStopped     too few holders are left, or one refused and all are needed
    └── MissingExtra          an optional dependency is absent            (also an ImportError)

A message names the parameter, the rule and the public value. It never contains an item, a key or a state.
"""

from __future__ import annotations

__all__ = [
    "BatchUncertain",
    "BudgetExhausted",
    "ClockJumped",
    "FederationStopped",
    "HolderUnreachable",
    "InsecureSource",
    "InvalidBatch",
    "InvalidBytes",
    "InvalidParameter",
    "MergeRefused",
    "MissingExtra",
    "NotBounded",
    "NotSupported",
    "PanstreamError",
    "ProducerRefused",
    "RequestRefused",
    "ServerUnreachable",
    "StoreDamaged",
    "StoreError",
    "StoreLocked",
]


class PanstreamError(Exception):
    """Root of all errors raised on purpose by panstream."""


class InvalidParameter(PanstreamError, ValueError):
    """A public parameter breaks its rule."""


class InvalidBatch(PanstreamError, ValueError):
    """A batch was refused as a whole; the state is as it was before the call.

    ``row`` is the zero-based position of the first offending row, or ``None`` where the fault
    is not in one row (a wrong container type, say).
    """

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message if row is None else f"row {row}: {message}")
        self.row = row


class BudgetExhausted(PanstreamError):
    """The call would cost more than was declared; nothing happened."""


class NotBounded(BudgetExhausted):
    """Nothing bounds what the call would cost the ``unit`` that a limit was declared for; nothing happened."""

    def __init__(self, message: str, *, unit: str) -> None:
        super().__init__(message)
        self.unit = unit


class NotSupported(PanstreamError):
    """The algorithm cannot do this, whatever the data."""


class InvalidBytes(PanstreamError, ValueError):
    """Serialised bytes are foreign, damaged, or of a version this release does not know."""


class MergeRefused(PanstreamError):
    """The two states must not be merged."""


class InsecureSource(PanstreamError):
    """A test source was used where real privacy is promised."""


class RequestRefused(PanstreamError):
    """A server refused a request; sending it again would not help."""

    def __init__(self, message: str, *, code: str, status: int) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class BatchUncertain(RequestRefused):
    """A batch may or may not have been counted: it was sent without an answer, and now the server cannot tell."""


class ProducerRefused(PanstreamError):
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


class HolderUnreachable(PanstreamError):
    """A data holder did not answer in time, or not at all; asking again costs nothing."""


class FederationStopped(PanstreamError):
    """A run over several holders cannot go on; the message says who dropped out and why."""


class MissingExtra(PanstreamError, ImportError):
    """An optional dependency is absent; the message holds the exact pip command."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency: pip install 'panstream[{extra}]'")
        self.extra = extra
