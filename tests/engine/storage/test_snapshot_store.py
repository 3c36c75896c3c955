"""One readable copy: crashes at every system call, tampering, locks, disks that refuse."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.engine.storage import SnapshotStore, sealed_box
from panstream.engine.storage import _key_record as record
from panstream.engine.storage import snapshot_store as snapshot
from panstream.errors import InvalidParameter, StoreDamaged, StoreError, StoreLocked

OLD = {"a": b"old state"}
NEW = {"a": b"new state", "ledger": b"{}"}
CALLS = ("open", "fsync", "fdatasync", "replace", "pwrite", "posix_fallocate")
BLOCK = 4096


def load(directory: Path, **options: Any) -> dict[str, bytes] | None:
    with SnapshotStore(directory, **options) as store:
        return store.load()


@given(st.dictionaries(st.text(max_size=8), st.binary(max_size=60), max_size=5))
@settings(max_examples=30)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, parts: dict[str, bytes]) -> None:
    directory = tmp_path_factory.mktemp("store")
    with SnapshotStore(directory) as store:
        assert store.load() is None
        store.commit(parts)
        assert store.load() == parts
    assert load(directory) == parts


def test_one_copy_only(tmp_path: Path) -> None:
    """Of all commits only one key is left, so that only one state can be read, and the file does not grow."""
    with SnapshotStore(tmp_path) as store:
        for number in range(5):
            store.commit({"a": bytes([number]) * 40})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "state.sealed"]
    assert all(b"\4" * 20 not in path.read_bytes() for path in tmp_path.iterdir())
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
    data = (tmp_path / "state.sealed").read_bytes()
    assert len(data) <= 4 * BLOCK
    assert [any(data[:BLOCK]), any(data[BLOCK : 2 * BLOCK])] == [True, False]


@given(st.lists(st.integers(0, 30_000), min_size=1, max_size=8))
@settings(max_examples=30, deadline=None)
def test_states_of_any_size_one_after_the_other(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    directory = tmp_path_factory.mktemp("store")
    for number, size in enumerate(sizes, start=1):
        parts = {"a": bytes([number]) * size}
        with SnapshotStore(directory) as store:
            store.commit(parts)
            assert store.load() == parts
        assert load(directory) == parts


def images(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    old: dict[str, bytes] = OLD,
    new: dict[str, bytes] = NEW,
    **options: Any,
) -> tuple[bytes, bytes]:
    """Return the file before a commit and at the moment when it is durable, before the old key is overwritten."""
    with SnapshotStore(directory, **options) as store:
        for number in range(4):
            store.commit({"a": bytes([number]) * 1500})  # so that the room is not empty
        store.commit(old)
        before = (directory / "state.sealed").read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(store, "_overwrite", lambda slot: None)
            store.commit(new)
    return before, (directory / "state.sealed").read_bytes()


def opened(directory: Path, image: bytes, **options: Any) -> dict[str, bytes] | None:
    directory.mkdir(exist_ok=True)
    (directory / "state.sealed").write_bytes(image)
    return load(directory, **options)


@pytest.mark.parametrize("operator_key", [None, bytes(range(32))])
def test_power_lost_while_the_disk_writes_its_blocks_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator_key: bytes | None
) -> None:
    """Whichever sectors of a commit reached the disk, it is the old state or the new one, and the other is gone
    after opening.
    """
    new = {"a": bytes(range(250)) * 6}
    before, after = images(tmp_path / "whole", monkeypatch, new=new, operator_key=operator_key)
    before += bytes(len(after) - len(before))
    sectors = [at for at in range(0, len(after), 512) if before[at : at + 512] != after[at : at + 512]]
    assert len(sectors) == 5  # key, and ciphertext over what was there before
    for written in range(1 << len(sectors)):
        mixed = bytearray(before)
        for number, at in enumerate(sectors):
            if written >> number & 1:
                mixed[at : at + 512] = after[at : at + 512]
        directory = tmp_path / str(written)
        assert opened(directory, mixed, operator_key=operator_key) == (new if written == 31 else OLD)
        rest = (directory / "state.sealed").read_bytes()
        assert [any(rest[:BLOCK]), any(rest[BLOCK : 2 * BLOCK])].count(True) == 1


@pytest.mark.parametrize("operator_key", [None, bytes(range(32))])
def test_a_damaged_newest_state_is_not_taken_for_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator_key: bytes | None
) -> None:
    """Before the old key is gone, every bit of the newest key, of its ciphertext and of its marks; the state before
    only if asked.
    """
    new = {"a": bytes(range(250)) * 6}
    before, after = images(tmp_path / "whole", monkeypatch, new=new, operator_key=operator_key)
    before += bytes(len(after) - len(before))
    changed = [at for at in range(len(after)) if before[at] != after[at]]
    key = [at for at in changed if at < 2 * BLOCK]
    state = [at for at in changed if at >= 2 * BLOCK]
    assert opened(tmp_path / "x", after, operator_key=operator_key) == new
    outcomes = Counter()
    for number, at in enumerate([*key[::3], *state[::17], *state[-16::4]]):
        flipped = after[:at] + bytes([after[at] ^ 1 << number % 8]) + after[at + 1 :]
        with contextlib.suppress(StoreDamaged):
            found = opened(tmp_path / "x", flipped, operator_key=operator_key)
            assert found == new, f"a flip of bit {number % 8} of byte {at} opened the state before"
            outcomes["harmless"] += 1  # the end of the key and marks are looked at only if something else is wrong
            continue
        assert (tmp_path / "x" / "state.sealed").read_bytes() == flipped, "a refusal changes nothing"
        with pytest.raises(StoreDamaged, match="panstream recover"):
            SnapshotStore(tmp_path / "x", operator_key=operator_key)
        assert load(tmp_path / "x", operator_key=operator_key, accept_previous=True) == OLD
        outcomes["refused"] += 1
    assert outcomes["harmless"] <= 12
    assert outcomes["refused"] > 100


def test_a_damaged_key_of_the_state_before_opens_the_newest_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells which of the two was the newer."""
    before, after = images(tmp_path / "whole", monkeypatch)
    slot = 0 if before[:8] == after[:8] != bytes(8) else BLOCK
    for at in range(slot, slot + 96, 7):
        flipped = after[:at] + bytes([after[at] ^ 1]) + after[at + 1 :]
        with pytest.raises(StoreDamaged, match="panstream recover"):
            opened(tmp_path / "x", flipped)
        assert opened(tmp_path / "x", flipped, accept_previous=True) == NEW


