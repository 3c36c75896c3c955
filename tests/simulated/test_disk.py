"""The simulated disk loses what a disk may lose, and nothing else."""

import random
from pathlib import Path

import pytest

from tests.simulated.disk import SECTOR, SimulatedDisk, Stopped

ROOT = Path("/disk")
FILE = ROOT / "file"


def outcomes(make: object, tries: int = 400) -> set[object]:
    return {make(SimulatedDisk(ROOT, random.Random(seed).randrange)) for seed in range(tries)}  # type: ignore[operator]


def made(disk: SimulatedDisk, data: bytes) -> int:
    file = disk.open(FILE, create=True)
    disk.write(file, data, 0)
    disk.sync(file)
    disk.sync_directory(ROOT)
    return file


def read(disk: SimulatedDisk) -> bytes | None:
    return disk.read(disk.open(FILE), 1 << 20, 0) if disk.exists(FILE) else None


def lose_power(disk: SimulatedDisk) -> None:
    disk.ending = "power"
    disk.restart()


def test_sectors_are_lost_reordered_and_torn_one_by_one() -> None:
    def history(disk: SimulatedDisk) -> object:
        file = made(disk, b"o" * 3 * SECTOR)
        disk.write(file, b"1" * 2 * SECTOR, 0)
        disk.write(file, b"2" * 2 * SECTOR, SECTOR)
        lose_power(disk)
        found = read(disk)
        assert found is not None and all(len(set(found[at : at + SECTOR])) == 1 for at in (0, SECTOR, 2 * SECTOR))
        return found[::SECTOR]

    assert outcomes(history) == {bytes([a, b, c]) for a in b"o1" for b in b"o12" for c in b"o2"}


def test_what_was_synced_stays() -> None:
    def history(disk: SimulatedDisk) -> object:
        file = made(disk, b"old" * 500)
        disk.write(file, b"new", 7)
        disk.sync(file)
        lose_power(disk)
        return read(disk)

    assert outcomes(history, 50) == {b"old" * 2 + b"onewd"[:1] + b"new" + (b"old" * 500)[10:]}


def test_a_killed_process_loses_nothing_and_the_power_after_it_does() -> None:
    def history(disk: SimulatedDisk) -> object:
        file = made(disk, b"old")
        disk.write(file, b"new", 0)
        disk.ending = "kill"
        disk.restart()
        assert read(disk) == b"new"
        lose_power(disk)
        return read(disk)

    assert outcomes(history) == {b"old", b"new"}


def test_sizes_are_lost_like_data() -> None:
    def history(disk: SimulatedDisk) -> object:
        file = made(disk, b"a" * SECTOR)
        disk.reserve(file, 2 * SECTOR)
        disk.write(file, b"b" * SECTOR, SECTOR)
        lose_power(disk)
        return read(disk)

    whole = b"a" * SECTOR
    assert outcomes(history) == {whole, whole + b"b" * SECTOR, whole + bytes(SECTOR)}


def test_names_are_lost_until_their_directory_is_synced() -> None:
    def history(disk: SimulatedDisk) -> object:
        made(disk, b"old")
        file = disk.open(ROOT / "new", create=True)
        disk.write(file, b"new", 0)
        disk.sync(file)
        disk.replace(ROOT / "new", FILE)
        lose_power(disk)
        return read(disk), disk.exists(ROOT / "new")

    assert outcomes(history) == {(b"old", False), (b"old", True), (b"new", False)}


def test_a_directory_that_is_lost_takes_all_with_it() -> None:
    def history(disk: SimulatedDisk) -> object:
        disk.make_directory(ROOT / "d")
        file = disk.open(ROOT / "d" / "file", create=True)
        disk.sync(file)
        disk.sync_directory(ROOT / "d")
        lose_power(disk)
        return disk.exists(ROOT / "d"), disk.exists(ROOT / "d" / "file")

    assert outcomes(history) == {(False, False), (True, True)}


def test_data_that_a_sync_refused_is_not_written_by_the_next() -> None:
    def history(disk: SimulatedDisk) -> object:
        file = made(disk, b"old")
        disk.write(file, b"new", 0)
        disk.fail_in = 0
        disk.ending = "refuse"
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync(file)
        disk.sync(file)
        lose_power(disk)
        return read(disk)

    assert outcomes(history) == {b"old", b"new"}


def test_a_stopped_process_does_nothing_more() -> None:
    disk = SimulatedDisk(ROOT, random.Random(0).randrange)
    file = made(disk, b"old")
    disk.fail_in = 0
    for _ in range(2):
        with pytest.raises(Stopped):
            disk.sync(file)
    with pytest.raises(Stopped):
        disk.read(file, 1, 0)
    disk.restart()
    assert read(disk) == b"old"
