"""A step with answers that fails at any boundary and is taken again, with other rows: an answer has one value."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from panstream.algorithms.secret_shared.capped_counts import SharedHeavyCount
from panstream.algorithms.secret_shared.continual import SharedContinual
from panstream.algorithms.secret_shared.continual_presence import SharedContinualDensity
from panstream.algorithms.secret_shared.presence import SharedDensity
from panstream.algorithms.secret_shared.running_sums import NoisyRunningSums, _weights
from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.audit.claims.monte_carlo import lower_bound
from panstream.distributed.two_party.backend import TwoPartyBackend
from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.distributed.two_party.messages import unpack
from panstream.distributed.two_party.monitor import TwoPartyMonitor
from panstream.distributed.two_party.participant import Participant
from panstream.errors import StoreError, TwoPartyError
from panstream.primitives.kernels.algorithms.secret_shared_tree import answer_wide
from tests.distributed.two_party.restarts import STATISTIC, likelihood_trial, observe
from tests.simulated.two_machines import open_before_commit
from tests.statistical import ALPHA

Victim = Literal["front", "a", "b"]
FULL = os.environ.get("PANSTREAM_FULL") == "1"  # every point of failure, instead of every eighth
STATE = "0/0/q"
WIDE = 0.05  # epsilon: two draws are hardly ever the same
DENSITY = SharedDensity(universe=64, epsilon=WIDE, releases=2, count=True)
HEAVY = SharedHeavyCount(universe=64, epsilon=WIDE, releases=2, crop=2)
TICKS = SharedContinual(statistic="ContinualCount", options={"epsilon": WIDE, "horizon": 8}, radices=(2, 2, 2))
LIVE = SharedContinualDensity(universe=64, epsilon=WIDE, releases=8, count=True, radices=(2, 2, 2))


@pytest.fixture(autouse=True)
def _off_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panstream.distributed.two_party.participant.wait_for_send_slot", lambda: None)


class Dies(Exception):
    """The front end is killed."""


class Watched(InProcessTwoPartyTransport):
    """Two machines of which one, or the front end, dies at a chosen point; whoever watches machine a sees its answers.

    Points are before and after every message of the front end and, for a machine, every message between the two and
    every commit of its own.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "s")
        self.directory = directory
        self.seen: dict[tuple[str, int], set[tuple[int, ...]]] = defaultdict(set)
        self.sizes: list[tuple[str, int, int]] = []
        self.victim: Victim = "front"
        self.points = 0
        self.fails_at: int | None = None
        self._watch(self.first)
        self._watch(self.second)

    def ask(self, first: bool, message: bytearray) -> bytearray:
        self._point("front", "a", "b")
        reply = super().ask(first, message)
        self._point("front", "a", "b")
        return reply

    def _from_first(self, message: bytearray) -> bytearray:
        self._point("a", "b")
        reply = self.second.answer(message)
        self._point("a", "b")
        return reply

    def _watch(self, machine: Participant) -> None:
        answer = machine.answer
        commit = machine._store.commit
        name: Victim = "a" if machine.first else "b"
        if machine.first:
            machine._peer = self._from_first

        def answered(data: bytearray) -> bytearray:
            header, body = unpack(data)
            reply = answer(data)
            reply_header, sent = unpack(reply)
            self.sizes.append((f"{name} {header['verb']}", body.size, sent.size))
            for known in (reply_header.get("opened", {}), reply_header.get("answers", {})) if machine.first else ():
                for state, entries in known.items():
                    for number, numbers in entries:
                        self.seen[state, number].add(tuple(numbers))
            return reply

        def committed(parts: Any) -> None:
            self._point(name)
            commit(parts)
            self._point(name)

        machine.answer = answered  # type: ignore[method-assign]
        machine._store.commit = committed  # type: ignore[method-assign,assignment]

    def _point(self, *victims: Victim) -> None:
        if self.victim not in victims:
            return
        self.points += 1
        if self.fails_at is None or self.points <= self.fails_at:
            return
        self.fails_at = None
        if self.victim == "front":
            raise Dies
        self._restart(first=self.victim == "a")
        raise TwoPartyError("it cannot be reached")

    def _restart(self, *, first: bool) -> None:
        died = self.first if first else self.second
        died._store.close()
        born = Participant(self.directory / ("a" if first else "b"), first=first, stream="s")
        if first:
            self.first = born
        else:
            self.second = born
        self._watch(born)


