"""What a holder sends back. Every answer names the question it belongs to, so a stray one is recognised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes
from panstream.federated.wire import Message, decode, encode

__all__ = ["Answer", "Choice", "Declined", "Introduction", "Model", "Scores", "Tables", "read_answer", "write_answer"]

SCORE_UNIT = 1 << 24  # a local score is a whole number of 2^-24 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """A holder's public facts; ``secure`` is false where a test source draws the noise."""

    holder: str
    records: int
    domain: str
    epsilon: float | None
    delta: float
    spent: float
    secure: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables:
    """Noisy tables, in the order of the question."""

    tables: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One vote."""

    child: int
    parents: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """A locally learned network: parents, and the noisy table (*parents, child) of every attribute."""

    parents: tuple[tuple[int, ...], ...]
    tables: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """Noisy local mutual informations in units of 2^-24 bits."""

    scores: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """Why a holder does not answer: ``budget``, ``schema``, ``question`` or ``fault``. Says nothing about records."""

    reason: str
    text: str


Answer: TypeAlias = Introduction | Tables | Choice | Model | Scores | Declined
_REASONS = ("budget", "schema", "question", "fault")


def write_answer(answer: Answer, question: str) -> bytes:
    """Return the bytes of an answer to the question with this digest."""
    arrays: dict[str, NDArray[Any]] = {}
    match answer:
        case Introduction():
            kind, fields = "introduction", {name: getattr(answer, name) for name in Introduction.__slots__}
        case Tables(tables=tables):
            kind, fields, arrays = "tables", {}, {str(at): table for at, table in enumerate(tables)}
        case Choice(child=child, parents=parents):
            kind, fields = "choice", {"child": child, "parents": list(parents)}
        case Model(parents=families, tables=tables):
            kind, fields = "model", {"parents": [list(family) for family in families]}
            arrays = {str(at): table for at, table in enumerate(tables)}
        case Scores(scores=scores):
            kind, fields, arrays = "scores", {}, {"scores": scores}
        case Declined(reason=reason, text=text):
            kind, fields = "refusal", {"reason": reason, "text": text}
    return encode(Message(kind=kind, fields={**fields, "question": question}, arrays=arrays))


def read_answer(data: bytes, question: str) -> Answer:
    """Read an answer to the question with this digest; raise InvalidBytes for anything else."""
    message = decode(data)
    fields = dict(message.fields)
    if fields.pop("question", None) != question:
        raise InvalidBytes("the answer belongs to another question")
    try:
        return _READERS[message.kind](fields, list(message.arrays.values()))
    except (KeyError, TypeError, ValueError):
        raise InvalidBytes("the answer is malformed: a field is missing, unknown or of a wrong type") from None


def _introduction(fields: dict[str, Any], arrays: list[NDArray[Any]]) -> Answer:
    _none(arrays)
    found = Introduction(**fields)
    texts = isinstance(found.holder, str) and isinstance(found.domain, str)
    numbers = [found.delta, found.spent, *([] if found.epsilon is None else [found.epsilon])]
    if not (texts and _count(found.records) and all(_nonnegative(each) for each in numbers)):
        raise TypeError
    if type(found.secure) is not bool:
        raise TypeError
    return found


def _tables(fields: dict[str, Any], arrays: list[NDArray[Any]]) -> Answer:
    return Tables(tables=_integers(arrays), **fields)


def _choice(fields: dict[str, Any], arrays: list[NDArray[Any]]) -> Answer:
    _none(arrays)
    child, parents = fields.pop("child"), fields.pop("parents")
    if not (_count(child) and isinstance(parents, list) and all(_count(each) for each in parents)):
        raise TypeError
    return Choice(child=child, parents=tuple(parents), **fields)


def _model(fields: dict[str, Any], arrays: list[NDArray[Any]]) -> Answer:
    families = fields.pop("parents")
    if not isinstance(families, list) or not all(
        isinstance(family, list) and all(_count(each) for each in family) for family in families
    ):
        raise TypeError
    return Model(parents=tuple(tuple(family) for family in families), tables=_integers(arrays), **fields)


def _scores(fields: dict[str, Any], arrays: list[NDArray[Any]]) -> Answer:
    (scores,) = _integers(arrays)
    return Scores(scores=scores, **fields)


def _refusal(fields: dict[str, Any], arrays: list[NDArray[Any]]) -> Answer:
    _none(arrays)
    found = Declined(**fields)
    if found.reason not in _REASONS or not isinstance(found.text, str):
        raise TypeError
    return found


_READERS = {
    "introduction": _introduction,
    "tables": _tables,
    "choice": _choice,
    "model": _model,
    "scores": _scores,
    "refusal": _refusal,
}


def _none(arrays: list[NDArray[Any]]) -> None:
    if arrays:
        raise TypeError


def _integers(arrays: list[NDArray[Any]]) -> tuple[NDArray[np.int64], ...]:
    if any(each.dtype != np.int64 for each in arrays):
        raise TypeError
    return tuple(arrays)


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _nonnegative(value: Any) -> bool:
    return type(value) in (int, float) and value >= 0
