"""A data holder: answers questions about its records within its own budget, without trusting the analyst."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Self

from panstream.errors import BudgetExhausted, InvalidBytes, InvalidParameter, PanstreamError
from panstream.models.federated._answers import HolderInfo, PartsAnswer, Refused
from panstream.models.federated._messages import digest
from panstream.models.federated._question_registry import Question, read_question
from panstream.models.federated._questions import InfoQuestion
from panstream.models.federated._statistics import Statistics
from panstream.models.federated.ledger import HolderLedger
from panstream.models.federated.secure_sums import (
    JoinSum,
    Roster,
    SubmitSum,
    SumQuestion,
    new_key_announcement,
    sums_assumption,
)
from panstream.models.federated.sum_reading import ConfirmSum, RevealSum
from panstream.models.networks.records import Records
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Claim
from panstream.privacy.holder_loss import record_claim


class Holder:
    """Answers an analyst's questions about ``records``.

    Args:
        name: The holder's name, which is public.
        records: Its table.
        epsilon: Budget of every record for all answers.
        delta: The budget's delta.
        ledger: File of charges and answers; in memory by default.
        rng_factory: Makes the noise source of one answer; for tests.
        roster: The members of secure sums; without it the holder takes part in none.

    **Privacy.** One record, replace-one; the number of records is public. Whatever the analyst asks, in whatever order
    and however it depends on earlier answers, the answers together are (epsilon, delta)-private
    (docs/proofs/federated.md). The records themselves stay in this process's memory: a holder protects against the
    analyst, not against an attacker who copies the memory of its machine. With a ``roster`` it also takes part in
    secure sums (`panstream.models.federated.secure_sums`), whose noise it shares with the other members.

    ``rng_factory`` makes the noise source of one answer; tests replace it, which voids the claim.

    >>> from panstream.models.federated import FederatedTree, Federation
    >>> from panstream.models.networks import Domain, Records
    >>> domain = Domain({"sex": ["f", "m"], "smokes": ["no", "yes"]})
    >>> rows = Records.read({"sex": ["f", "m"] * 500, "smokes": ["no", "yes"] * 500}, domain)
    >>> holders = [Holder(name, rows, epsilon=2.0, delta=1e-6) for name in ("north", "south")]
    >>> network = FederatedTree(epsilon=2.0, delta=1e-6).run(Federation(domain, holders)).network
    >>> len(network.edges)
    1
    """

    remote = False  # a holder in this process is its own channel

    def __init__(
        self,
        name: str,
        records: Records,
        *,
        epsilon: float,
        delta: float = 0.0,
        ledger: str | os.PathLike[str] = ":memory:",
        rng_factory: Callable[[], NoiseSource] = NoiseSource,
        roster: Roster | None = None,
    ) -> None:
        if not name or len(name) > 100:
            raise InvalidParameter("the name of a holder must have 1 to 100 characters")
        self.name = name
        self._statistics = Statistics(records)
        self._domain = records.domain.digest()
        self.ledger = HolderLedger(ledger, epsilon=epsilon, delta=delta, domain=self._domain, records=len(records))
        self._rng_factory = rng_factory
        self._roster = roster
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Holder({self.name!r})"

    def close(self) -> None:
        """Close the ledger file; stored answers and charges remain in it."""
        self.ledger.close()

    def claim(self) -> Claim:
        """Return the claim about one record of this holder, for the answers given so far."""
        bounds = self.ledger.assumptions()
        worst_epsilon = self.ledger.total.if_all_collude.at(self.ledger.delta)
        claim = record_claim(
            self.ledger.epsilon,
            self.ledger.delta,
            releases=len(self.ledger.rows()),
            public=("the number of this holder's records", "which questions were asked"),
            assumption=sums_assumption(bounds, worst_epsilon) if bounds else "",
        )
        return claim if self._is_secure() else claim.without_privacy("the noise came from a test source")

    def answer(self, data: bytes) -> bytes:
        """Return the encoded answer to an encoded question.

        It never raises for a bad question: an answer of kind `Refused` gives the reason. Checks that need no record
        come first, so a refusal depends on the question and the ledger only.

        Args:
            data: The encoded question.
        """
        name = digest(data)
        try:
            question = read_question(data)
        except InvalidBytes as error:
            return Refused(reason="question", text=str(error)).write(name)
        if isinstance(question, InfoQuestion):
            return self._introduce().write(name)
        if question.domain != self._domain:
            return Refused(reason="schema", text="the question is about another domain").write(name)
        try:
            question.check(self._statistics.domain)
        except InvalidParameter as error:
            return Refused(reason="schema", text=str(error)).write(name)

        if isinstance(question, SumQuestion):
            problem = "this holder has no roster" if self._roster is None else self._roster.problem(self.name, question)
            if problem is not None:
                return Refused(reason="roster", text=problem).write(name)
        with self._lock:
            try:
                return self._stored_or_drawn(question, name)
            except BudgetExhausted as error:
                return Refused(reason="budget", text=str(error)).write(name)
            except InvalidParameter as error:
                return Refused(reason="question", text=str(error)).write(name)
            except PanstreamError:
                return Refused(reason="fault", text="the holder's ledger cannot be written").write(name)

    def _stored_or_drawn(self, question: Question, name: str) -> bytes:
        """Return the stored answer, or charge the ledger and draw one."""
        assert not isinstance(question, InfoQuestion)
        if isinstance(question, JoinSum):
            return self.ledger.open(name, lambda: self._announce_key(question, name))
        if isinstance(question, RevealSum):
            return self._reveal(question, name)
        if isinstance(question, ConfirmSum):
            return self._confirm(question, name)

        def draw() -> bytes:
            with self._rng_factory() as rng:
                if not isinstance(question, SubmitSum):
                    return question.draw(self._statistics, rng).write(name)
                assert self._roster is not None
                # Closing the sum and storing the answer is one commit. Without dropouts nothing else needs the secret,
                # so after a crash either the sum can still be answered, or the key that could unmask it is gone.
                if question.dropouts:
                    secret = self.ledger.start_reading(question.opened, question.closed, question.members)
                else:
                    secret = self.ledger.take_secret(question.opened)
                tables = question.draw(self._statistics, rng)
                return question.masked(tables, self.name, secret, self._roster).write(name)

        answer = self.ledger.answer_once(name, question.kind, question.run, question.loss(), draw, question.assumption)
        if isinstance(question, SubmitSum):
            self.ledger.empty_wal()
        return answer

    def _announce_key(self, question: JoinSum, name: str) -> tuple[bytes, bytes]:
        assert self._roster is not None
        secret, announcement = new_key_announcement(question, self.name, self._roster)
        return secret, announcement.write(name)

    def _confirm(self, question: ConfirmSum, name: str) -> bytes:
        assert self._roster is not None
        self._require_part(question)
        parts = self.ledger.confirm(question.closed, question.parts_named)
        signature = self._roster.key.sign(question.with_parts(parts).statement)
        return PartsAnswer(parts=parts, signature=signature.hex()).write(name)

    def _reveal(self, question: RevealSum, name: str) -> bytes:
        roster = self._roster
        assert roster is not None
        self._require_part(question)
        question.check_signatures(roster)
        domain = self._statistics.domain

        def make(secret: bytes) -> bytes:
            return question.reveal(domain, self.name, secret, roster).write(name)

        return self.ledger.reveal_once(question.closed, question.parts_named, make)

    def _require_part(self, question: ConfirmSum) -> None:
        if self.name not in question.parts_named:
            raise InvalidParameter("this holder is not a part of the sum")

    def _introduce(self) -> HolderInfo:
        limit = self.ledger.limit
        return HolderInfo(
            holder=self.name,
            records=len(self._statistics.records),
            domain=self._domain,
            epsilon=limit if math.isfinite(limit) else None,
            delta=self.ledger.delta,
            spent=min(self.ledger.epsilon, 1e308),
            secure=self._is_secure(),
            pinned=() if self._roster is None else tuple(sorted(self._roster.members)),
        )

    def _is_secure(self) -> bool:
        with self._rng_factory() as rng:
            return rng.is_secure
