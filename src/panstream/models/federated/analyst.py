"""The analyst's side: asks all holders, checks what comes back, goes on without those that fail."""

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
from panstream.models.federated._answers import Answer, HolderInfo, KeyAnnouncement, Refused, TablesAnswer, read_answer
from panstream.models.federated._messages import digest
from panstream.models.federated._question_registry import Question
from panstream.models.federated._questions import CountTables, InfoQuestion, Noise, Table
from panstream.models.federated.secure_sums import JoinSum, SubmitSum, default_colluders, noise_share
from panstream.models.networks import structure_search as baselines
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
_FAR = 20.0  # standard deviations: a table further off than this did not come from the law that was asked for


class Channel(Protocol):
    """A way to one holder: anything with a name that takes bytes and returns bytes, a `Holder` itself included.

    ``remote`` channels are asked at the same time, each in a thread.
    """

    @property
    def name(self) -> str:
        """Return how the run speaks of this holder until it has introduced itself."""

    @property
    def remote(self) -> bool:
        """Return whether asking takes long without using this process."""

    def answer(self, data: bytes) -> bytes:
        """Return the bytes of the answer to a question, or raise `PeerUnreachable`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedModel:
    """A network, the claim towards every record of every holder, who took part and who was left out."""

    network: BayesianNetwork | Mixture
    claim: Claim
    method: str
    run: str
    records: int
    holders: tuple[str, ...]
    dropped: dict[str, str]
    questions: int
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummedTables:
    """Tables added up over the holders that answered; ``deviations`` are the noise's standard deviations per cell."""

    attributes: tuple[tuple[int, ...], ...]
    tables: tuple[NDArray[np.int64], ...]
    deviations: tuple[float, ...]
    records: int
    holders: int

    def lookup(self) -> baselines.Tables:
        """Return the tables by attributes in any order; smaller ones are summed from these."""
        return baselines.marginal_tables(dict(zip(self.attributes, self.tables, strict=True)))


