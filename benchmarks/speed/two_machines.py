"""Speed of two machines: durable steps a second over TLS, and rows per CPU second beside one machine.

    python -m benchmarks.speed.two_machines [seconds]

All three parties are one process on one host, so the promise is void here; the work is the same.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.secret_shared.party import Party, StepTask, deal
from panstream.algorithms.secret_shared.presence import SharedDistinct
from panstream.algorithms.secret_shared.ring import Keystream
from panstream.distributed.two_party.backend import TwoPartyBackend
from panstream.distributed.two_party.https import HttpsPeer, HttpsTwoPartyTransport, ParticipantServer
from panstream.distributed.two_party.participant import Participant
from panstream.primitives.certificates import Authority
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource
from panstream.primitives.noise.entropy import system_entropy


def steps(seconds: float) -> tuple[float, float]:
    """Return durable steps a second over mutual TLS, fresh connections for every step, and CPU seconds a step."""
    shared = SharedDistinct(epsilon=1.0, buckets=4096)
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder) / "certificates")
        made = {name: authority.issue(name) for name in ("a", "b", "front")}
        second = Participant(Path(folder) / "b", first=False, stream="s")
        servers = [ParticipantServer(second, made["b"], ("front", "a"))]
        peer = HttpsPeer("b", servers[0].address, made["a"])
        first = Participant(Path(folder) / "a", first=True, stream="s", peer=peer)
        servers.append(ParticipantServer(first, made["a"], ("front",), peer=peer))
        for server in servers:
            server.start()
        link = HttpsTwoPartyTransport((servers[1].address, servers[0].address), ("a", "b"), made["front"])
        backend = TwoPartyBackend(link, "s", {"q": shared})
        state = backend.start("q", (0, 0), shared)
        backend.flush()
        begun = time.perf_counter()
        spent = time.process_time()
        count = 0
        while time.perf_counter() - begun < seconds:
            state.apply(shared.batch(np.arange(1000)))
            backend.flush()
            count += 1
        rate = count / (time.perf_counter() - begun)
        each = (time.process_time() - spent) / count
        for server in servers:
            server.stop()
        first.close()
        second.close()
    return rate, each


def key() -> np.ndarray:
    """Return a fresh key."""
    made = np.empty(32, np.uint8)
    system_entropy(made)
    return made


def rows(size: int, rounds: int) -> tuple[float, float]:
    """Return millions of rows per CPU second of front end and both machines together, and of one machine."""
    shared = SharedDistinct(epsilon=1.0, buckets=4096)
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 1 << 62, size)
    monitor = Bitmap(epsilon=1.0).start()
    parties = Party(first=True), Party(first=False)
    rules = {"q": shared.rule}

    def step(task: StepTask, change: dict) -> None:
        keys = (key(), key())
        common = key()
        with Scratch() as scratch, NoiseSource() as rng:
            dealt = deal(task, rules, change, *(Keystream(each, scratch) for each in keys))
            given = (None, dealt)
            sent = [
                np.concatenate([np.empty(0, np.uint8), *party.open(task, Keystream(each, scratch), own, rng)])
                for party, each, own in zip(parties, keys, given, strict=True)
            ]
            for party, other in zip(parties, reversed(sent), strict=True):
                party.install_shares(party.close(other, Keystream(common, scratch)))

    def both() -> None:
        batch = shared.batch(ids)
        change = shared.empty_buffer()
        with NoiseSource() as rng:
            shared.accumulate(change, batch, rng.scratch)
            step(StepTask(kind="rows"), {"q": shared.to_dense_update(change, rng)})
        batch.wipe()

    step(StepTask(kind="idle", started=rules), {})
    found = []
    for work in (both, lambda: monitor.update(ids)):
        work()
        times = []
        for _ in range(rounds):
            begun = time.process_time()
            work()
            times.append(time.process_time() - begun)
        found.append(size / sorted(times)[rounds // 2] / 1e6)
    return found[0], found[1]


if __name__ == "__main__":
    print("one host is one machine: nothing is promised here")
    rate, each = steps(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0)
    print(f"durable steps a second over TLS, 12 KB of cells: {rate:.1f}, {1000 * each:.0f} ms of CPU each")
    for count in (50_000, 500_000, 5_000_000):
        two, one = rows(count, 9)
        print(f"batches of {count:9,}: M rows per CPU second {two:6.0f}, on one machine {one:6.0f}: {two / one:.2f}")
