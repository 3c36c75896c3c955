"""What histories have found, step by step: each went wrong once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import PanstreamError, StoreError
from tests.simulated.disk import SimulatedDisk, Stopped
from tests.simulated.history import History, on
from tests.simulated.two_machines import TwoMachines

FRONT = "the front end's disk is full"
A = True


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TwoMachines]:
    found = TwoMachines(1, tmp_path)
    with mock.patch("panstream.distributed.two_party.participant.wait_for_send_slot"), found._simulated():
        yield found
        found.let_go()
        for machine in found.machines.values():
            machine.close()


def die_after_the_machines(world: History, step: Any) -> None:
    """Take a step that the machines have durable and the front end has not."""
    store = world._running()._store
    with mock.patch.object(store, "commit", side_effect=StoreError(FRONT)), pytest.raises(StoreError, match=FRONT):
        step()
    world.let_go()


def opened_answers(world: TwoMachines, name: str) -> list[int]:
    return [number for number, _, _ in world.machines[A]._record.answers.get(f"0/0/{name}", [])]


def test_two_answers_of_one_step_are_given_again(world: TwoMachines) -> None:
    """Only the last was kept, and the front end asked for the first."""
    world._running()
    world.now += 25.0
    die_after_the_machines(world, world._running().advance)
    assert opened_answers(world, "ticks") == [1, 2]
    engine = world._running()
    engine.advance()
    assert engine.release_count("ticks") == len(world.seen) == 2
    assert world.machines[A]._party.shares["0/0/ticks"].released == 2


def test_an_answer_waits_for_a_front_end_that_ends_more_than_once(world: TwoMachines) -> None:
    """It was forgotten with the first commit of a front end that had not asked for it yet."""
    die_after_the_machines(world, lambda: world._running().release("asked"))
    for _ in range(2):
        world._send()
        world.let_go()
    world._send()
    assert opened_answers(world, "asked") == [1]
    world._ask()
    assert world.machines[A]._party.shares["0/0/asked"].released == 1
    world._send()
    world._send()
    assert opened_answers(world, "asked") == []
    world._ask()
    assert world._running().release_count("asked") == 2


def lives(root: Path, *fails: tuple[int | None, str]) -> bool:
    """Let a store commit in lives that end one after the other; all that may be lost with the power is lost."""
    disk = SimulatedDisk(root, lambda below: 0)
    committed = 0
    for fail_in, ending in fails:
        disk.fail_in = fail_in  # type: ignore[assignment]
        disk.ending = ending  # type: ignore[assignment]
        try:
            with on(disk), SnapshotStore(root / "store") as store:
                found = store.load()
                assert committed == 0 or found is not None, "what was acknowledged is gone"
                store.commit({"a": bytes(600)})
                committed += 1
        except (Stopped, PanstreamError):
            pass
        if disk.ending == "refuse":
            disk.ending = "kill"
        disk.restart()
    return committed > 0


@pytest.mark.parametrize("first", ["kill", "refuse"])
def test_names_are_durable_whoever_made_them(tmp_path: Path, first: str) -> None:
    """A process ends between making a directory, or a name in it, and waiting for the disk; the next takes it over."""
    for at in range(14):
        assert lives(tmp_path, (at, first), (None, "power"), (None, "power"), (None, "kill"))
