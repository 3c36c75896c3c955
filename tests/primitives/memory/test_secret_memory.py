"""States in secret memory: no other process reads them, results are the same, and freed memory is zero."""

import faulthandler
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from panstream.algorithms.continual.sums import KaryTree
from panstream.algorithms.distinct import Bitmap
from panstream.core.monitor import Monitor
from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.primitives.memory import secret_memory
from panstream.primitives.noise import SeededSource
from tests.distributed.two_party.test_steps import batch, opened, truths, values
from tests.scanned import Scanned

PIECE = 16
PROGRAM = """
from panstream.primitives.memory import secret_memory
secret_memory.enable_secret_memory()
from panstream.algorithms.continual.sums import KaryTree
from panstream.algorithms.distinct import Bitmap
monitor = Bitmap(epsilon=1.0, buckets=4096, levels=8).start()
for _ in range(3):
    monitor.update(range(5000))
line()
cells = memoryview(monitor.state.bits).cast("B")
os.write(1, len(cells).to_bytes(8, "little"))
while cells:
    cells = cells[os.write(1, cells):]
line()
"""

needs_secret_memory = pytest.mark.skipif(
    secret_memory._map_secret(1 << 12) is None, reason="this kernel has no secret memory"
)


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(secret_memory.VARIABLE, raising=False)
    secret_memory.enable_secret_memory()
    yield
    secret_memory._wanted = False


def pieces_of(child: Scanned) -> list[bytes]:
    out = child.process.stdout
    assert out
    child.send(b"\n")
    left = int.from_bytes(out.read(8), "little")
    cells = b""
    while len(cells) < left:
        cells += out.read(left - len(cells))
    return [cells[start : start + PIECE] for start in range(0, len(cells) - PIECE + 1, PIECE)]


@pytest.mark.slow
@needs_secret_memory
@pytest.mark.parametrize("secret", [True, False])
@pytest.mark.usefixtures("warm_scanner")
def test_a_scan_finds_a_state_only_in_ordinary_memory(secret: bool) -> None:
    child = Scanned(PROGRAM, {secret_memory.VARIABLE: str(int(secret))})
    try:
        pieces = pieces_of(child)
        report = child.scan(pieces, encodings=["raw"])
    finally:
        child.close()
    assert report.valid, str(report)
    assert report.found_needles == (0 if secret else len(set(pieces)))
    assert (report.secret_bytes > 0) == secret


@pytest.mark.usefixtures("wanted")
def test_states_compute_as_in_ordinary_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draws give the same states, through starts, updates, refreshes and releases."""
    copies = []
    for memory in (True, False):
        monkeypatch.setattr(secret_memory, "_wanted", memory)
        users = Monitor(Bitmap(epsilon=1.0, buckets=256, levels=4, announced=1), rng=SeededSource(3))
        users.update(range(100))
        users.refresh(rows_since_copy=False)
        users.update(range(50, 200))
        rows = Monitor(KaryTree(epsilon=1.0, horizon=64), rng=SeededSource(4))
        ticks = rows.tick_many(np.ones(10, np.int64)).value
        copies.append((users.state.bits.copy(), users.state.frozen.copy(), users.release().value, ticks))
        assert secret_memory._is_ours(users.state.bits) == memory
    for one, other in zip(*copies, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("size", [1, 63, 64, 65, 4096, 32_768, 32_769, 300_000])
def test_arrays_do_not_overlap_and_come_back_as_zeros(size: int) -> None:
    gc.collect()
    before = secret_memory.report().held
    arrays = [secret_memory._moved(np.full(size, value, np.uint8)) for value in range(1, 20)]
    assert all((array == value).all() for value, array in enumerate(arrays, start=1))
    assert sum(secret_memory.report().held.values()) - sum(before.values()) >= 19 * size
    del arrays
    gc.collect()
    assert secret_memory.report().held == before
    assert not np.asarray(secret_memory._Block(size)).any()


@pytest.mark.usefixtures("wanted")
def test_shape_and_type_are_kept_and_the_old_place_is_wiped() -> None:
    old = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    new = secret_memory._moved(old)
    np.testing.assert_array_equal(new, np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    assert (new.dtype, new.flags.c_contiguous, new.flags.writeable, new.flags.aligned) == (np.int32, True, True, True)
    assert not old.any()


@pytest.mark.usefixtures("wanted")
def test_without_secret_memory_states_are_locked_or_ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_memory, "_map_secret", lambda size: None)
    array = secret_memory._moved(np.ones(1 << 16, np.uint8))
    kind = secret_memory.report().kind
    assert kind in ("locked", "ordinary")
    assert array.all()
    assert ("never swapped" in str(secret_memory.report())) == (kind == "locked")


@needs_secret_memory
@pytest.mark.usefixtures("wanted")
def test_a_forked_process_does_not_have_it() -> None:
    """It would share it, and change the state of this process."""
    array = secret_memory._moved(np.ones(1 << 16, np.uint8))
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        array[0] = 2  # ends the child: there is nothing at this address
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert array[0] == 1


def test_a_library_keeps_states_in_ordinary_memory() -> None:
    monitor = Bitmap(epsilon=1.0, buckets=256, levels=4).start()
    assert not secret_memory._is_ours(monitor.state.bits)
    assert str(secret_memory.report()) == "ordinary memory: may be swapped"


@pytest.mark.usefixtures("wanted")
def test_the_shares_of_two_machines_are_there_between_steps(tmp_path: Path) -> None:
    """Also those that wait for the first machine's decision, and those that were loaded; what they open to is true."""
    link = InProcessTwoPartyTransport(tmp_path, "s")
    with opened(tmp_path, link) as engine:
        for number in range(2):
            engine.apply(batch(number))
    settled = link.second._resolve_in_doubt
    link.second._resolve_in_doubt = lambda step, attempt: None  # type: ignore[method-assign]
    with opened(tmp_path, link) as engine:
        assert link.second._in_doubt is not None
        pending = [*link.second._in_doubt[1].values()]
        link.second._resolve_in_doubt = settled  # type: ignore[method-assign]
        shares = [*link.first._party.shares.values(), *link.second._party.shares.values(), *pending]
        assert len(shares) == 12 and all(secret_memory._is_ours(share.cells) for share in shares)
    link.close()
    link = InProcessTwoPartyTransport(tmp_path, "s")
    shares = [*link.first._party.shares.values(), *link.second._party.shares.values()]
    assert len(shares) == 8 and all(secret_memory._is_ours(share.cells) for share in shares)
    with opened(tmp_path, link) as engine:
        found_values = values(engine)
    link.close()
    assert {name: found_values[name] for name in truths(2)} == pytest.approx(truths(2), rel=1e-4)
