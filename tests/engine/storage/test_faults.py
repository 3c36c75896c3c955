"""A simulated disk that loses, reorders and tears what was not synced: every moment of a commit, and of the opening
after it.
"""

import itertools
import random
from pathlib import Path

import pytest

from panstream.engine.storage import SnapshotStore
from panstream.errors import StoreError
from tests.simulated.disk import Ending, SimulatedDisk, Stopped

ROOT = Path("/disk")
PLACE = Path("/disk/data/store")
SEEDS = 3
STATES = [{"a": bytes([number]) * size} for number, size in ((1, 40), (2, 1500), (3, 700))]
ENDINGS: tuple[Ending, ...] = ("kill", "power", "refuse")


class Lives:
    """A store on a simulated disk, from one end of its process to the next, and what was acknowledged."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.committed = 0
        self.tried = 0

    def live(self, fail_in: int | None, ending: Ending, commits: int) -> bool:
        """Open the store and commit what comes next; return whether there was nothing in the way."""
        self.disk.fail_in = fail_in
        self.disk.ending = ending
        self.disk.refusals = 1 + self.tried % 3
        store = None
        try:
            store = SnapshotStore(PLACE)
            self.check(store)
            for _ in range(commits):
                self.tried = self.committed + 1
                store.commit(STATES[self.committed % 3])
                self.committed = self.tried
            return self.disk.fail_in is not None or fail_in is None
        except (Stopped, StoreError):
            return False
        finally:
            try:
                if store is not None:
                    store.close()
            except Stopped:
                pass
            if ending == "refuse":
                self.disk.ending = "kill"
            self.disk.restart()

    def check(self, store: SnapshotStore) -> None:
        """What was acknowledged is there, or what was under way after it."""
        found = store.load()
        numbers = [
            number for number in range(self.tried + 1) if found == (STATES[(number - 1) % 3] if number else None)
        ]
        assert any(number >= self.committed for number in numbers), "what was acknowledged is gone"
        self.committed = max(numbers)


def lives(patch: pytest.MonkeyPatch, seed: int) -> Lives:
    disk = SimulatedDisk(ROOT, random.Random(seed).randrange)
    patch.setattr(SnapshotStore, "disk", disk)
    return Lives(disk)


def through(patch: pytest.MonkeyPatch, before: int, first: Ending, broken: str = "") -> int:
    """Let a store end at every moment, and once more, by power, at every moment of the next life; return how often."""
    ends = 0
    for at in itertools.count():
        reached = False
        for then, seed in itertools.product(range(12), range(SEEDS)):
            world = lives(patch, seed)
            world.disk.unsynced = lambda call: call == broken
            if before:
                world.live(None, "kill", before)
            reached |= not world.live(at, first, 2)
            world.live(then, "power", 1)
            assert world.live(None, "kill", 2), "the store does not open"
            ends += 1
        if not reached:
            return ends
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("first", ENDINGS)
def test_whatever_fails_what_was_acknowledged_is_there(
    monkeypatch: pytest.MonkeyPatch, before: int, first: Ending
) -> None:
    assert through(monkeypatch, before, first) > 200


@pytest.mark.parametrize("broken", ["sync", "sync directory"])
def test_a_store_that_leaves_out_a_sync_is_caught(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    with pytest.raises(AssertionError, match="acknowledged is gone|does not open"):
        through(monkeypatch, 0, "power", broken)


def test_a_store_that_trusts_the_cache_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was so: the old key went while the new state, of a process that was killed, was not on the disk."""
    monkeypatch.setattr(SnapshotStore, "_rewrite", lambda self, record: None)
    # Before a commit waits for the disk; and while the next process overwrites the old key
    killed = 7
    then = 5
    outcomes = set()
    for seed in range(100):
        world = lives(monkeypatch, seed)
        world.live(None, "kill", 1)
        world.live(killed, "kill", 1)
        world.live(then, "power", 1)
        outcomes.add(world.live(None, "kill", 1))
    assert outcomes == {False, True}
