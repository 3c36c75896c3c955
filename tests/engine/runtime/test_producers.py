"""The table of producers, beside a model that forgets nothing: no batch is ever counted twice, whoever sends what."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from panstream.engine.runtime.producers import ROUND, Producers, Sender
from panstream.errors import InvalidParameter, ProducerFenced

MOST = 3
TOKENS = st.sampled_from(["one", "other"])
NAMES = st.sampled_from(["a", "b", "c", "d"])


@dataclass
class Table:
    """The table with positions, as an engine keeps them."""

    producers: Producers = field(default_factory=Producers)
    positions: dict[str, int] = field(default_factory=dict)

    def take(self, sender: Sender, sequence: int) -> bool:
        key = self.producers.position_key(sender)
        last = self.positions.get(key, 0)
        self.positions[key] = max(last, sequence)
        return sequence > last

    def take_or_refuse(self, sender: Sender, sequence: int) -> bool | str:
        try:
            return self.take(sender, sequence)
        except ProducerFenced as refused:
            return refused.code

    def forget(self, keys: list[str]) -> None:
        for key in keys:
            self.positions.pop(key, None)


class Senders(RuleBasedStateMachine):
    """Senders that open, send, repeat what they ever sent, and close; the table is stored and restored at any time."""

    @initialize()
    def start(self) -> None:
        self.table = Table()
        self.day = 0
        self.sent: list[tuple[Sender, int]] = []  # every batch that was ever taken, and is sent again later
        self.ids: dict[tuple[str, str], str] = {}

    @rule(token=TOKENS, name=NAMES)
    def open(self, token: str, name: str) -> None:
        full = len(self.table.producers.all_of(token)) >= MOST
        known = name in [each.name for each in self.table.producers.all_of(token)]
        if full and not known:
            with pytest.raises(ProducerFenced, match="close some") as refused:
                self.table.producers.open(token, name, MOST)
            assert refused.value.code == "too_many_producers"
            return
        found = self.table.producers.open(token, name, MOST)
        assert found.id not in [sender.id for sender, _ in self.sent]
        self.ids[token, name] = found.id

    @rule(token=TOKENS, name=NAMES)
    def send(self, token: str, name: str) -> None:
        if (token, name) not in self.ids:
            return
        sender = Sender(token, self.ids[token, name])
        if sender.id not in [each.id for each in self.table.producers.all_of(token)]:
            assert self.table.take_or_refuse(sender, 1) == "unknown_producer"
            return
        number = self.table.positions.get(self.table.producers.position_key(sender), 0) + 1
        assert self.table.take(sender, number)
        self.sent.append((sender, number))

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Whatever was taken once is reported to be old, or refused: never taken again."""
        if self.sent:
            sender, number = data.draw(st.sampled_from(self.sent))
            assert self.table.take_or_refuse(sender, number) in (False, "unknown_producer")

    @rule(name=NAMES, number=st.integers(1, 2**62))
    def pretend(self, name: str, number: int) -> None:
        """Nobody can send as a producer of another token, even with its id."""
        before = dict(self.table.positions)
        for (token, known), id_ in self.ids.items():
            if known == name:
                stranger = Sender("other" if token == "one" else "one", id_)
                with pytest.raises(ProducerFenced, match="never opened under this token"):
                    self.table.take(stranger, number)
        assert self.table.positions == before

    @rule(token=TOKENS, name=NAMES)
    def close(self, token: str, name: str) -> None:
        if name in [each.name for each in self.table.producers.all_of(token)]:
            self.table.forget([self.table.producers.close(token, name)])

    @rule(days=st.integers(-3, 2 * ROUND))
    def wait(self, days: int) -> None:
        self.day += days
        self.table.forget(self.table.producers.retire(self.day))

    @rule()
    def restart(self) -> None:
        stored = json.loads(json.dumps(self.table.producers.to_json()))
        self.table.producers = Producers.from_json(stored)

    @invariant()
    def bounded(self) -> None:
        assert len(self.table.positions) <= 2 * MOST


Senders.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_senders = Senders.TestCase


def test_whoever_sends_in_every_round_is_kept_and_others_are_retired() -> None:
    table = Table()
    table.producers.retire(100)
    busy, idle = (table.producers.open("t", name, 10) for name in ("busy", "idle"))
    table.take(Sender("t", busy.id), 1)
    table.take(Sender("t", idle.id), 1)
    for day in range(101, 100 + 2 * ROUND):
        table.take(Sender("t", busy.id), day - 99)
        table.forget(table.producers.retire(day))
        assert len(table.producers.all_of("t")) == 2, "between one round and two"
    table.forget(table.producers.retire(100 + 2 * ROUND))
    assert [each.name for each in table.producers.all_of("t")] == ["busy"]
    assert [*table.positions] == [busy.position_key]
    with pytest.raises(ProducerFenced):
        table.take(Sender("t", idle.id), 1)
    again = table.producers.open("t", "idle", 10)
    assert again.position_key != idle.position_key


def test_an_opening_ends_the_one_before_it_and_goes_on_counting() -> None:
    table = Table()
    first = table.producers.open("t", "gate", 10).id
    assert table.take(Sender("t", first), 1)
    second = table.producers.open("t", "gate", 10).id
    with pytest.raises(ProducerFenced, match="reopened"):
        table.take(Sender("t", first), 2)
    assert not table.take(Sender("t", second), 1)
    assert table.take(Sender("t", second), 2)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a@b", "x" * 65, "é"])
def test_names(name: str) -> None:
    with pytest.raises(InvalidParameter, match="must match"):
        Producers().open("t", name, 10)


def test_a_clock_that_jumps_ahead_retires_only_those_that_were_idle_before() -> None:
    table = Table()
    table.producers.retire(0)
    table.producers.open("t", "gate", 10)
    assert table.producers.retire(30_000) == []
    assert table.producers.retire(3) == []  # it was put right
    assert table.producers.retire(3 + ROUND - 1) == []
