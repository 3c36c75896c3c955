"""Secure sums that members drop out of: the same sums, and nothing else to read, whatever an analyst asks for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from panstream.errors import FederationAborted, InvalidBytes, InvalidParameter, PeerUnreachable
from panstream.models.federated import AutomaticMethod, FederatedPairs, Federation, Holder, Roster
from panstream.models.federated import secure_sums as shipped
from panstream.models.federated._answers import KeyAnnouncement, PartsAnswer, Refused, TablesAnswer, read_answer
from panstream.models.federated._mask_code import combine, decode, encode, from_field, stream, to_field
from panstream.models.federated._messages import Message, digest
from panstream.models.federated._question_registry import Question, read_question
from panstream.models.federated._questions import Table
from panstream.models.federated.ledger import HolderLedger
from panstream.models.federated.secure_sums import JoinSum, SubmitSum, question_fields
from panstream.models.federated.sum_reading import ConfirmSum, RevealSum
from panstream.models.federated.summed_tables import SummedTables
from panstream.models.networks import Domain, Records
from panstream.primitives.hashing import PRIME
from panstream.primitives.noise import NoiseSource
from tests.models.federated.common import RecordingSource, chain

RECORDS = chain(300)
TABLES = (Table(attributes=(0, 1), budget=0.001), Table(attributes=(2,), budget=0.001))
NAMES = ("a", "b", "c", "d", "e", "f")
KEYS = {name: Ed25519PrivateKey.generate() for name in NAMES}
PUBLIC = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}


def holders(count: int = 5, **options: object) -> list[Holder]:
    chosen = {"epsilon": 5.0, "delta": 1e-6, **options}
    return [
        Holder(name, RECORDS, roster=Roster(key=KEYS[name], members=PUBLIC), **chosen)  # type: ignore[arg-type]
        for name in NAMES[:count]
    ]


class Lost:
    """A channel to a holder that is gone from the first question of a kind on."""

    remote = False

    def __init__(self, holder: Holder, kind: str, *, hears: bool = False) -> None:
        self.name = holder.name
        self._holder = holder
        self._kind = f'"kind":"{kind}"'.encode()
        self._hears = hears
        self._gone = False

    def answer(self, data: bytes) -> bytes:
        if self._gone or self._kind in data:
            if self._hears and not self._gone:
                self._holder.answer(data)
            self._gone = True
            raise PeerUnreachable("it is gone")
        return self._holder.answer(data)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[NDArray[np.int64]]]:
    """What the holders counted and added noise to, in their order."""
    tables: list[list[NDArray[np.int64]]] = []
    draw = SubmitSum.draw

    def record(self: SubmitSum, statistics: object, rng: NoiseSource) -> TablesAnswer:
        answer = draw(self, statistics, rng)  # type: ignore[arg-type]
        tables.append([table.copy() for table in answer.tables])
        return answer

    monkeypatch.setattr(SubmitSum, "draw", record)
    return tables


def equal(sums: SummedTables, parts: Sequence[Sequence[NDArray[np.int64]]]) -> bool:
    return all((table == sum(part[at] for part in parts)).all() for at, table in enumerate(sums.tables))


@pytest.mark.parametrize("kind", ["close-sum", "confirm-sum", "reveal-sum"])
@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("hears", [False, True])
def test_who_drops_out_after_the_close_does_not_spoil_the_sum(
    kind: str, lost: int, hears: bool, drawn: list[list[NDArray[np.int64]]]
) -> None:
    """Of five, before sending tables, before confirming, before revealing; with the question received or not."""
    everybody = holders()
    channels = [*everybody[: 5 - lost], *(Lost(holder, kind, hears=hears) for holder in everybody[5 - lost :])]
    federation = Federation(RECORDS.domain, channels, run="r", attempts=1)
    sums = federation.secure_sums(TABLES, dropouts=2)
    remaining = 5 if kind == "reveal-sum" else 5 - lost
    assert equal(sums, drawn[:remaining])
    assert (sums.holders, sums.records) == (remaining, 300 * remaining)
    assert sums.deviations[0] == pytest.approx(math.sqrt(remaining * 1000 / 2), rel=0.01)
    assert all(math.isclose(holder.ledger.total.rho, 0.002, rel_tol=1e-8) for holder in everybody[:3])
    again = Federation(RECORDS.domain, everybody, run="r").secure_sums(TABLES, dropouts=2)  # all are back, free
    assert again.holders == remaining
    assert all((one == other).all() for one, other in zip(again.tables, sums.tables, strict=True))
    assert all(math.isclose(holder.ledger.total.rho, 0.002, rel_tol=1e-8) for holder in everybody[:3])


@pytest.mark.parametrize("kind", ["close-sum", "confirm-sum", "reveal-sum"])
def test_one_dropout_too_many_stops_the_run_and_coming_back_is_free(kind: str) -> None:
    everybody = holders()
    channels = [*everybody[:3], *(Lost(holder, kind) for holder in everybody[3:])]
    with pytest.raises(FederationAborted, match="1 may"):
        Federation(RECORDS.domain, channels, run="r", attempts=1).secure_sums(TABLES)
    sums = Federation(RECORDS.domain, everybody, run="r").secure_sums(TABLES)
    assert sums.holders == 5
    assert all(math.isclose(holder.ledger.total.rho, 0.002, rel_tol=1e-8) for holder in everybody)


def test_a_holder_that_restarts_between_the_questions_answers_on(tmp_path: object) -> None:
    """Its one-time key waits in the ledger until the sum is read, and is gone from the file afterwards."""

    class Restarting:
        remote = False
        name = "a"

        def answer(self, data: bytes) -> bytes:
            roster = Roster(key=KEYS["a"], members=PUBLIC)
            ledger = tmp_path / "a.sqlite"  # type: ignore[operator]
            with Holder("a", RECORDS, epsilon=5.0, delta=1e-6, roster=roster, ledger=ledger) as holder:
                return holder.answer(data)

    secrets = []
    take = HolderLedger.take_secret

    def remember(self: HolderLedger, question: str) -> bytes:
        secrets.append(take(self, question))
        return secrets[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HolderLedger, "take_secret", remember)
        sums = Federation(RECORDS.domain, [Restarting(), *holders()[1:]]).secure_sums(TABLES)
    assert (sums.holders, len(secrets)) == (5, 5)
    assert all(secrets[0] not in file.read_bytes() for file in tmp_path.iterdir())  # type: ignore[attr-defined]


def test_the_claim_covers_the_noise_of_who_is_missing() -> None:
    """Two parts of five are enough with one colluder and two dropouts; the model says on what that rests."""
    everybody = holders(epsilon=1.0)
    channels = [*everybody[:3], *(Lost(holder, "close-sum") for holder in everybody[3:])]
    federation = Federation(RECORDS.domain, channels, attempts=1)
    model = FederatedPairs(epsilon=1.0, delta=1e-6, secure=True, dropouts=2).run(federation)
    assert (model.claim.epsilon, model.claim.delta, len(model.dropped)) == (1.0, 1e-6, 2)
    assert model.claim.assumption == everybody[0].claim().assumption
    assert "up to 1 of 5 holders" in model.claim.assumption


def test_a_run_without_a_method_uses_secure_sums_where_all_have_pinned_all_keys() -> None:
    method = AutomaticMethod(epsilon=1.0, delta=1e-6)
    lines: list[str] = []
    model = method.run(Federation(RECORDS.domain, holders(3), report=lines.append))
    assert model.method == "all pairs, secure sums"
    assert any("pinned each other's keys" in line for line in lines)
    few = {name: PUBLIC[name] for name in "abd"}
    partly = Holder("c", RECORDS, epsilon=5.0, delta=1e-6, roster=Roster(key=KEYS["c"], members=few))
    for members, words in (
        (holders(2), "3 holders or more"),
        ([*holders(2), Holder("c", RECORDS, epsilon=5.0, delta=1e-6)], "c has not pinned"),
        ([*holders(2), partly], "c has not pinned"),
    ):
        lines.clear()
        tree = method.run(Federation(RECORDS.domain, members, report=lines.append))
        assert "secure" not in tree.method and tree.claim.assumption == ""
        assert any(words in line for line in lines)
    with pytest.raises(InvalidParameter, match="epsilon"):
        AutomaticMethod(epsilon=0.0)


@pytest.mark.parametrize(("members", "colluders", "dropouts"), [(4, 1, 2), (5, 2, 2), (3, 1, 1)])
def test_at_least_two_must_be_left(members: int, colluders: int, dropouts: int) -> None:
    with pytest.raises(InvalidParameter, match=f"dropouts={dropouts}"):
        JoinSum(
            run="r",
            domain="d",
            tables=TABLES,
            members=NAMES[:members],
            colluders=colluders,
            dropouts=dropouts,
        )


@pytest.mark.parametrize(("members", "dropouts"), [(3, 1), (5, 1), (5, 2), (7, 3), (30, 10)])
def test_masks_come_from_all_but_the_missing_members(members: int, dropouts: int) -> None:
    rng = np.random.default_rng(members)
    vectors = rng.integers(0, PRIME, (members, members, 3), np.uint64)
    encoded = [encode(own, dropouts, 3) for own in vectors]
    summed = {point: combine(((1, own[point - 1]) for own in vectors), 3) for point in range(1, members + 1)}
    checks = [combine(((1, own[power]) for own in encoded), 3) for power in range(dropouts)]
    mask = combine(((1, own[-1]) for own in encoded), 3)
    missing = rng.choice(np.arange(1, members + 1), dropouts, replace=False).tolist()
    present = {point: values for point, values in summed.items() if point not in missing}
    assert (decode(present, checks, members) == mask).all()
    present.popitem()
    with pytest.raises(InvalidParameter, match="are needed"):
        decode(present, checks, members)


def test_elements_of_the_field_are_exact() -> None:
    values = np.array([0, 1, -1, 10**15, -(10**15), PRIME // 2, -(PRIME // 2)])
    assert (from_field(to_field(values)) == values).all()
    factors = [3, -7, 10**40]
    vectors = [to_field(values), to_field(values[::-1].copy()), to_field(-values)]
    exact = [
        sum(factor * int(vector[cell]) for factor, vector in zip(factors, vectors, strict=True)) % PRIME
        for cell in range(values.size)
    ]
    assert combine(zip(factors, vectors, strict=True), values.size).tolist() == exact
    words = stream(bytes(32), 1000)
    assert words.size == 1000 and int(words.max()) < PRIME


# What an analyst can learn, exactly. Every step of the protocol is linear in what the holders counted and in the
# pseudo-random vectors, cell by cell. So let there be as many cells as variables, and let each variable be 1 in a cell
# of its own: what the shipped code sends then is its own coefficients. Eliminating the unknown vectors leaves all that
# can be known about the holders' noisy counts.


@dataclass
class Analyst:
    """Plays with the keys of the last ``colluders`` members, and remembers all that it was sent."""

    members: int
    dropouts: int
    colluders: int = 1
    honest: dict[str, Holder] = field(default_factory=dict)
    sent: list[NDArray[np.int64]] = field(default_factory=list)
    revealed: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = NAMES[: self.members]
        self.cells = self.members * (self.members + 1)
        domain = Domain({"cell": [str(cell) for cell in range(self.cells)]})
        roster = {name: Roster(key=KEYS[name], members=PUBLIC) for name in names}
        self.everybody = {
            name: Holder(
                name,
                Records(domain, np.array([[self.members**2 + at]], np.uint16)),
                epsilon=5.0,
                delta=1e-6,
                roster=roster[name],
                rng_factory=lambda: RecordingSource([]),
            )
            for at, name in enumerate(names)
        }
        self.honest = dict(itertools.islice(self.everybody.items(), self.members - self.colluders))
        table = Table(attributes=(0,), budget=0.001)
        join = JoinSum(
            run="r",
            domain=domain.digest(),
            tables=(table,),
            members=names,
            colluders=self.colluders,
            dropouts=self.dropouts,
        )
        keys = [ask(holder, join) for holder in self.everybody.values()]
        self.question = SubmitSum.after(join, keys)  # type: ignore[arg-type]

    def submit(self, streams: dict[bytes, NDArray[np.uint64]]) -> None:
        for name, holder in self.everybody.items():
            answer = ask(holder, self.question)
            assert isinstance(answer, TablesAnswer)
            if name in self.honest:
                self.sent += answer.tables
        # The honest members' vectors with a colluder are known to it: leave their columns out.
        self.unknown = [
            int(vector.argmax())
            for (one, other), vector in self.pairs(streams)
            if one in self.honest and other in self.honest
        ]

    def pairs(self, streams: dict[bytes, NDArray[np.uint64]]) -> Iterator[tuple[tuple[str, str], NDArray[np.uint64]]]:
        yield from zip(itertools.product(self.everybody, repeat=2), streams.values(), strict=True)

    def sign(self, parts: Sequence[str]) -> list[str] | None:
        """Ask all honest parts to confirm; return the signatures under this list, or None if one is missing."""
        confirm = ConfirmSum(**question_fields(self.question, SubmitSum), parts_named=tuple(parts))
        signatures = []
        for name in parts:
            if name not in self.honest:
                signatures.append(KEYS[name].sign(confirm.statement).hex())
                continue
            answer = ask(self.honest[name], confirm)
            if not isinstance(answer, PartsAnswer) or answer.parts != tuple(parts):
                return None
            signatures.append(answer.signature)
        return signatures

    def reveal(self, parts: Sequence[str], signatures: Sequence[str], name: str) -> object:
        fields = question_fields(self.question, SubmitSum)
        question = RevealSum(**fields, parts_named=tuple(parts), signatures=tuple(signatures))
        answer = ask(self.honest[name], question)
        if isinstance(answer, TablesAnswer):
            self.sent.append(answer.tables[0])
            self.revealed.append(tuple(parts))
        return answer

    def known(self) -> list[list[int]]:
        """Return all that follows about the honest members' counts, as reduced rows of coefficients."""
        count = len(self.honest)
        columns = [*self.unknown, *range(self.members**2, self.members**2 + count)]
        rows = reduced([[int(row[column]) % PRIME for column in columns] for row in self.sent])
        return [row[-count:] for row in rows if not any(row[:-count])]

    def loss(self) -> float:
        """Return the largest loss of a record as a multiple of what was charged.

        With a noise of variance 1/parts in each count and the knowledge of A·counts, a holder's record loses parts
        times its entry on the diagonal of the projection onto the rows of A.
        """
        rows = np.array(from_field(np.array(self.known(), np.uint64)), float).reshape(-1, len(self.honest))
        projection = rows.T @ np.linalg.pinv(rows @ rows.T) @ rows
        return float(self.question.parts * projection.diagonal().max(initial=0.0))


