"""The answers of a holder. Each carries the digest of its question, so an answer to another one is rejected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes
from panstream.models.federated._messages import Message, MessageBody, list_of, one_of

_REASONS = ("budget", "schema", "question", "fault", "roster")


_count = one_of(lambda value: type(value) is int and value >= 0)
_counts = list_of(_count)
_integers = one_of(lambda value: value.dtype == np.int64)
_amount = one_of(lambda value: type(value) in (int, float) and value >= 0)
_Text = Annotated[str, one_of(lambda value: isinstance(value, str))]
_Flag = Annotated[bool, one_of(lambda value: type(value) is bool)]
_Amount = Annotated[float, _amount]
_AmountOrNone = Annotated[float | None, lambda value: None if value is None else _amount(value)]
_Reason = Annotated[str, one_of(lambda value: value in _REASONS)]
_Tables = Annotated[tuple[NDArray[np.int64], ...], list_of(_integers)]


def _hex(size: int) -> Callable[[Any], Any]:
    return one_of(lambda value: isinstance(value, str) and len(bytes.fromhex(value)) == size and value == value.lower())


class _Answer(MessageBody):
    __slots__ = ()

    def write(self, question: str) -> bytes:
        """Return the bytes of the answer to the question with this digest."""
        fields = self.fields()
        arrays = {}
        if "tables" in fields:
            arrays = {str(index): table for index, table in enumerate(fields.pop("tables"))}
        elif "scores" in fields:
            arrays = {"scores": fields.pop("scores")}
        return Message(kind=self.kind, fields={**fields, "question": question}, arrays=arrays).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderInfo(_Answer):
    """A holder's public facts; ``secure`` is False if its noise comes from a test generator.

    ``pinned`` names the members of secure sums whose keys it has pinned.
    """

    kind = "introduction"

    holder: _Text
    records: Annotated[int, _count]
    domain: _Text
    epsilon: _AmountOrNone
    delta: _Amount
    spent: _Amount
    secure: _Flag
    pinned: Annotated[tuple[str, ...], list_of(one_of(lambda value: isinstance(value, str)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAnnouncement(_Answer):
    """A member's one-time key for a secure sum and its signature, both in hexadecimal."""

    kind = "opening"

    key: Annotated[str, _hex(32)]
    signature: Annotated[str, _hex(64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsAnswer(_Answer):
    """The parts of a secure sum that a holder has confirmed last, and its signature."""

    kind = "parts"

    parts: Annotated[tuple[str, ...], list_of(one_of(lambda value: isinstance(value, str)))]
    signature: Annotated[str, _hex(64)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TablesAnswer(_Answer):
    """Noisy tables, in the order of the question; those of a secure sum are masked."""

    kind = "tables"

    tables: _Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswer(_Answer):
    """The family that a holder chose: a child and its parents."""

    kind = "choice"

    child: Annotated[int, _count]
    parents: Annotated[tuple[int, ...], _counts]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalModelAnswer(_Answer):
    """A locally learned network: parents, and the noisy table (*parents, child) of every attribute."""

    kind = "model"

    parents: Annotated[tuple[tuple[int, ...], ...], list_of(_counts)]
    tables: _Tables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoresAnswer(_Answer):
    """Noisy local mutual informations in units of 2^-24 bits."""

    kind = "scores"

    scores: Annotated[NDArray[np.int64], _integers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(_Answer):
    """Why a holder does not answer: budget, schema, question, roster or fault. Independent of its records."""

    kind = "refusal"

    reason: _Reason
    text: _Text


Answer: TypeAlias = (
    HolderInfo | KeyAnnouncement | PartsAnswer | TablesAnswer | VoteAnswer | LocalModelAnswer | ScoresAnswer | Refused
)
_KINDS: dict[str, type[Answer]] = {answer.kind: answer for answer in get_args(Answer)}


def read_answer(data: bytes, question: str) -> Answer:
    """Decode an answer to the question with this digest; raise InvalidBytes for anything else."""
    message = Message.decode(data)
    fields = dict(message.fields)
    arrays = list(message.arrays.values())
    if fields.pop("question", None) != question:
        raise InvalidBytes("the answer belongs to another question")
    try:
        kind = _KINDS[message.kind]
        if "tables" in kind.__dataclass_fields__:
            fields["tables"] = arrays
        elif "scores" in kind.__dataclass_fields__:
            (fields["scores"],) = arrays
        elif arrays:
            raise TypeError
        return kind.read(fields)
    except (KeyError, TypeError, ValueError):
        raise InvalidBytes("the answer is malformed: a field is missing, unknown or of a wrong type") from None