def test_pieces_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state is read and written in pieces, and the system may give less than was asked for."""
    monkeypatch.setattr(record, "_PIECE", 3)
    real_read = os.pread
    real_write = os.pwrite
    monkeypatch.setattr(snapshot.os, "pread", lambda file, size, at: real_read(file, min(size, 333), at))
    monkeypatch.setattr(snapshot.os, "pwrite", lambda file, data, at: real_write(file, memoryview(data)[:333], at))
    for size in (0, 1, 467, 468, 469, 496, 1459, 1460, 5000):
        parts = {"a": bytes(range(200)) * 30, "b": b"x" * size}
        with SnapshotStore(tmp_path) as store:
            store.commit(parts)
            assert store.load() == parts
        assert load(tmp_path) == parts


def test_a_state_beyond_what_can_be_sealed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SnapshotStore(tmp_path) as store:
        store.commit(OLD)
        monkeypatch.setattr(sealed_box, "MAX_BYTES", 1000)
        with pytest.raises(StoreError, match="1,000 bytes that the store can hold"):
            store.commit({"a": bytes(1000)})
        assert store.load() == OLD


def test_a_torn_key_is_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = images(tmp_path, monkeypatch)
    for cut in range(0, 96, 5):
        torn = before[:BLOCK] + after[BLOCK : BLOCK + cut] + bytes(BLOCK - cut) + after[2 * BLOCK :]
        if torn == after:  # the bytes that were cut off are zero, as the last one is in 1 of 256 runs
            continue
        (tmp_path / "state.sealed").write_bytes(torn)
        assert load(tmp_path) == OLD
        assert not any((tmp_path / "state.sealed").read_bytes()[BLOCK : 2 * BLOCK])


class Crash(BaseException):
    """The machine stops here."""


def crash_at(monkeypatch: pytest.MonkeyPatch, position: int) -> list[str]:
    """Let the ``position``-th system call of the next commit be the last; before it happens."""
    done: list[str] = []

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(done) >= position:
                raise Crash
            done.append(name)
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        monkeypatch.setattr(snapshot.os, name, wrapped(name, getattr(os, name)))
    return done


def test_a_crash_anywhere_leaves_the_old_or_the_new_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen before each system call in turn: the file always opens, and the key decides which state it is."""
    outcomes = []
    for position in range(100):
        directory = tmp_path / str(position)
        with SnapshotStore(directory) as store:
            store.commit(OLD)
        frozen = tmp_path / f"{position}-frozen"
        with monkeypatch.context() as patch, SnapshotStore(directory) as store:
            done = crash_at(patch, position)
            try:
                store.commit(NEW)
            except Crash:
                crashed = True
            else:
                crashed = False
        shutil.copytree(directory, frozen)
        found = load(frozen)
        assert found == (NEW if done.count("pwrite") > 1 else OLD)
        outcomes.append(found == NEW)
        with SnapshotStore(frozen) as store:
            store.commit(NEW)
            assert store.load() == NEW
        if not crashed:
            break
    assert len(outcomes) > 5
    assert sorted(outcomes) == outcomes, "old state after the commit point"


