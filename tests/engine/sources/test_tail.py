"""Growing files: appended, replaced, cut, gone and back, and found again after a restart. Time is the test's."""

import gzip
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources import TailSource
from panstream.errors import SourceError
from tests.engine.runtime.streams import good

SCHEMA = RowSchema(columns={"ip": "string", "n": "int"}, user="ip")


class Player:
    """Plays a script: one action every time that the source sleeps, and the end after the last.

    With ``waits`` it ends after all files that were renamed have been closed.
    """

    def __init__(self, *actions: Callable[[], object], waits: bool = True) -> None:
        self.actions = list(actions)
        self.now = 0.0
        self.slept = []
        self.waits = waits
        self.source: TailSource | None = None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += 1.0
        assert self.source is not None
        if self.actions:
            self.actions.pop(0)()
        elif self.source._renamed and self.waits:
            self.now += 60.0
        elif len(self.slept) > 3 and len(set(self.slept[-3:])) == 1:  # nothing waits any more
            self.source.close()

    def play(self, *inputs: str, applied: dict[str, int] | None = None, **settings: object) -> list[RowBatch]:
        self.source = TailSource(
            inputs,
            SCHEMA,
            clock=lambda: self.now,
            sleep=self.sleep,
            **settings,  # type: ignore[arg-type]
        )
        self.source.resume(applied or {})
        return [batch for batch in self.source.batches() if batch is not None]


def append(path: Path, text: str) -> Callable[[], object]:
    def act() -> None:
        with path.open("a") as file:
            file.write(text)

    return act


def numbers(batches: list[RowBatch]) -> list[int]:
    return [n for batch in batches for n in good(batch).column("n").to_pylist()]


def applied_by(batches: list[RowBatch]) -> dict[str, int]:
    return {batch.producer or "": batch.sequence or 0 for batch in batches}


