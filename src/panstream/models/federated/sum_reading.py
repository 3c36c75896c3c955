"""Reading a secure sum from which members dropped out after it was closed.

Every member that answered `SubmitSum` is part of the sum. `ConfirmSum` names the parts that the analyst has, and every
one of them signs the list. `RevealSum` carries the signatures of all parts; each part then sends the sum of the vectors
that the parts share with it. Those of any M - d members give the sum of the parts' masks, and of nothing else.

A holder signs lists that become shorter only (a part may drop out before it has signed), reveals for the last list that
it signed, once, and signs nothing afterwards. So of two lists that can be read, either none of the honest parts is in
both, or those who revealed for the longer one are not in the shorter one. What an analyst that shows different lists to
different holders can compute are therefore sums over disjoint sets, each with M - t - d honest parts of the noise or
more (docs/proofs/federated.md, Theorem 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NoReturn

import numpy as np
from numpy.typing import NDArray

from panstream.errors import FederationAborted, InvalidParameter
from panstream.models.federated._answers import HolderInfo, KeyAnnouncement, PartsAnswer, TablesAnswer
from panstream.models.federated._mask_code import combine, decode, read_field
from panstream.models.federated._messages import digest, list_of, one_of
from panstream.models.federated._questions import Table
from panstream.models.federated.secure_sums import (
    ClosedSum,
    JoinSum,
    Names,
    Roster,
    SubmitSum,
    default_colluders,
    default_dropouts,
    noise_share,
    question_fields,
    split_cells,
)
from panstream.models.federated.summed_tables import SummedTables, check_totals
from panstream.models.networks.domain import Domain
from panstream.privacy.claim import count_of

if TYPE_CHECKING:
    from panstream.models.federated.analyst import Federation

_LABEL = b"panstream secure sum 1 parts\0"
_Signatures = Annotated[tuple[str, ...], list_of(one_of(lambda value: len(bytes.fromhex(value)) == 64))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmSum(ClosedSum):
    """Ask for a signature under the list of members whose vectors are the parts of the sum. Free."""

    kind = "confirm-sum"

    parts_named: Names

    def __post_init__(self) -> None:
        ClosedSum.__post_init__(self)
        named = self.parts_named
        if list(named) != sorted(set(named) & set(self.members)):
            raise InvalidParameter("the parts of a sum must be members of it, in order, each once")
        if not self.dropouts or len(named) < len(self.members) - self.dropouts:
            raise InvalidParameter(
                f"the sum cannot be read from {len(named)} parts: it allows {self.dropouts} dropouts"
            )

    @property
    def statement(self) -> bytes:
        """Return the bytes that a part signs."""
        return _LABEL + bytes.fromhex(digest(ConfirmSum(**question_fields(self, ConfirmSum)).write()))

    def with_parts(self, parts: Sequence[str]) -> ConfirmSum:
        """Return the question about other parts of the same sum."""
        return ConfirmSum(**{**question_fields(self, ConfirmSum), "parts_named": tuple(parts)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealSum(ConfirmSum):
    """Ask for the sum of the vectors that the parts share with a holder, given the signatures of all parts. Free."""

    kind = "reveal-sum"

    signatures: _Signatures

    def check_signatures(self, roster: Roster) -> None:
        """Raise InvalidParameter unless every part has signed the list.

        Args:
            roster: The members' pinned keys.
        """
        if len(self.signatures) != len(self.parts_named):
            raise InvalidParameter("there must be one signature per part")
        for name, signature in zip(self.parts_named, self.signatures, strict=True):
            if not roster.is_signed(name, self.statement, signature):
                raise InvalidParameter(f"{name} has not confirmed the parts of the sum")

    def reveal(self, domain: Domain, name: str, secret: bytes, roster: Roster) -> TablesAnswer:
        """Return the sum of the vectors in the parts' masks that the holder ``name`` can derive.

        Args:
            domain: The domain of the tables.
            name: The holder's own name.
            secret: Its one-time key.
            roster: The members' pinned keys.
        """
        size = sum(math.prod(table.shape(domain)) for table in self.tables)
        pairs = self.vectors(name, secret, roster, size)
        summed = combine(((1, pairs[part].received) for part in self.parts_named), size)
        return TablesAnswer(tables=(summed.astype(np.int64),))


def secure_sums(
    federation: Federation, tables: Sequence[Table], *, colluders: int | None, dropouts: int | None
) -> SummedTables:
    """Ask for ``tables`` that can be read only as a sum; see `Federation.secure_sums`.

    Args:
        federation: The holders.
        tables: What to ask for.
        colluders: How many holders may help the analyst; by default a third of them.
        dropouts: How many may drop out after the sum was closed; by default one of five or more.
    """
    join, keys = _join(federation, tables, colluders, dropouts)
    question = SubmitSum.after(join, keys)
    federation.allow_dropouts(join.dropouts)
    shapes = [table.shape(federation.domain) for table in tables]
    size = sum(map(math.prod, shapes))

    def check(answer: TablesAnswer, _: HolderInfo) -> None:
        if [table.shape for table in answer.tables] != [(size,)] * (join.dropouts + 1):
            raise InvalidParameter("its masked tables differ in size from the ones that were requested")
        for table in answer.tables:
            read_field(table)

    answers = federation.ask(question, TablesAnswer, check)
    vectors = {holder.holder: [read_field(table) for table in answer.tables] for holder, answer in answers}
    if len(vectors) < len(join.members) - join.dropouts:
        _abort(len(join.members) - len(vectors), join.dropouts)
    records = {holder.holder: holder.records for holder, _ in answers}
    parts = join.members
    mask = np.zeros(size, np.uint64)
    if join.dropouts:
        parts, mask = _read_mask(federation, question, vectors)
    total = combine([(1, vectors[part][0]) for part in parts] + [(-1, mask)], size)
    single = [math.sqrt(noise_share(table.budget, join.parts).variance) for table in tables]
    sums = SummedTables(
        attributes=tuple(table.attributes for table in tables),
        tables=split_cells(total, shapes),
        deviations=tuple(deviation * math.sqrt(len(parts)) for deviation in single),
        records=sum(records[part] for part in parts),
        holders=len(parts),
        noise_parts=join.parts,
        assumption=question.assumption,
    )
    # One masked vector looks uniform, so only the sum can be checked for plausibility.
    check_totals(sums.tables, sums.deviations, sums.records, "the sum does")
    return sums


def _join(
    federation: Federation, tables: Sequence[Table], colluders: int | None, dropouts: int | None
) -> tuple[JoinSum, list[KeyAnnouncement]]:
    """Collect the keys of all members; who fails is dropped, free of charge, and the others are asked again."""
    while True:
        names = tuple(sorted(holder.holder for holder in federation.holders))
        join = JoinSum(
            run=federation.run,
            domain=federation.schema,
            tables=tuple(tables),
            members=names,
            colluders=default_colluders(len(names)) if colluders is None else colluders,
            dropouts=default_dropouts(len(names)) if dropouts is None else dropouts,
        )
        keys = {holder.holder: key for holder, key in federation.ask(join, KeyAnnouncement, lambda _, __: None)}
        if len(keys) == len(names):
            return join, [keys[name] for name in names]


def _read_mask(
    federation: Federation, question: SubmitSum, vectors: dict[str, list[NDArray[np.uint64]]]
) -> tuple[tuple[str, ...], NDArray[np.uint64]]:
    """Let the members agree on the parts of the sum; return these and the sum of their masks."""
    confirm = ConfirmSum(**question_fields(question, SubmitSum), parts_named=tuple(sorted(vectors)))
    while True:
        signed = {holder.holder: answer for holder, answer in federation.ask(confirm, PartsAnswer, lambda _, __: None)}
        parts = set(signed).intersection(confirm.parts_named, *(answer.parts for answer in signed.values()))
        if parts == set(confirm.parts_named) and all(set(answer.parts) == parts for answer in signed.values()):
            break
        if parts == set(confirm.parts_named) or len(parts) < len(question.members) - question.dropouts:
            _abort(len(question.members) - len(parts), question.dropouts)
        confirm = confirm.with_parts(sorted(parts))
    signatures = tuple(signed[part].signature for part in confirm.parts_named)
    reveal = RevealSum(**question_fields(confirm, ConfirmSum), signatures=signatures)
    size = next(iter(vectors.values()))[0].size

    def check(answer: TablesAnswer, _: HolderInfo) -> None:
        if [table.shape for table in answer.tables] != [(size,)]:
            raise InvalidParameter("its vector differs in size from the sum")
        read_field(answer.tables[0])

    numbers = {member: number for number, member in enumerate(question.members, 1)}
    revealed = {
        numbers[holder.holder]: read_field(answer.tables[0])
        for holder, answer in federation.ask_some(reveal, TablesAnswer, check)
    }
    if len(revealed) < len(question.members) - question.dropouts:
        _abort(len(question.members) - len(revealed), question.dropouts)
    checks = [
        combine(((1, vectors[part][1 + power]) for part in confirm.parts_named), size)
        for power in range(question.dropouts)
    ]
    return confirm.parts_named, decode(revealed, checks, len(question.members))


def _abort(failed: int, dropouts: int) -> NoReturn:
    raise FederationAborted(
        f"{count_of(failed, 'holder')} failed after the sum was closed, and only {dropouts} may: the others' parts "
        "cannot be read without them. When they are back, run again under the same label, free of charge; under "
        "another label the run is charged again"
    )