def step(transport: Watched, statistic: SharedStatistic, attempt: int) -> list[list[int]]:
    """Take a step with rows and two answers, as a front end that has committed nothing before; return the answers."""
    backend = TwoPartyBackend(transport, "s", {"q": statistic})
    state: Any = backend.start("q", (0, 0), statistic)
    answers = []
    for part in range(2):
        state.apply(rows(statistic, 1 + attempt + part))
        answers.append(state.release())
    backend.flush()
    return [answer.opened() for answer in answers]


def rows(statistic: Any, count: int) -> Any:
    """Return rows that differ from one try to the next, and have no number that would leave them out."""
    return statistic.batch(count) if isinstance(statistic, SharedContinual) else statistic.batch(np.arange(count))


def finish(directory: Path, statistic: SharedStatistic, victim: Victim, at: int | None) -> tuple[Watched, int]:
    """Take the step, again if it fails at a point, and the next; return the machines and how often it failed."""
    directory.mkdir()
    transport = Watched(directory)
    transport.victim = victim
    transport.fails_at = at
    failed = 0
    while True:
        try:
            opened = step(transport, statistic, failed)
            break
        except (Dies, TwoPartyError):
            failed += 1
            assert failed < 4
    points = transport.points
    assert step(transport, statistic, 7) == opened
    transport.points = points
    assert {key: values for key, values in transport.seen.items() if len(values) > 1} == {}
    assert [transport.seen[STATE, number] for number in (1, 2)] == [{tuple(numbers)} for numbers in opened]
    return transport, failed


