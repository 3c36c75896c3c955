"""Machines and front end killed at once, by turns, under load: nothing is lost, doubled, or does not fit.

``PANSTREAM_KILLS=200`` kills 200 times, a few minutes on a quiet machine.
"""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest

from panstream.engine.storage.snapshot_store import SnapshotStore
from tests.distributed.two_party.front_child import SIZE
from tests.distributed.two_party.processes import Processes

KILLS = int(os.environ.get("PANSTREAM_KILLS", "3"))


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_by_kills(tmp_path: Path) -> None:
    chance = random.Random(5)
    batches = 5 * KILLS
    trio = Processes(tmp_path)
    kills = dict.fromkeys(("a", "b", "front"), 0)
    try:
        trio.machine("b")
        trio.machine("a")
        while True:
            front = trio.front(batches)
            victim = min(kills, key=lambda name: (kills[name], chance.random()))
            after = chance.randrange(1, 8)
            lines = 0
            last = ""
            for line in front.stdout:
                last = line
                lines = lines + 1
                if sum(kills.values()) < KILLS and lines == after:
                    threading.Event().wait(chance.random() / 20)  # anywhere in a step
                    kills[victim] += 1
                    trio.kill(victim)
                    if victim == "front":
                        break
                    trio.machine(victim)
            if "front" in trio.running:
                front.process.join()
                trio.kill("front")
            if last.startswith("answers "):
                break
    finally:
        trio.close()
    found = json.loads(last.removeprefix("answers "))
    print(kills)
    assert sum(kills.values()) == KILLS
    assert found == {"share": [float(batches * SIZE)], "count": [float(batches * SIZE)]}
    first, second = (_loaded(tmp_path / name) for name in ("a", "b"))
    places = [[json.loads(parts["now"])[name] for name in ("step", "attempt")] for parts in (first, second)]
    cells = [np.frombuffer(parts["now/0/0/share"], np.uint8) for parts in (first, second)]
    if "next" in second:  # killed before it heard of the last decision
        places[1] = [json.loads(second["next"])[name] for name in ("step", "attempt")]
        cells[1] = np.frombuffer(second["next/0/0/share"], np.uint8)
    assert places[0] == places[1]
    came = np.unpackbits(cells[0] ^ cells[1], bitorder="little")
    assert np.array_equal(np.flatnonzero(came), np.arange(batches * SIZE))


def _loaded(directory: Path) -> dict[str, bytes]:
    with SnapshotStore(directory) as store:
        return store.load() or {}