def test_any_altered_byte_is_refused(tmp_path: Path) -> None:
    with SnapshotStore(tmp_path) as store:
        store.commit(OLD)
        store.commit({"a": bytes(9000)})
        store.commit(NEW)
    path = tmp_path / "state.sealed"
    good = path.read_bytes()
    size = 12 + 4 + sum(10 + len(name) + len(content) for name, content in NEW.items()) + 16
    for position in [*range(0, 96, 3), *range(2 * BLOCK, 2 * BLOCK + size, 3)]:
        path.write_bytes(good[:position] + bytes([good[position] ^ 4]) + good[position + 1 :])
        with pytest.raises(StoreDamaged):
            load(tmp_path)
    for cut in (0, 1, 95, BLOCK, 2 * BLOCK, 2 * BLOCK + size - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(StoreDamaged):
            load(tmp_path)
    path.write_bytes(good)
    assert load(tmp_path) == NEW


@pytest.mark.parametrize("part", ["key", "ciphertext"])
def test_rolling_back_a_part_is_detected(tmp_path: Path, part: str) -> None:
    with SnapshotStore(tmp_path) as store:
        store.commit(OLD)
        store.commit(NEW)
        old = (tmp_path / "state.sealed").read_bytes()
        store.commit(OLD)
        store.commit(NEW)
    new = (tmp_path / "state.sealed").read_bytes()
    cut = 2 * BLOCK
    (tmp_path / "state.sealed").write_bytes(old[:cut] + new[cut:] if part == "key" else new[:cut] + old[cut:])
    with pytest.raises(StoreDamaged, match="does not fit"):
        load(tmp_path)


def test_foreign_and_newer_files_are_refused(tmp_path: Path) -> None:
    with SnapshotStore(tmp_path) as store:
        store.commit(OLD)
    good = (tmp_path / "state.sealed").read_bytes()
    for content, words in (
        (b"something else" * 900, "foreign"),
        (b"PANKEY99" + good[8:], "version"),
        (bytes(len(good)), "no key"),
    ):
        (tmp_path / "state.sealed").write_bytes(content)
        with pytest.raises(StoreDamaged, match=words):
            SnapshotStore(tmp_path)


def test_operator_key(tmp_path: Path) -> None:
    key = bytes(range(32))
    with SnapshotStore(tmp_path, operator_key=key) as store:
        store.commit(OLD)
    assert load(tmp_path, operator_key=key) == OLD
    with pytest.raises(StoreDamaged, match="supply it"):
        SnapshotStore(tmp_path)
    with pytest.raises(StoreDamaged, match="key is another's"):
        SnapshotStore(tmp_path, operator_key=bytes(32))
    with pytest.raises(InvalidParameter, match="must have 32 bytes"):
        SnapshotStore(tmp_path, operator_key=b"short")
    plain = tmp_path / "plain"
    with SnapshotStore(plain) as store:
        store.commit(OLD)
    with pytest.raises(StoreDamaged, match="without an operator's key"):
        SnapshotStore(plain, operator_key=key)


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with SnapshotStore(tmp_path) as store:
        store.commit(OLD)
        with pytest.raises(StoreLocked, match="another process"):
            SnapshotStore(tmp_path)
        assert store.load() == OLD
    assert load(tmp_path) == OLD
    with pytest.raises(StoreError, match="closed"):
        store.commit(NEW)


@pytest.mark.parametrize("reason", [OSError(28, "No space left on device"), OSError(30, "Read-only file system")])
@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite", "fdatasync"])
def test_a_disk_that_refuses_leaves_the_old_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: OSError, call: str
) -> None:
    with SnapshotStore(tmp_path) as store:
        store.commit(OLD)
        with monkeypatch.context() as patch:

            def refuse(*args: Any) -> Any:
                raise reason

            patch.setattr(snapshot.os, call, refuse)
            with pytest.raises(StoreError, match="intact"):
                store.commit(NEW)
        assert store.load() == OLD
        store.commit(NEW)
        assert store.load() == NEW


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot use the store"):
        SnapshotStore(tmp_path / "file")


WRITER = """
import sys
from panstream.engine.storage import SnapshotStore
with SnapshotStore(sys.argv[1]) as store:
    number = int((store.load() or {"n": b"0"})["n"])
    while True:
        number += 1
        store.commit({"n": str(number).encode(), "x": bytes(5000)})
        print(number, flush=True)
"""


@pytest.mark.slow
def test_kill_nine_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """The real thing: a writer killed 15 times at random moments; what it acknowledged is there, and nothing else
    is lost.
    """
    moment = random.Random(7)
    last = 0
    for _ in range(15):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(moment.randrange(1, 12)):
                last = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split()
        last = int(rest[-1]) if rest else last
        found = load(tmp_path)
        assert found is not None
        assert int(found["n"]) in (last, last + 1)
        last = int(found["n"])