@pytest.mark.parametrize("statistic", [DENSITY, HEAVY, TICKS, LIVE], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("victim", ["front", "a", "b"])
def test_an_answer_has_one_value_wherever_a_step_fails(
    tmp_path: Path, statistic: SharedStatistic, victim: Victim
) -> None:
    transport, _ = finish(tmp_path / "whole", statistic, victim, None)
    points = transport.points
    failures = 0
    transport.close()
    for at in range({"front": 0, "a": 1, "b": 2}[victim], points, 1 if FULL else 8):
        transport, failed = finish(tmp_path / str(at), statistic, victim, at)
        if isinstance(statistic, SharedContinual):
            ((opened,),) = transport.seen[STATE, 2]
            assert (opened - noise_of_shares(transport)) / (1 << TICKS.rule.unit) in (1 + 2, 2 + 3)  # rows of one try
        transport.close()
        failures += failed
    assert failures > points // (2 if FULL else 16)


def noise_of_shares(transport: InProcessTwoPartyTransport) -> int:
    """Return the noise of the last answer, of the tree in both machines' shares."""
    shares = [machine._party.shares[STATE] for machine in (transport.first, transport.second)]
    rule = shares[0].rule
    assert isinstance(rule, NoisyRunningSums)
    joined = shares[0].cells.copy()
    numbers = joined.view(np.uint64).reshape(-1, 2)
    rule.ring.add(numbers, shares[1].cells.view(np.uint64).reshape(-1, 2))
    total, siblings, complete = rule._views(joined)
    total.fill(0)
    digits = rule.digits(shares[0].released)
    out = rule.ring.zeros(rule.width)
    done, rest, _ = _weights(rule.radices, tuple(digits.tolist()))
    answer_wide(total, siblings, complete, digits, np.array(rule.radices), done, rest, rule.ring.small, out)
    (noise,) = rule.ring.centred(out)
    return noise


def test_a_watcher_of_machine_a_learns_no_more_from_restarts_than_is_claimed() -> None:
    """A likelihood test that fails by chance with probability ALPHA; the benchmark of the same name runs it longer."""
    restarts, runs = (200, 60) if FULL else (3, 10)
    assert len(observe(True, restarts)) == 1
    assert lower_bound(likelihood_trial(restarts), runs=runs, failure=ALPHA).loss <= STATISTIC.claim().epsilon
    with open_before_commit():
        assert len(observe(True, restarts)) == restarts + 2  # one a try, and the one that was decided


def test_nothing_of_an_answer_is_sent_before_the_step_is_decided(tmp_path: Path) -> None:
    """And what is sent has the same size whatever rows and noise are."""
    sizes = []
    for attempt in (0, 40):
        (tmp_path / str(attempt)).mkdir()
        transport = Watched(tmp_path / str(attempt))
        step(transport, DENSITY, attempt)
        sizes.append([size for size in transport.sizes if size[0].startswith("b")])
        for verb, received, sent in transport.sizes:
            if verb == "b exchange":
                assert sent == received  # masked shares, and nothing else
        decided = [size[0] for size in transport.sizes].index("b open")
        assert [verb for verb, _, sent in transport.sizes[decided:] if sent] == ["b open"]
        assert ("b open", 0, 2 * 8) in transport.sizes
        transport.close()
    assert sizes[0] == sizes[1]


def test_answers_are_kept_for_one_epoch_only(tmp_path: Path) -> None:
    """Their shares are overwritten at the first machine when they are opened, and at both with the next step."""
    transport = Watched(tmp_path)
    step(transport, TICKS, 0)
    assert [*transport.second._party.shares[STATE].answers] == [1, 2]
    assert not transport.first._party.shares[STATE].answers
    before = [*transport.second._party.shares[STATE].answers.values()]
    transport.first.idle()
    assert not transport.second._party.shares[STATE].answers
    assert not any(part.any() for part in before)
    for machine in (transport.first, transport.second):
        assert not [name for name in machine._store.load() or {} if name.startswith(("now ", "next "))]
    transport.close()


def failing(transport: InProcessTwoPartyTransport, act: Callable[[], Any]) -> None:
    """Lose the answer of machine a to the last message of a step."""
    answer = transport.first.answer

    def lost(data: bytearray) -> bytearray:
        last = unpack(data)[0].get("last")
        reply = answer(data)
        if last:
            raise TwoPartyError("the answer is lost")
        return reply

    transport.first.answer = lost  # type: ignore[method-assign]
    with pytest.raises(TwoPartyError, match="the answer is lost"):
        act()
    transport.first.answer = answer  # type: ignore[method-assign]


def test_a_monitor_has_the_answers_of_those_before_it(transport: InProcessTwoPartyTransport) -> None:
    monitor = TwoPartyMonitor(DENSITY, transport, stream="s")
    first = monitor.release()
    failing(transport, monitor.release)
    with pytest.raises(TwoPartyError, match="make the monitor again"):
        monitor.update([1])
    with pytest.raises(TwoPartyError, match="make the monitor again"):
        monitor.release()
    answers = TwoPartyMonitor(DENSITY, transport, stream="s").answers
    assert len(answers) == 2
    assert answers[0].value == first.value
    assert answers == TwoPartyMonitor(DENSITY, transport, stream="s").answers


def test_a_front_end_that_expects_another_answer_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    transport = Watched(tmp_path)
    step(transport, DENSITY, 0)
    backend = TwoPartyBackend(transport, "s", {"q": DENSITY})
    state: Any = backend.start("q", (0, 0), DENSITY)
    backend._answers.clear()
    with pytest.raises(TwoPartyError, match="no declared release is left"):
        state.release()
    ticks = Watched(tmp_path / "ticks")
    step(ticks, TICKS, 0)
    backend = TwoPartyBackend(ticks, "s", {"q": TICKS})
    state = backend.start("q", (0, 0), TICKS)
    backend._answers.clear()
    with pytest.raises(StoreError, match="gave answer 3 where answer 1 was asked for"):
        state.release()
    assert (STATE, 3) not in ticks.seen
    transport.close()
    ticks.close()
