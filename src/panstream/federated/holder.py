"""A data holder: keeps its records, answers questions within its own budget, and trusts nobody."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Self

from panstream.errors import BudgetExhausted, InvalidBytes, InvalidParameter, PanstreamError, StoreError
from panstream.federated.answers import Answer, Declined, Introduction, write_answer
from panstream.federated.ledger import Budget, HolderLedger
from panstream.federated.mechanisms import Statistics, check, draw, loss_of
from panstream.federated.questions import Introduce, digest, read_question
from panstream.federated.schema import domain_digest
from panstream.networks.records import Records
from panstream.privacy.claim import Claim, Intrusions
from panstream.randomness import Source

__all__ = ["Holder"]


class Holder:
    """Answers an analyst's questions about ``records``.

    **Privacy.** One record, replace-one; the number of records is public. Whatever the analyst asks, in whatever order and
    however it depends on earlier answers, the answers together are (epsilon, delta)-private (docs/proofs/federated.md). The
    records themselves stay in this process's memory: a holder protects against the analyst, not against a thief of its own
    machine.

    >>> from panstream.federated import FederatedTree, Federation
    >>> from panstream.networks import Domain, Records
    >>> domain = Domain({"sex": ["f", "m"], "smokes": ["no", "yes"]})
    >>> rows = Records.read({"sex": ["f", "m"] * 500, "smokes": ["no", "yes"] * 500}, domain)
    >>> holders = [Holder(name, rows, epsilon=2.0, delta=1e-6) for name in ("north", "south")]
    >>> network = FederatedTree(epsilon=2.0, delta=1e-6).run(Federation.local(domain, holders)).network
    >>> len(network.edges)
    1
    """

    def __init__(
        self,
        name: str,
        records: Records,
        *,
        epsilon: float,
        delta: float = 0.0,
        ledger: str | os.PathLike[str] = ":memory:",
        source: Callable[[], Source] = Source,
    ) -> None:
        if not name or len(name) > 100:
            raise InvalidParameter("the name of a holder must have 1 to 100 characters")
        self.name = name
        self._statistics = Statistics(records)
        self._domain = domain_digest(records.domain)
        self._ledger = HolderLedger(
            ledger, Budget(epsilon=epsilon, delta=delta), domain=self._domain, records=len(records)
        )
        self._source = source
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Holder({self.name!r})"

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    @property
    def ledger(self) -> HolderLedger:
        """Return the holder's own ledger."""
        return self._ledger

    def claim(self) -> Claim:
        """Return what has been promised so far about one record of this holder."""
        with self._source() as source:
            secure = source.is_secure
        claim = Claim(
            epsilon=self._ledger.epsilon,
            delta=self._ledger.budget.delta,
            unit="record",
            adjacency="replace",
            intrusions=Intrusions(unannounced=0),
            releases=len(self._ledger.rows()),
            public=("the number of this holder's records", "which questions were asked"),
        )
        return claim if secure else claim.without_privacy("the noise came from a test source")

    def answer(self, data: bytes) -> bytes:
        """Return the answer to a question, always: what cannot be answered is refused with a reason."""
        name = digest(data)
        try:
            question = read_question(data)
        except InvalidBytes as error:
            return write_answer(Declined(reason="question", text=str(error)), name)
        if isinstance(question, Introduce):
            return write_answer(self._introduce(), name)
        if question.domain != self._domain:
            return write_answer(Declined(reason="schema", text="the question is about another domain"), name)
        try:
            check(question, self._statistics.records.domain)
        except InvalidParameter as error:
            return write_answer(Declined(reason="schema", text=str(error)), name)
        loss = loss_of(question)
        with self._lock:
            try:
                return self._ledger.settle(
                    name, question.kind, question.run, loss, lambda: write_answer(self._draw(question), name)
                )
            except BudgetExhausted as error:
                return write_answer(Declined(reason="budget", text=str(error)), name)
            except InvalidParameter as error:
                return write_answer(Declined(reason="question", text=str(error)), name)
            except (StoreError, PanstreamError):
                return write_answer(Declined(reason="fault", text="the holder's ledger cannot be written"), name)

    def _draw(self, question: object) -> Answer:
        with self._source() as source:
            return draw(question, self._statistics, source)  # type: ignore[arg-type]

    def _introduce(self) -> Introduction:
        budget = self._ledger.budget
        with self._source() as source:
            secure = source.is_secure
        return Introduction(
            holder=self.name,
            records=len(self._statistics.records),
            domain=self._domain,
            epsilon=budget.epsilon if math.isfinite(budget.epsilon) else None,
            delta=budget.delta,
            spent=min(self._ledger.epsilon, 1e308),
            secure=secure,
        )