def test_growth(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("ip,n\na,1\n")
    player = Player(
        append(path, "b,2\nc,"), append(path, "3\n"), lambda: None, append(path, 'd,"x\n'), append(path, 'y"\ne,5\n')
    )
    batches = player.play(str(path))
    assert numbers(batches) == [1, 2, 3, 5]
    assert [batch.sequence for batch in batches] == [2, 3, 5]
    assert [bad.row for batch in batches for bad in batch.bad_rows(SCHEMA)] == [4]
    assert len({batch.producer for batch in batches}) == 1


def test_a_batch_waits_no_longer_than_it_must(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("ip,n\na,1\n")
    player = Player()
    batches = player.play(str(path), batch_time=0.02, poll=0.5)
    assert numbers(batches) == [1]
    assert player.slept[0] == pytest.approx(0.02)
    assert set(player.slept[1:]) == {0.5}


def test_many_rows_at_once(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    player = Player(append(path, "".join(f'{{"ip":"a","n":{n}}}\n' for n in range(10))))
    batches = player.play(str(path), batch_rows=4)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert numbers(batches) == list(range(10))


def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    """The old file is read to its end, the new one from its head: log rotation by renaming."""
    path = tmp_path / "v.csv"
    path.write_text("ip,n\na,1\n")

    def rotate() -> None:
        append(path, "b,2\nlast,3")()
        path.rename(tmp_path / "old")
        path.write_text("n,ip\n4,c\n")

    batches = Player(rotate, append(path, "5,d\n")).play(str(path))
    assert numbers(batches) == [1, 2, 4, 5, 3]  # the last line is complete when the old file is closed
    assert [batch.sequence for batch in batches] == [2, 2, 3]
    first, second = dict.fromkeys(batch.producer or "" for batch in batches)
    assert first.startswith("v.csv@0-")
    assert second.startswith("v.csv@1-")


def test_rows_that_are_appended_after_the_rename(tmp_path: Path) -> None:
    """The program that writes still has the old file open: for a while, and longer as long as it writes."""
    path = tmp_path / "v.csv"
    old = tmp_path / "v.csv.1"
    path.write_text("ip,n\na,1\n")

    def rotate() -> None:
        path.rename(old)
        path.write_text("ip,n\nb,2\n")

    def wait(seconds: float) -> Callable[[], object]:
        return lambda: setattr(player, "now", player.now + seconds)

    late = [append(old, "c,3\n"), wait(50), append(old, "d,4\n"), wait(50), append(path, "e,5\n"), append(old, "f,6\n")]
    player = Player(rotate, *late, wait(61), lambda: None, append(old, "too late,7\n"), lambda: None)
    batches = player.play(str(path))
    assert sorted(numbers(batches)) == [1, 2, 3, 4, 5, 6]
    assert len(applied_by(batches)) == 2


def test_a_file_that_is_removed_while_it_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("ip,n\na,1\n")
    with path.open("a") as writer:

        def write(text: str) -> Callable[[], object]:
            return lambda: (writer.write(text), writer.flush())

        player = Player(path.unlink, write("b,2\n"), lambda: path.write_text("ip,n\nc,3\n"), write("d,4\n"))
        assert sorted(numbers(player.play(str(path)))) == [1, 2, 3, 4]


def test_a_file_that_was_cut_and_is_longer_than_before(tmp_path: Path) -> None:
    """Between two looks: what stands where a line ended tells."""
    path = tmp_path / "v.csv"
    path.write_text("ip,n\na,1\nbb,2\n")
    more = "".join(f"{'c' * n},{n}\n" for n in range(3, 20))
    batches = Player(lambda: None, lambda: path.write_text("ip,n\n" + more)).play(str(path))
    assert numbers(batches) == list(range(1, 20))
    assert len(applied_by(batches)) == 2


def test_a_hole_before_the_position_of_a_program_that_writes_on(tmp_path: Path) -> None:
    """It does not append, so after a cut it goes on where it was."""
    path = tmp_path / "v.csv"
    with path.open("w") as writer:
        writer.write("ip,n\na,1\n")
        writer.flush()

        def cut_and_write() -> None:
            os.truncate(path, 0)
            writer.write("b,2\n")
            writer.flush()

        assert numbers(Player(lambda: None, cut_and_write).play(str(path))) == [1, 2]


def test_a_renamed_file_is_found_again_after_a_restart(tmp_path: Path) -> None:
    """By its inode and a name like its own; what it lost, or what is no such file, is left alone."""
    path = tmp_path / "v.csv"
    old = tmp_path / "v.csv.1"
    path.write_text("ip,n\na,1\nb,2\n")
    applied = applied_by(Player().play(str(path)))
    path.rename(old)
    append(old, "c,3\n")()  # while nobody watches
    path.write_text("ip,n\nd,4\n")
    batches = Player(append(old, "e,5\n"), append(path, "f,6\n")).play(str(path), applied=applied)
    assert sorted(numbers(batches)) == [3, 4, 5, 6]
    applied |= applied_by(batches)
    assert len(applied) == 2
    assert Player().play(str(path), applied=applied) == []
    append(old, "g,7\n")()
    assert numbers(Player(waits=False).play(str(path), applied=applied)) == [7]
    old.write_text("ip,n\nh,8\n")  # shorter than what was applied: another file with the same inode
    assert Player().play(str(path), applied=applied) == []
    old.write_bytes(gzip.compress(b"ip,n\n" * 99))
    assert Player().play(str(path), applied=applied) == []
    old.write_text("ip,n\n" + "i,9\n" * 99)
    old.rename(tmp_path / "v_other.csv")  # not a name that rotation gives
    assert Player().play(str(path), applied=applied) == []


@pytest.mark.parametrize("seed", range(30))
def test_every_row_is_taken_once_whatever_happens(tmp_path: Path, seed: int) -> None:
    """Appends to the file and to its predecessor, rotations, batches that are not applied, and restarts.

    A file is renamed only once some of its rows are applied: of others the engine knows nothing.
    """
    rng = random.Random(seed)
    path = tmp_path / "v.csv"
    number = 0
    files = 0
    path.write_text("ip,n\n")
    taken: list[int] = []
    applied: dict[str, int] = {}

    def write(target: Path) -> None:
        nonlocal number
        with target.open("a") as file:
            for _ in range(rng.randrange(1, 4)):
                number += 1
                file.write(f"a,{number}\n")

    def rotate() -> None:
        nonlocal files
        path.rename(tmp_path / f"v.csv.{files}")
        files += 1
        path.write_text("ip,n\n")

    def act() -> None:
        choice = rng.random()
        if choice < 0.2 and any(name.endswith(f"-{path.stat().st_ino:x}") for name in applied):
            rotate()
        elif choice < 0.6 and files:
            write(tmp_path / f"v.csv.{files - 1}")
        else:
            write(path)

    for _ in range(6):
        act()  # while nobody watches
        player = Player(*[act] * rng.randrange(1, 6), waits=rng.random() < 0.5)
        batches = player.play(str(path), applied=applied, batch_rows=3, batch_time=0.0)
        stored = batches if rng.random() < 0.5 else batches[: rng.randrange(len(batches) + 1)]
        taken += numbers(stored)
        applied |= applied_by(stored)
    taken += numbers(Player().play(str(path), applied=applied, batch_rows=3))
    assert sorted(taken) == list(range(1, number + 1))


def test_a_file_that_is_cut(tmp_path: Path) -> None:
    """Rotation by copying and cutting: half a line at the end of what was there is lost, nothing else."""
    path = tmp_path / "v.csv"
    path.write_text("ip,n\na,1\nb,2\nhalf,")
    batches = Player(lambda: None, lambda: path.write_text("ip,n\nc,3\n"), append(path, "d,4\n")).play(str(path))
    assert numbers(batches) == [1, 2, 3, 4]
    assert [bad for batch in batches for bad in batch.bad_rows(SCHEMA)] == []
    assert len({batch.producer for batch in batches}) == 2


def test_a_file_that_goes_and_comes(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    batches = Player(
        lambda: None,
        lambda: path.write_text("ip,n\na,1\n"),
        lambda: None,
        path.unlink,
        lambda: None,
        lambda: path.write_text("ip,n\nb,2\n"),
    ).play(str(path))
    assert numbers(batches) == [1, 2]
    assert len({batch.producer for batch in batches}) == 2


def test_new_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ip,n\na,1\n")
    more = tmp_path / "b.csv"
    batches = Player(lambda: more.write_text("ip,n\nb,2\n"), append(tmp_path / "a.csv", "c,3\n")).play(str(tmp_path))
    assert sorted(numbers(batches)) == [1, 2, 3]
    assert {(batch.producer or "").partition("@")[0] for batch in batches} == {"a.csv", "b.csv"}


def test_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("ip,n\na,1\nb,2\n")
    applied = applied_by(Player().play(str(path)))
    assert list(applied.values()) == [2]
    assert Player().play(str(path), applied=applied) == []
    append(path, "c,3\n")()
    again = Player(append(path, "d,4\n")).play(str(path), applied=applied)
    assert numbers(again) == [3, 4]
    assert [batch.sequence for batch in again] == [4]
    applied |= applied_by(again)
    path.write_text("ip,n\ne,5\n")  # cut while nobody watched
    fresh = Player(append(path, "f,6\n")).play(str(path), applied=applied)
    assert numbers(fresh) == [5, 6]
    assert not set(applied) & set(applied_by(fresh))
    applied |= applied_by(fresh)
    path.rename(tmp_path / "old")
    path.write_text("ip,n\n" + "g,7\n" * 9)  # replaced while nobody watched, by a longer one
    assert numbers(Player().play(str(path), applied=applied)) == [7] * 9


def test_an_inode_that_is_used_again(tmp_path: Path) -> None:
    """The file system gave a new file the inode of one that was read long ago: it is new all the same."""
    path = tmp_path / "v.csv"
    path.write_text("ip,n\na,1\nb,2\n")
    inode = path.stat().st_ino
    batches = Player().play(str(path), applied={f"v.csv@0-{inode:x}": 9, "v.csv@1-abc": 3, "w.csv@7-abc": 1})
    assert numbers(batches) == [1, 2]
    assert applied_by(batches) == {f"v.csv@2-{inode:x}": 2}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "v.csv")
    with pytest.raises(SourceError, match=r'v.csv is not a regular file.* pipe its rows to "-"'):
        TailSource([str(tmp_path / "v.csv")], SCHEMA)
    path = tmp_path / "w.csv"
    path.write_text("ip,n\na,1\n")
    player = Player(path.unlink, lambda: os.mkfifo(path))
    with pytest.raises(SourceError, match="w.csv is not a regular file"):
        player.play(str(path))


def test_what_cannot_be_followed(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").touch()
    (tmp_path / "y.csv").write_bytes(gzip.compress(b"ip,n\n"))
    with pytest.raises(SourceError, match="only CSV, JSON lines and access logs can be followed, got parquet"):
        Player().play(str(tmp_path / "x.parquet"))
    with pytest.raises(SourceError, match=r"y.csv: a compressed file cannot be followed"):
        Player().play(str(tmp_path / "y.csv"))
    with pytest.raises(SourceError, match="standard input is always followed"):
        TailSource(["-"], SCHEMA)


def test_the_iterator_can_be_left(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("ip,n\na,1\n")
    source = TailSource([str(path)], SCHEMA, sleep=lambda seconds: None)
    stream: Iterator[RowBatch | None] = source.batches()
    assert next(stream) is None
    stream.close()  # type: ignore[attr-defined]
    assert source._tails == {}
    assert source.progress() is None
    source.acknowledge(None)