class Federation:
    """A run over several holders: channels to them, or the holders themselves where they are in this process.

    ``run`` labels the questions: run the same label again and every holder sends its stored answers, free of charge;
    the default is a new label. A holder that stays unreachable after ``attempts``, refuses, or sends what is not an
    answer is left out from then on; with fewer than ``minimum`` left the run stops. ``report`` is called with a line of
    public text for everything that happens.
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
        self.run = _label() if run is None else run
        self.minimum = minimum
        self.dropped: dict[str, str] = {}
        self.questions = 0
        self._attempts = attempts
        self.report = report
        self._channels = list(channels)
        self._present: dict[int, HolderInfo] | None = None

    @property
    def holders(self) -> list[HolderInfo]:
        """Return the holders that take part, in the order given; introduces them first where that was not done."""
        if self._present is None:
            self._introduce()
        assert self._present is not None
        return list(self._present.values())

    @property
    def records(self) -> int:
        """Return the number of records of all holders that take part."""
        return sum(holder.records for holder in self.holders)

    def introductions(self) -> list[HolderInfo]:
        """Ask the holders that take part what they have spent by now."""
        return list(self._ask(InfoQuestion(run=self.run), HolderInfo, lambda _, __: None).values())

    def ask(
        self, question: Question, kind: type[AnswerT], check: Callable[[AnswerT, HolderInfo], None]
    ) -> list[tuple[HolderInfo, AnswerT]]:
        """Ask all holders; return (holder, answer) of those that gave one which ``check`` let pass."""
        if not self.holders:
            raise FederationAborted("no holder takes part")
        assert self._present is not None
        answers = self._ask(question, kind, check)
        return [(self._present[index], answer) for index, answer in answers.items()]

    def sums(self, noise: Noise, tables: Sequence[Table], *, part: str = "", clip: bool = False) -> SummedTables:
        """Ask for noisy tables and add them up. ``clip`` cuts every holder's negatives first, which biases the sum.

        A method that may ask for the same tables twice names the ``part`` of the run: the same question would only
        bring the same answer again.
        """
        run = f"{self.run} {part}" if part else self.run
        question = CountTables(run=run, domain=self.schema, noise=noise, tables=tuple(tables))
        single = [_deviation(noise, table.budget) for table in tables]

        def plausible(counts: Sequence[NDArray[np.int64]], who: HolderInfo) -> None:
            _add_up(counts, single, who.records, "its tables do")

        return self._added(question, tables, single, plausible, clip=clip)

    def _added(
        self,
        question: Question,
        tables: Sequence[Table],
        single: Sequence[float],
        check: Callable[[Sequence[NDArray[np.int64]], HolderInfo], None],
        *,
        clip: bool = False,
    ) -> SummedTables:
        """Ask for tables whose cells have noise of ``single`` standard deviations at one holder, and add them up."""
        shapes = [table.shape(self.domain) for table in tables]

        def shaped(answer: TablesAnswer, who: HolderInfo) -> None:
            if [table.shape for table in answer.tables] != shapes:
                raise InvalidParameter("its tables have other shapes than those asked for")
            check(answer.tables, who)

        answers = self.ask(question, TablesAnswer, shaped)
        totals = [np.zeros(shape, np.int64) for shape in shapes]
        for _, answer in answers:
            for total, table in zip(totals, answer.tables, strict=True):
                total += np.maximum(table, 0) if clip else table  # modulo 2^64: the masks of a secure sum cancel
        return SummedTables(
            attributes=tuple(table.attributes for table in tables),
            tables=tuple(totals),
            deviations=tuple(deviation * math.sqrt(len(answers)) for deviation in single),
            records=sum(who.records for who, _ in answers),
            holders=len(answers),
        )

    def secure_sums(self, tables: Sequence[Table], *, colluders: int | None = None) -> SummedTables:
        """Ask for tables that can be read only as a sum, with the noise of one holder; see federated.secure_sums.

        Every holder must answer to the end. Who fails before the sum is closed is left out at no cost; after that the
        run stops, and another run is charged again.
        """
        while True:
            members = sorted(self.holders, key=lambda member: member.holder)
            names = tuple(member.holder for member in members)
            many = default_colluders(len(names)) if colluders is None else colluders
            fields: dict[str, Any] = {
                "run": self.run,
                "domain": self.schema,
                "tables": tuple(tables),
                "members": names,
                "colluders": many,
            }
            opened = {
                who.holder: opening for who, opening in self.ask(JoinSum(**fields), KeyAnnouncement, lambda _, __: None)
            }
            if len(opened) == len(names):
                break
        question = SubmitSum(**fields, openings=tuple(opened[name] for name in names))
        single = [math.sqrt(noise_share(table.budget, len(names), many).variance) for table in tables]
        sums = self._added(question, tables, single, lambda _, __: None)
        if sums.holders < len(names):
            raise FederationAborted(
                "a holder failed after the sum was closed, and the others' parts cannot be read without it; "
                "run again under another label (it is charged again)"
            )
        _add_up(sums.tables, sums.deviations, sums.records, "the sum does")
        return sums

    def all_sums(self, noise: Noise, degree: int, budget: float, *, clip: bool = False) -> SummedTables:
        """Ask for the tables of all sets of ``degree + 1`` attributes (of all attributes where there are fewer)."""
        return self.sums(noise, self.all_tables(degree, budget), clip=clip)

    def all_tables(self, degree: int, budget: float) -> list[Table]:
        """Return the tables of all sets of ``degree + 1`` attributes, at equal shares of the budget."""
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
        """Return the result of a run in which every holder spent at most (epsilon, delta) under ``assumption``."""
        present = self.holders
        holder_claim = record_claim(
            epsilon,
            delta,
            releases=self.questions,
            public=("the number of records of every holder",),
            assumption=assumption,
        )
        open_to_all = holder_claim.without_privacy("the noise of a holder came from a test source")
        claim = replace(
            compose_per_holder([holder_claim if holder.secure else open_to_all for holder in present]),
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

        introductions = self._gather(channels, InfoQuestion(run=self.run), HolderInfo, check)
        names = [introduction.holder for introduction in introductions.values()]
        if len(set(names)) != len(names):
            raise FederationAborted("two holders have the same name")
        self._present = introductions
        self._require_minimum()
        self.report(
            f"{len(introductions)} holders take part: "
            + ", ".join(f"{who.holder} ({who.records:,})" for who in introductions.values())
        )

    def _ask(self, question: Question, kind: type[AnswerT], check: Callable[..., None]) -> dict[int, AnswerT]:
        assert self._present is not None
        answers = self._gather({index: self._channels[index] for index in self._present}, question, kind, check)
        self._present = {index: who for index, who in self._present.items() if index in answers}
        self._require_minimum()
        return answers

    def _gather(
        self, channels: dict[int, Channel], question: Question, kind: type[AnswerT], check: Callable[..., None]
    ) -> dict[int, AnswerT]:
        data = question.write()
        name = digest(data)
        self.questions += 1

        def one(index: int) -> tuple[int, AnswerT | str]:
            return index, self._one(channels[index], data, name, kind, lambda answer: check(answer, self._known(index)))

        if any(channel.remote for channel in channels.values()):
            with ThreadPoolExecutor(min(32, len(channels))) as pool:
                replies = list(pool.map(one, channels))
        else:
            replies = [one(index) for index in channels]
        answers: dict[int, AnswerT] = {}
        for index, answer in replies:
            if isinstance(answer, str):
                introduction = self._known(index)
                who = introduction.holder if introduction else channels[index].name
                self.dropped[who] = answer
                self.report(f"{who} is left out: {answer}")
            else:
                answers[index] = answer
        return answers

    def _one(
        self, channel: Channel, data: bytes, name: str, kind: type[AnswerT], check: Callable[[AnswerT], None]
    ) -> AnswerT | str:
        """Return the answer, or why there is none. Asking again is free: the holder's ledger knows the question."""
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

    def _known(self, index: int) -> HolderInfo | None:
        return (self._present or {}).get(index)

    def _require_minimum(self) -> None:
        remaining = len(self._present or {})
        if remaining < self.minimum:
            reasons = "; ".join(f"{who}: {why}" for who, why in self.dropped.items())
            raise FederationAborted(f"{remaining} holders are left where at least {self.minimum} are needed. {reasons}")


def _deviation(noise: Noise, budget: float) -> float:
    if noise == "laplace":
        return math.sqrt(DiscreteLaplace.at_most(table_kappa(budget)).variance)
    return math.sqrt(DiscreteGaussian.at_least(table_sigma(budget)).variance)


def _add_up(tables: Sequence[NDArray[np.int64]], deviations: Sequence[float], records: int, what: str) -> None:
    for table, deviation in zip(tables, deviations, strict=True):
        off = abs(float(table.sum(dtype=np.float64)) - records)
        if off > _FAR * max(deviation, 1.0) * math.sqrt(table.size):
            raise InvalidParameter(f"{what} not add up to the number of records, even with the noise")


def _label() -> str:
    with NoiseSource() as rng:
        return "".join(f"{int(word):08x}" for word in rng.uniform_below(1 << 32, 4))