def reduced(rows: list[list[int]]) -> list[list[int]]:
    """The reduced row echelon form over the field."""
    done = 0
    for column in range(len(rows[0])):
        pivot = next((at for at in range(done, len(rows)) if rows[at][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        inverse = pow(rows[done][column], -1, PRIME)
        rows[done] = [entry * inverse % PRIME for entry in rows[done]]
        for at, row in enumerate(rows):
            if at != done and row[column]:
                factor = row[column]
                rows[at] = [(entry - factor * first) % PRIME for entry, first in zip(row, rows[done], strict=True)]
        done += 1
    return rows[:done]


def ask(holder: Holder, question: Question) -> object:
    data = question.write()  # type: ignore[union-attr]
    return read_answer(holder.answer(data), digest(data))


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, NDArray[np.uint64]]:
    """A unit vector for every key that vectors are derived from, in the order of first use."""
    known: dict[bytes, NDArray[np.uint64]] = {}

    def unit(key: bytes, size: int) -> NDArray[np.uint64]:
        if key not in known:
            known[key] = np.zeros(size, np.uint64)
            known[key][len(known) - 1] = 1
        return known[key]

    monkeypatch.setattr(shipped, "stream", unit)
    return known


def play(analyst: Analyst, streams: dict[bytes, NDArray[np.uint64]], rng: np.random.Generator, moves: int) -> None:
    """Show random lists to the holders, sometimes parts of lists that were signed, and ask random parts to reveal."""
    streams.clear()
    analyst.submit(streams)
    names = list(analyst.everybody)
    signed: dict[tuple[str, ...], list[str]] = {}
    for _ in range(moves):
        base = list(signed)[int(rng.integers(len(signed)))] if signed and rng.random() < 0.5 else tuple(names)
        least = analyst.members - analyst.dropouts
        size = int(rng.integers(min(least, len(base)), len(base) + 1))
        parts = tuple(sorted(rng.choice(list(base), size, replace=False).tolist()))
        if parts not in signed:
            signatures = analyst.sign(parts)
            if signatures is not None:
                signed[parts] = signatures
        for chosen, signatures in signed.items():
            for name in set(chosen) & set(analyst.honest):
                if rng.random() < 0.4:
                    analyst.reveal(chosen, signatures, name)


@pytest.mark.parametrize(("members", "dropouts", "plays"), [(4, 1, 10), (5, 1, 10), (5, 2, 30)])
def test_an_analyst_learns_sums_over_disjoint_sets_with_all_the_noise_that_was_charged(
    members: int, dropouts: int, plays: int, streams: dict[bytes, NDArray[np.uint64]]
) -> None:
    """Random lists, shown to the holders in random order: the loss is at most the charge, and reaches it."""
    rng = np.random.default_rng(members + dropouts)
    losses = []
    for _ in range(plays):
        analyst = Analyst(members, dropouts)
        play(analyst, streams, rng, 6)
        known = analyst.known()
        assert all(set(row) <= {0, 1} for row in known)
        assert all(sum(column) <= 1 for column in zip(*known, strict=True))
        assert all(sum(row) >= members - 1 - dropouts for row in known)
        losses.append(analyst.loss())
    assert max(losses) == pytest.approx(1.0)
    assert min(losses) < 1.0


def worst_loss(streams: dict[bytes, NDArray[np.uint64]], plays: int = 40) -> float:
    rng = np.random.default_rng(7)
    worst = 0.0
    for _ in range(plays):
        analyst = Analyst(5, 2)
        play(analyst, streams, rng, 6)
        worst = max(worst, analyst.loss())
        if worst > 1.1:
            break
    return worst


def _sign_anything(self: HolderLedger, closed: str, parts: Sequence[str]) -> tuple[str, ...]:
    self._connection.execute(
        "UPDATE readings SET parts = ? WHERE closed = ? AND answer IS NULL", (_json(parts), closed)
    )
    return tuple(parts)


def _json(parts: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{part}"' for part in parts) + "]"


def _reveal_anything(self: HolderLedger, closed: str, parts: Sequence[str], make: Callable[[bytes], bytes]) -> bytes:
    opened, _, _ = self._reading(closed)
    return make(self._secret(opened))


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (HolderLedger, "confirm", _sign_anything),
        (HolderLedger, "reveal_once", _reveal_anything),
    ],
    ids=["signs every list", "reveals for every list"],
)
def test_holders_without_one_of_the_rules_would_lose_more(
    owner: type, name: str, mistake: object, streams: dict[bytes, NDArray[np.uint64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls: who signs lists that are not shorter, or reveals for two of them, shows more than was charged."""
    monkeypatch.setattr(owner, name, mistake)
    assert worst_loss(streams) > 1.1


def test_a_list_that_not_all_parts_have_confirmed_would_show_more(
    streams: dict[bytes, NDArray[np.uint64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: two lists that share c, each confirmed by two honest parts only, show a + b + c and c + d."""
    for unchecked in (False, True):
        analyst = Analyst(5, 2)
        streams.clear()
        analyst.submit(streams)
        if unchecked:
            monkeypatch.setattr(RevealSum, "check_signatures", lambda self, roster: None)
        for parts, names in ((("a", "b", "c", "e"), "ab"), (("c", "d", "e"), "cd")):
            for name in names:
                ask(analyst.honest[name], ConfirmSum(**question_fields(analyst.question, SubmitSum), parts_named=parts))
                analyst.reveal(parts, ["0" * 128] * len(parts), name)
        assert analyst.loss() == pytest.approx(1.2 if unchecked else 0.0)


def test_half_of_the_noise_would_lose_twice_as_much(
    streams: dict[bytes, NDArray[np.uint64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    analyst = Analyst(5, 2)
    play(analyst, streams, np.random.default_rng(3), 12)
    exact = analyst.loss()
    monkeypatch.setattr(shipped, "noise_parts", lambda members, colluders, dropouts: 2 * (members - colluders))
    assert analyst.loss() > 1.0 >= exact


def test_a_server_that_asks_for_two_sums_of_one_part_is_refused(streams: dict[bytes, NDArray[np.uint64]]) -> None:
    """The difference would be one holder's table: with all five, and without one of them."""
    analyst = Analyst(5, 2)
    streams.clear()
    analyst.submit(streams)
    everybody = NAMES[:5]
    fewer = NAMES[:4]
    signatures = analyst.sign(everybody)
    assert signatures is not None
    for name in NAMES[:3]:
        assert isinstance(analyst.reveal(everybody, signatures, name), TablesAnswer)
    assert analyst.sign(fewer) is None  # a, b, c have revealed: they answer with the list that counts
    forged = [*signatures[:3], signatures[4]]
    for name in NAMES[:4]:
        answer = analyst.reveal(fewer, forged, name)
        assert isinstance(answer, Refused) and "has not confirmed the parts" in answer.text
    before = len(analyst.sent)
    assert isinstance(analyst.reveal(everybody, signatures, "a"), TablesAnswer)  # the stored answer again
    assert (analyst.sent[before] == analyst.sent[before - 3]).all()
    assert analyst.known() == [[1, 1, 1, 1]]


def test_a_holder_reveals_only_what_it_has_confirmed_last(streams: dict[bytes, NDArray[np.uint64]]) -> None:
    analyst = Analyst(5, 2)
    streams.clear()
    analyst.submit(streams)
    everybody = analyst.sign(NAMES[:5])
    fewer = analyst.sign(NAMES[:4])
    assert everybody is not None and fewer is not None
    answer = analyst.reveal(NAMES[:5], everybody, "a")
    assert isinstance(answer, Refused) and "other parts" in answer.text
    answer = analyst.reveal(("a", "b", "c"), fewer[:3], "d")
    assert isinstance(answer, Refused) and "not a part" in answer.text
    with pytest.raises(InvalidParameter, match="cannot be read from 2 parts"):
        analyst.sign(("a", "b"))
    with pytest.raises(InvalidParameter, match="members of it"):
        analyst.sign(("a", "b", "zoe"))
    assert isinstance(ask(analyst.honest["a"], analyst.question), TablesAnswer)
    other = SubmitSum(**{**question_fields(analyst.question, SubmitSum), "run": "another"})
    refused = ask(analyst.honest["a"], ConfirmSum(**question_fields(other, SubmitSum), parts_named=NAMES[:5]))
    assert isinstance(refused, Refused)


def test_the_questions_of_a_reading_come_back_and_their_like_are_refused(
    streams: dict[bytes, NDArray[np.uint64]],
) -> None:
    analyst = Analyst(5, 2)
    fields = question_fields(analyst.question, SubmitSum)
    confirm = ConfirmSum(**fields, parts_named=NAMES[:4])
    reveal = RevealSum(**fields, parts_named=NAMES[:4], signatures=("00" * 64,) * 4)
    for question in (analyst.question, confirm, reveal):
        assert read_question(question.write()) == question
        message = Message.decode(question.write())
        for name, bad in itertools.product(message.fields, (None, {}, [[]], True, -1.5)):
            with pytest.raises(InvalidBytes):
                read_question(Message(kind=message.kind, fields={**message.fields, name: bad}).encode())
    for bad in (["00" * 63] * 4, ["zz" * 64] * 4, [7] * 4):
        changed = {**Message.decode(reveal.write()).fields, "signatures": bad}
        with pytest.raises(InvalidBytes):
            read_question(Message(kind="reveal-sum", fields=changed).encode())
    short = RevealSum(**fields, parts_named=NAMES[:4], signatures=("00" * 64,) * 3)
    refused = ask(analyst.honest["a"], short)
    assert isinstance(refused, Refused) and "one signature per part" in refused.text


def test_a_sum_is_closed_once(streams: dict[bytes, NDArray[np.uint64]]) -> None:
    """Its key stays until the sum is read, yet other openings are refused: they would be a second noise-free mask."""
    analyst = Analyst(5, 2)
    streams.clear()
    analyst.submit(streams)
    fresh = Analyst(5, 2)
    openings = (analyst.question.openings[0], *fresh.question.openings[1:])
    fields = {**question_fields(analyst.question, SubmitSum), "openings": openings}
    answer = ask(analyst.honest["a"], SubmitSum(**fields))
    assert isinstance(answer, Refused) and "already closed" in answer.text
    assert all(isinstance(opening, KeyAnnouncement) for opening in openings)
