"""What a holder sends back. Every answer names the question it belongs to, so a stray one is recognised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes
from panstream.federated.wire import Content, Message, Readers

_REASONS = ("budget", "schema", "question", "fault", "roster")


def _only(allowed: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not allowed(value):
            raise TypeError
        return value

    return read


def _lists_of(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read_all(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list):
            raise TypeError
        return tuple(read(each) for each in values)

    return read_all


_text = _only(lambda value: isinstance(value, str))
_count = _only(lambda value: type(value) is int and value >= 0)
_amount = _only(lambda value: type(value) in (int, float) and value >= 0)
_counts = _lists_of(_count)
_integers = _only(lambda value: value.dtype == np.int64)
_tables = _lists_of(_integers)


class _Answer(Content):
    __slots__ = ()

    def write(self, question: str) -> bytes:
        """Return the bytes of the answer to the question with this digest."""
        fields, arrays = self.fields(), {}
        if "tables" in fields:
            arrays = {str(at): table for at, table in enumerate(fields.pop("tables"))}
        elif "scores" in fields:
            arrays = {"scores": fields.pop("scores")}
        return Message(kind=self.kind, fields={**fields, "question": question}, arrays=arrays).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction(_Answer):
    """A holder's public facts; ``secure`` is false where a test source draws the noise."""

    kind = "introduction"
    readers: ClassVar[Readers] = {
        "holder": _text,
        "records": _count,
        "domain": _text,
        "epsilon": lambda value: None if value is None else _amount(value),
        "delta": _amount,
        "spent": _amount,
        "secure": _only(lambda value: type(value) is bool),
    }

    holder: str
    records: int
    domain: str
    epsilon: float | None
    delta: float
    spent: float
    secure: bool


def _hex(size: int) -> Callable[[Any], Any]:
    return _only(lambda value: isinstance(value, str) and len(bytes.fromhex(value)) == size and value == value.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening(_Answer):
    """A member's one-time key for a secure sum and its signature, both in hexadecimal."""

    kind = "opening"
    readers: ClassVar[Readers] = {"key": _hex(32), "signature": _hex(64)}

    key: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables(_Answer):
    """Noisy tables, in the order of the question; those of a secure sum are masked."""

    kind = "tables"
    readers: ClassVar[Readers] = {"tables": _tables}

    tables: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(_Answer):
    """One vote."""

    kind = "choice"
    readers: ClassVar[Readers] = {"child": _count, "parents": _counts}

    child: int
    parents: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model(_Answer):
    """A locally learned network: parents, and the noisy table (*parents, child) of every attribute."""

    kind = "model"
    readers: ClassVar[Readers] = {"parents": _lists_of(_counts), "tables": _tables}

    parents: tuple[tuple[int, ...], ...]
    tables: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores(_Answer):
    """Noisy local mutual informations in units of 2^-24 bits."""

    kind = "scores"
    readers: ClassVar[Readers] = {"scores": _integers}

    scores: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined(_Answer):
    """Why a holder does not answer (budget, schema, question, roster or fault). Says nothing about records."""

    kind = "refusal"
    readers: ClassVar[Readers] = {"reason": _only(lambda value: value in _REASONS), "text": _text}

    reason: str
    text: str


Answer: TypeAlias = Introduction | Opening | Tables | Choice | Model | Scores | Declined
_KINDS: dict[str, type[Answer]] = {
    each.kind: each for each in (Introduction, Opening, Tables, Choice, Model, Scores, Declined)
}


def read_answer(data: bytes, question: str) -> Answer:
    """Read an answer to the question with this digest; raise InvalidBytes for anything else."""
    message = Message.decode(data)
    fields, arrays = dict(message.fields), list(message.arrays.values())
    if fields.pop("question", None) != question:
        raise InvalidBytes("the answer belongs to another question")
    try:
        kind = _KINDS[message.kind]
        if "tables" in kind.readers:
            fields["tables"] = arrays
        elif "scores" in kind.readers:
            (fields["scores"],) = arrays
        elif arrays:
            raise TypeError
        return kind.read(fields)
    except (KeyError, TypeError, ValueError):
        raise InvalidBytes("the answer is malformed: a field is missing, unknown or of a wrong type") from None
