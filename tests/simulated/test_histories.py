"""Histories of failures on simulated disks, clocks and networks: nothing lost, doubled or drawn twice, and a seed
replays one of them. ``python -m benchmarks.soak.histories`` lives through thousands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from panstream.distributed.two_party.backend import TwoPartyBackend
from panstream.engine.runtime.engine import Engine
from panstream.server.ingest.batch_applier import BatchApplier
from panstream.server.ingest.batch_order import ReorderBuffer
from tests.simulated import history
from tests.simulated.history import BACK, History, Wrong
from tests.simulated.reordered import Reordered
from tests.simulated.shards import Shards
from tests.simulated.two_machines import TwoMachines, open_before_commit

KINDS: dict[type[History], int] = {History: 150, TwoMachines: 50, Shards: 50, Reordered: 60}


def live(kind: type[History], seed: int, root: Path, **options: Any) -> History:
    folder = root / f"{kind.__name__}-{seed}-{len(list(root.iterdir()))}"
    folder.mkdir()
    history = kind(seed, folder, **options)
    history.run()
    return history


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nothing_is_lost_doubled_or_drawn_twice(kind: type[History], tmp_path: Path) -> None:
    happened: list[str] = []
    for seed in range(KINDS[kind]):
        happened += live(kind, seed, tmp_path).happened
    assert {"kill", "power", "refused", "noticed", "send", "again", "ask", "wait", "set back"} <= set(happened)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_seed_replays_its_history(kind: type[History], tmp_path: Path) -> None:
    first, second, other = (live(kind, seed, tmp_path) for seed in (4, 4, 6))
    assert (first.happened, first.disk.calls, first.seen) == (second.happened, second.disk.calls, second.seen)
    assert first.happened != other.happened


def caught(kind: type[History], root: Path, most: int, words: str, first: int = 0) -> None:
    """Some of the first histories are wrong, and say how."""
    with pytest.raises(Wrong, match=words):
        for seed in range(first, most):
            live(kind, seed, root)


@pytest.mark.parametrize("call", ["sync", "sync directory"])
def test_a_store_that_leaves_out_a_sync_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def careless(self: History, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        self.disk.unsynced = lambda asked: asked == call

    real = History.__init__
    monkeypatch.setattr(History, "__init__", careless)
    caught(History, tmp_path, 60, "acknowledged|does not go on|refused without a cause")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_stream_that_forgets_what_it_has_seen_is_caught(
    kind: type[History], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "is_applied", lambda self, producer, sequence: False)
    caught(kind, tmp_path, 60, "rows were counted|rows instead of|were late")


@pytest.mark.parametrize(
    ("forgotten", "words"),
    [("_ahead", "rows were counted"), ("_answers", "the machines gave answer")],  # which cannot be had again
)
def test_a_front_end_that_forgets_what_the_machines_have_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str, words: str
) -> None:
    def forgetful(self: TwoPartyBackend) -> None:
        real(self)
        getattr(self, forgotten).clear()

    real = TwoPartyBackend._join
    monkeypatch.setattr(TwoPartyBackend, "_join", forgetful)
    caught(TwoMachines, tmp_path, 200, words)


def test_machines_that_open_an_answer_before_they_commit_are_caught(tmp_path: Path) -> None:
    """A front end that dies in between has it drawn again."""
    with open_before_commit():
        caught(TwoMachines, tmp_path, 200, "machine a opened answer .* twice", first=15)


def test_an_engine_that_publishes_before_it_commits_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Engine, **options: Any) -> None:
        for release in [made() for made in self._drawn]:
            if self.log.publish(release):
                self.names._publish(release)
        real(self, **options)

    real = Engine.commit
    monkeypatch.setattr(Engine, "commit", hasty)
    caught(History, tmp_path, 200, "drawn twice|never be drawn twice|rolled back")


@pytest.mark.parametrize("seconds", BACK)
def test_an_engine_that_opens_windows_by_a_clock_that_went_back_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    def by_raw_clock(self: Engine, *, start: bool = False) -> None:
        if start:
            real(self, start=True)
            return
        now = self._clock()
        for query in self._queries.values():
            if query.schedule is not None:
                query.advance_to(query.schedule.at(now), self._drawer(query))
                query.open_window(query.schedule.at(now))
        self._stream_clock.advance_to(now)

    real = Engine._follow_clock
    monkeypatch.setattr(history, "BACK", (seconds,))
    monkeypatch.setattr(Engine, "_follow_clock", by_raw_clock)
    caught(History, tmp_path, 60, "was over, and was answered again")


def test_a_server_that_applies_batches_as_they_come_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReorderBuffer, "arrange", lambda self, jobs, engine: list(jobs))
    monkeypatch.setattr(BatchApplier, "_last", lambda self, place: 1 << 62)  # whose batches are never early
    monkeypatch.setattr(BatchApplier, "_apply_merged", lambda self, work: False)
    caught(Reordered, tmp_path, 60, "were late|has .* rows instead of|are there|rows were counted of")
