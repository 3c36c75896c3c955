"""The analyst's side: ask all holders, check their answers, and continue without holders that fail."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from panstream.errors import FederationAborted, InvalidBytes, InvalidParameter, PeerUnreachable
from panstream.models.federated._answers import Answer, HolderInfo, Refused, TablesAnswer, read_answer
from panstream.models.federated._messages import digest
from panstream.models.federated._question_registry import Question
from panstream.models.federated._questions import CountTables, InfoQuestion, Noise, Table
from panstream.models.federated.sum_reading import secure_sums
from panstream.models.federated.summed_tables import SummedTables, check_totals
from panstream.models.networks.domain import Domain
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork
from panstream.primitives import validation as checks
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim
from panstream.privacy.composition import compose_per_holder
from panstream.privacy.holder_loss import record_claim
from panstream.privacy.table_loss import table_kappa, table_sigma

AnswerT = TypeVar("AnswerT", bound=Answer)


class Channel(Protocol):
    """A connection to one holder: sends the bytes of a question and returns those of the answer.

    A `Holder` in this process is its own channel. Remote channels are asked concurrently, each in a thread.
    """

    @property
    def name(self) -> str:
        """Return the label of the holder in reports until its own name is known."""

    @property
    def remote(self) -> bool:
        """Return whether a question waits for another process, so that threads gain time."""

    def answer(self, data: bytes) -> bytes:
        """Return the bytes of the answer to a question, or raise `PeerUnreachable`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedModel:
    """A network, the claim about every record of every holder, and which holders took part or were dropped.

    Args:
        network: The model.
        claim: What every record of every holder has lost.
        method: Name of the method.
        run: Label of the run.
        records: Number of records of the holders that took part.
        holders: Names of the holders that took part.
        dropped: Why each of the others was dropped.
        questions: How many questions were asked.
        facts: Further public facts about the run.
    """

    network: BayesianNetwork | Mixture
    claim: Claim
    method: str
    run: str
    records: int
    holders: tuple[str, ...]
    dropped: dict[str, str]
    questions: int
    facts: dict[str, Any] = field(default_factory=dict)


class Federation:
    """A run over several holders: channels to them, or the holders themselves where they are in this process.

    ``run`` labels the questions: run the same label again and every holder sends its stored answers, free of charge;
    the default is a new random label. A holder that is unreachable in ``attempts`` tries, refuses, or sends an invalid
    answer is dropped for the rest of the run; with fewer than ``minimum`` holders the run raises FederationAborted.
    ``report`` is called with a line of public text for every event.

    Args:
        domain: The attributes, on which all holders agree.
        channels: Channels to the holders, or the holders themselves.
        run: Label of the run; the same label brings the stored answers.
        minimum: How many holders must take part; after a secure sum was closed, its dropouts may be missing.
        attempts: How often a holder that cannot be reached is asked.
        report: Called with a line of public text for every event.
    """

    def __init__(
        self,
        domain: Domain,
        channels: Sequence[Channel],
        *,
        run: str | None = None,
        minimum: int = 1,
        attempts: int = 3,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        checks.require_integer_in_range(1, len(channels), minimum=minimum)
        checks.require_at_least(1, attempts=attempts)
        self.domain = domain
        self.schema = domain.digest()
        self.run = _random_label() if run is None else run
        self.minimum = minimum
        self.dropped: dict[str, str] = {}
        self.questions = 0
        self._attempts = attempts
        self.report = report
        self._channels = list(channels)
        self._present: dict[int, HolderInfo] | None = None

    @property
    def holders(self) -> list[HolderInfo]:
        """Return the holders that take part, in the order given; the first access asks all of them for their info."""
        if self._present is None:
            self._introduce()
        assert self._present is not None
        return list(self._present.values())

    @property
    def records(self) -> int:
        """Return the number of records of all holders that take part."""
        return sum(holder.records for holder in self.holders)

    def introductions(self) -> list[HolderInfo]:
        """Ask the holders that take part for their current info, such as the epsilon they have spent.

        A holder that does not answer is missing from the list.
        """
        return [info for _, info in self.ask_some(InfoQuestion(run=self.run), HolderInfo, lambda _, __: None)]

    def allow_dropouts(self, dropouts: int) -> None:
        """Tolerate the loss of this many of the present holders, whatever ``minimum`` was.

        Args:
            dropouts: How many of them may fail.
        """
        self.minimum = min(self.minimum, len(self.holders) - dropouts)

    def ask(
        self, question: Question, kind: type[AnswerT], check: Callable[[AnswerT, HolderInfo], None]
    ) -> list[tuple[HolderInfo, AnswerT]]:
        """Ask all a ``question`` for a ``kind`` of answer; return (holder, answer) of those that passed ``check``.

        ``check`` rejects an answer by raising InvalidParameter, which drops the holder.
        """
        if not self.holders:
            raise FederationAborted("no holder takes part")
        assert self._present is not None
        answers = self._ask(question, kind, check)
        return [(self._present[index], answer) for index, answer in answers.items()]

    def sums(self, noise: Noise, tables: Sequence[Table], *, part: str = "", clip: bool = False) -> SummedTables:
        """Ask for ``tables`` with ``noise`` and add them up; ``clip`` cuts holders' negatives, which biases the sum.

        A method that asks for the same tables twice must name the ``part`` of the run: an equal question gets the
        stored answer, with the same noise.
        """
        run = f"{self.run} {part}" if part else self.run
        question = CountTables(run=run, domain=self.schema, noise=noise, tables=tuple(tables))
        single = [_deviation(noise, table.budget) for table in tables]

        def plausible(counts: Sequence[NDArray[np.int64]], holder: HolderInfo) -> None:
            check_totals(counts, single, holder.records, "its tables do")

        return self._sum_answers(question, tables, single, plausible, clip=clip)

    def _sum_answers(
        self,
        question: Question,
        tables: Sequence[Table],
        single: Sequence[float],
        check: Callable[[Sequence[NDArray[np.int64]], HolderInfo], None],
        *,
        clip: bool = False,
    ) -> SummedTables:
        """Ask for tables and add them up; ``single`` has the noise's standard deviation per table at one holder."""
        shapes = [table.shape(self.domain) for table in tables]

        def shaped(answer: TablesAnswer, holder: HolderInfo) -> None:
            if [table.shape for table in answer.tables] != shapes:
                raise InvalidParameter("its tables have other shapes than those asked for")
            check(answer.tables, holder)

        answers = self.ask(question, TablesAnswer, shaped)
        totals = [np.zeros(shape, np.int64) for shape in shapes]
        for _, answer in answers:
            for total, table in zip(totals, answer.tables, strict=True):
                total += np.maximum(table, 0) if clip else table
        return SummedTables(
            attributes=tuple(table.attributes for table in tables),
            tables=tuple(totals),
            deviations=tuple(deviation * math.sqrt(len(answers)) for deviation in single),
            records=sum(holder.records for holder, _ in answers),
            holders=len(answers),
        )

    def secure_sums(
        self, tables: Sequence[Table], *, colluders: int | None = None, dropouts: int | None = None
    ) -> SummedTables:
        """Ask for ``tables`` that can be read only as a sum, whichever ``colluders`` holders help the analyst.

        A holder that fails in the first round (keys, free of charge) is dropped and the round is repeated without it.
        Afterwards up to ``dropouts`` may fail: before they have sent their tables and confirmed the list of parts, the
        sum is that of the others; later it still has their tables. If more fail, masks remain that nobody can remove:
        the run raises FederationAborted, and another run is charged again.

        Args:
            tables: What to ask for.
            colluders: How many holders may help the analyst; by default a third of them.
            dropouts: How many others may fail after the first round; by default one of five or more.
        """
        return secure_sums(self, tables, colluders=colluders, dropouts=dropouts)

    def all_tables(self, degree: int, budget: float) -> list[Table]:
        """Return the tables of all sets of ``degree + 1`` attributes (or of all), at equal shares of ``budget``."""
        size = min(degree + 1, len(self.domain))
        count = math.comb(len(self.domain), size)
        assert count < 1 << 20, "too many tables"
        sets = itertools.combinations(range(len(self.domain)), size)
        return [Table(attributes=attributes, budget=budget / count) for attributes in sets]

    def finish(
        self,
        network: BayesianNetwork | Mixture,
        method: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        assumption: str = "",
        **facts: Any,
    ) -> FederatedModel:
        """Return ``network``, by ``method``, of a run in which each holder spent at most (``epsilon``, ``delta``).

        The claim is the worst over the holders; one whose noise came from a test generator voids it. It rests
        on ``assumption``; ``facts`` are further public facts about the run.
        """
        present = self.holders
        holder_claim = record_claim(
            epsilon,
            delta,
            releases=self.questions,
            public=("the number of records of every holder",),
            assumption=assumption,
        )
        void_claim = holder_claim.without_privacy("the noise of a holder came from a test source")
        claim = replace(
            compose_per_holder([holder_claim if holder.secure else void_claim for holder in present]),
            releases=holder_claim.releases,
        )
        return FederatedModel(
            network=network,
            claim=claim,
            method=method,
            run=self.run,
            records=self.records,
            holders=tuple(holder.holder for holder in present),
            dropped=dict(self.dropped),
            questions=self.questions,
            facts=facts,
        )

    def _introduce(self) -> None:
        self._present = {}
        channels = dict(enumerate(self._channels))

        def check(introduction: HolderInfo, _: HolderInfo | None) -> None:
            if introduction.domain != self.schema:
                raise InvalidParameter("its domain is not the one that was agreed on")
            if introduction.records < 1:
                raise InvalidParameter("it has no records")

        introductions, failures = self._gather(channels, InfoQuestion(run=self.run), HolderInfo, check)
        self._drop(failures)
        names = [introduction.holder for introduction in introductions.values()]
        if len(set(names)) != len(names):
            raise FederationAborted("two holders have the same name")
        self._present = introductions
        self._require_minimum()
        self.report(
            f"{len(introductions)} holders take part: "
            + ", ".join(f"{holder.holder} ({holder.records:,})" for holder in introductions.values())
        )

    def _ask(self, question: Question, kind: type[AnswerT], check: Callable[..., None]) -> dict[int, AnswerT]:
        assert self._present is not None
        channels = {index: self._channels[index] for index in self._present}
        answers, failures = self._gather(channels, question, kind, check)
        self._drop(failures)
        self._present = {index: holder for index, holder in self._present.items() if index in answers}
        self._require_minimum()
        return answers

    def ask_some(
        self, question: Question, kind: type[AnswerT], check: Callable[[AnswerT, HolderInfo], None]
    ) -> list[tuple[HolderInfo, AnswerT]]:
        """Ask like `ask`, but drop nobody: who does not answer has taken part already.

        Args:
            question: The question.
            kind: The kind of answer.
            check: Raises InvalidParameter for an answer that is not to be used.
        """
        assert self._present is not None
        channels = {index: self._channels[index] for index in self._present}
        answers, failures = self._gather(channels, question, kind, check)
        for holder, reason in failures.items():
            self.report(f"{holder} no longer answers; what it sent before is used: {reason}")
        return [(self._present[index], answer) for index, answer in answers.items()]

    def _gather(
        self, channels: dict[int, Channel], question: Question, kind: type[AnswerT], check: Callable[..., None]
    ) -> tuple[dict[int, AnswerT], dict[str, str]]:
        """Return the answers by channel, and for the other holders why there is none."""
        data = question.write()
        name = digest(data)
        self.questions += 1

        present = self._present or {}

        def ask_channel(index: int) -> AnswerT | str:
            return self._answer_or_reason(
                channels[index], data, name, kind, lambda answer: check(answer, present.get(index))
            )

        if any(channel.remote for channel in channels.values()):
            with ThreadPoolExecutor(min(32, len(channels))) as pool:
                replies = list(pool.map(ask_channel, channels))
        else:
            replies = [ask_channel(index) for index in channels]
        answers: dict[int, AnswerT] = {}
        failures: dict[str, str] = {}
        for index, reply in zip(channels, replies, strict=True):
            if isinstance(reply, str):
                holder = present[index].holder if index in present else channels[index].name
                failures[holder] = reply
            else:
                answers[index] = reply
        return answers, failures

    def _drop(self, failures: dict[str, str]) -> None:
        self.dropped |= failures
        for holder, reason in failures.items():
            self.report(f"{holder} is left out: {reason}")

    def _answer_or_reason(
        self, channel: Channel, data: bytes, name: str, kind: type[AnswerT], check: Callable[[AnswerT], None]
    ) -> AnswerT | str:
        """Return the answer, or why there is none.

        Retries cost no budget: the holder's ledger returns the stored answer to an equal question.
        """
        reason = "it did not answer"
        for _ in range(self._attempts):
            try:
                answer = read_answer(channel.answer(data), name)
            except PeerUnreachable as error:
                reason = str(error)
                continue
            except InvalidBytes as error:
                reason = f"what it sent is not an answer ({error})"
                continue
            if isinstance(answer, Refused):
                return f"it refused ({answer.reason}): {answer.text}"
            if not isinstance(answer, kind):
                return "it answered another kind of question"
            try:
                check(answer)
            except InvalidParameter as error:
                return str(error)
            return answer
        return reason

    def _require_minimum(self) -> None:
        remaining = len(self._present or {})
        if remaining < self.minimum:
            reasons = "; ".join(f"{holder}: {reason}" for holder, reason in self.dropped.items())
            raise FederationAborted(f"{remaining} holders are left where at least {self.minimum} are needed. {reasons}")


def _deviation(noise: Noise, budget: float) -> float:
    if noise == "laplace":
        return math.sqrt(DiscreteLaplace.at_most(table_kappa(budget)).variance)
    return math.sqrt(DiscreteGaussian.at_least(table_sigma(budget)).variance)


def _random_label() -> str:
    with NoiseSource() as rng:
        return "".join(f"{int(word):08x}" for word in rng.uniform_below(1 << 32, 4))
