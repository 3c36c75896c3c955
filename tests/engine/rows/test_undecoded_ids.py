"""Ids that stay in the pages of their file until a query keeps them: pyarrow's own reader and filter are the oracle."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import random
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from panstream.engine.rows.row_batch import Rows, RowSchema
from panstream.engine.rows.undecoded_ids import StoredIds, StoredPage
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import drain
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources import FileFeed
from panstream.engine.sources._read_ahead import read_ahead
from panstream.engine.sources.formats.parquet import file as parquet_feed
from panstream.engine.sources.formats.parquet._footer import Footer
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.engine.sources.formats.parquet.pages import Page
from panstream.errors import FeedError
from panstream.primitives.kernels.sources.parquet_footer import MISSING
from tests.engine.runtime.streams import config, question

CODECS = ["none", "snappy", "gzip", "zstd", "brotli"]
SCHEMA = RowSchema(columns={"word": "string", "number": "int"}, user="word")
ALONE = RowSchema(columns={"word": "string"}, user="word")


def words(count: int, seed: int, *, nulls: float = 0.0, kinds: int = 400) -> pa.Array:
    """Return strings of many lengths, among them empty ones, letters of four bytes and some longer than a page."""
    draw = random.Random(seed)
    known = ["".join(draw.choice("aé€😀z") for _ in range(int(draw.expovariate(0.1)))) for _ in range(kinds)]
    known[0] = "long" * 400
    return pa.array([None if draw.random() < nulls else draw.choice(known) for _ in range(count)], pa.string())


def written(path: Path, column: pa.Array, **options: Any) -> Path:
    """Write a file with two columns and small pages."""
    table = pa.table({"number": pa.array(range(len(column)), pa.int64()), "word": column})
    parquet.write_table(table, path, **{"data_page_size": 600, "write_batch_size": 50, **options})
    return path


def pieces(path: Path, rows: int, schema: RowSchema = SCHEMA, *, packed: bool = False) -> list[StoredIds]:
    """Return the ids of the whole file, which must be in their pages still, and these compressed where they can."""
    file = ParquetFile(path, schema, rows=rows, stored_ids=True, ahead=False, hurry=lambda: packed)
    found = [piece.ids for piece in file.pieces()]
    file.close()
    assert all(each is not None for each in found)
    return [each for each in found if each is not None]


def whole(batches: Sequence[Rows | None]) -> tuple[list[Any], list[Any]]:
    """Return all rows of batches, and what else they say."""
    rows: list[Any] = []
    said: list[Any] = []
    for batch in batches:
        assert batch is not None
        columns = {name: batch.columns.column(name).to_pylist() for name in batch.columns.schema.names}
        if batch.ids is not None:
            columns["word"] = batch.ids.all().to_pylist()
        assert {len(column) for column in columns.values()} == {len(batch)}
        rows += zip(*(columns[name] for name in sorted(columns)), strict=True)
        said.append((len(batch), batch.first_row, batch.sequence, batch.bad_rows(SCHEMA), len(batch)))
        batch.wipe()
    return rows, said


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_kept_ids_are_those_that_pyarrow_keeps(tmp_path: Path, codec: str, dictionary: bool, version: str) -> None:
    column = words(3000, 1)
    path = written(
        tmp_path / "f.parquet",
        column,
        compression=codec,
        use_dictionary=dictionary,
        data_page_version=version,
        row_group_size=1100,
        dictionary_pagesize_limit=3000,
    )
    draw = np.random.default_rng(1)
    for rows, share in itertools.product((7, 333, 10_000), (0.0, 0.02, 0.4, 1.0)):
        start = 0
        for ids in pieces(path, rows, packed=draw.random() < 0.5):
            keep = draw.random(len(ids)) < share
            here = column[start : start + len(ids)]
            kept = ids.chosen(keep)
            kept.validate(full=True)
            assert kept.equals(here.filter(pa.array(keep)))
            start += len(ids)
            ids.wipe()
        assert start == len(column)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_ids_are_split_joined_and_kept_in_any_order(data: st.DataObject) -> None:
    """Pages are made by hand here, with ids around the sixteen bytes that are copied at once."""
    texts = data.draw(st.lists(st.lists(st.text("aé", max_size=20), min_size=1, max_size=9), min_size=1, max_size=4))
    parts, expected = [], []
    for page in texts:
        items = [text.encode() for text in page]
        body = b"".join(len(item).to_bytes(4, "little") + item for item in items)
        at = data.draw(st.integers(0, 5))
        stored = StoredPage(np.frombuffer(bytearray(b"?" * at + body), np.uint8), at, len(page), "file")
        parts.append(StoredIds.of(stored, 0, len(page)))
        expected += page
    pending, found = [(0, StoredIds.joined(parts))], {}
    while pending:
        first, ids = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
        if len(ids) > 1 and data.draw(st.booleans()):
            middle = data.draw(st.integers(1, len(ids) - 1))
            early, late = ids.split(middle)
            pending += [(first, early), (first + middle, late)]
            continue
        here = expected[first : first + len(ids)]
        for _ in range(data.draw(st.integers(0, 4))):
            keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))))
            assert ids.chosen(keep).to_pylist() == list(itertools.compress(here, keep))
        if data.draw(st.booleans()):
            assert ids.all().to_pylist() == here
        found[first] = len(ids)
        ids.wipe()
    assert sum(found.values()) == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("schema", [SCHEMA, ALONE], ids=["two columns", "ids alone"])
@pytest.mark.parametrize("nulls", [0.0, 0.0005, 0.1])
def test_batches_are_the_same_as_those_with_decoded_ids(tmp_path: Path, nulls: float, schema: RowSchema) -> None:
    """Missing ids are bad rows, wherever they are; batches cut pages, and pages cut batches."""
    path = written(tmp_path / "f.parquet", words(3000, 2, nulls=nulls), row_group_size=700)
    stored = 0
    for rows, applied in itertools.product((9, 64, 450, 5000), (0, 450, 900)):
        if applied % rows and applied:
            continue
        found = []
        for stay in (True, False):
            source = FileFeed([str(path)], schema, batch_rows=rows, stored_ids=stay)
            source.resume({"f.parquet": applied})
            batches = list(source.batches())
            stored += sum(batch is not None and batch.ids is not None for batch in batches)
            found.append(whole(batches))
        assert found[0] == found[1]
        assert found[0][1][-1][2] == 3000
    assert stored > 100 or nulls == 0.1


def test_bad_rows_of_other_columns_keep_their_place(tmp_path: Path) -> None:
    table = pa.table({"word": [f"id-{i}" for i in range(900)], "number": [i / 2 for i in range(900)]})
    parquet.write_table(table, tmp_path / "f.parquet", data_page_size=500, write_batch_size=20)
    source = FileFeed([str(tmp_path / "f.parquet")], SCHEMA, batch_rows=250, stored_ids=True)
    rows, said = whole(list(source.batches()))
    assert rows == [(None if i % 2 else i // 2, f"id-{i}") for i in range(900)]
    assert [len(bad) for *_, bad, _ in said] == [125, 125, 125, 75]


def test_every_share_of_a_page_overwrites_its_own_bytes(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.array([f"{i:020d}" for i in range(1000)]), use_dictionary=False)
    file = ParquetFile(path, ALONE, rows=37, stored_ids=True)
    found = [piece.ids for piece in file.pieces()]
    file.close()
    pages = list({id(part.page): part.page for ids in found if ids is not None for part in ids._parts}.values())
    bodies = [page.body for page in pages]
    assert len(pages) > 10
    for number, ids in enumerate(found):
        assert ids is not None
        copies = [ids.chosen(np.ones(len(ids), bool)), ids.all()]
        assert copies[0].equals(copies[1])
        ids.wipe()
        ids.wipe()
        assert copies[0][0].as_py() == f"{37 * number:020d}"
        assert b"000" not in copies[1].buffers()[2].to_pybytes()
        left = b"".join(body.tobytes() for body in bodies)
        assert f"{37 * (number + 1) - 1:020d}".encode() not in left
        assert number == len(found) - 1 or f"{37 * (number + 1):020d}".encode() in left
    assert not any(body.any() for body in bodies)


@pytest.mark.parametrize("packed", [False, True])
def test_ids_that_are_passed_over_or_never_asked_for_are_overwritten_too(tmp_path: Path, packed: bool) -> None:
    path = written(tmp_path / "f.parquet", pa.array([f"{i:020d}" for i in range(1000)]), use_dictionary=False)
    early, late = pieces(path, 1000, packed=packed)[0].split(555)
    pages = [part.page for ids in (early, late) for part in ids._parts]
    compressed = [page.body for page in pages]
    late.wipe()
    assert not any(page.body.any() for page in pages[-5:])
    assert early[500:501].to_pylist() == [f"{500:020d}"]
    early.wipe()
    assert not any(page.body.any() for page in pages)
    assert not any(body.any() for body in compressed)


def test_pages_are_left_compressed_in_a_hurry(tmp_path: Path) -> None:
    """Which batches somebody waits for makes no difference to what is in them."""
    column = words(3000, 10)
    path = written(tmp_path / "f.parquet", column, use_dictionary=False, row_group_size=1100, compression="snappy")
    turns = itertools.cycle([True, False, False])
    file = ParquetFile(path, ALONE, rows=250, stored_ids=True, ahead=False, hurry=lambda: next(turns))
    found = [piece.ids for piece in file.pieces()]
    file.close()
    parts = [part for ids in found if ids is not None for part in ids._parts]
    compressed = [part.page._unpack is not None for part in parts]
    assert any(compressed) and not all(compressed)
    assert pa.concat_arrays([ids.all() for ids in found if ids is not None]).equals(column)


def test_a_missing_value_where_the_file_says_there_is_none_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "f.parquet", pa.array(["id-1", None, "id-2"] * 30), use_dictionary=False)
    read = parquet_feed.read_footer

    def complete(*given: Any) -> Footer:
        footer = read(*given)
        footer.numbers[:, :, MISSING] = 0
        return footer

    monkeypatch.setattr(parquet_feed, "read_footer", complete)
    ids = pieces(path, 90, packed=True)[0]
    decompressed: list[Page] = []
    unpack = Page.unpack
    monkeypatch.setattr(Page, "unpack", lambda self, spare: (unpack(self, spare), decompressed.append(self)))
    for _ in range(2):
        with pytest.raises(FeedError, match=r"f\.parquet could not be read: it is cut off, damaged"):
            ids.all()
    ids.wipe()
    assert decompressed and not any(page.body.any() for page in decompressed)
    monkeypatch.undo()
    file = ParquetFile(path, SCHEMA, rows=90, stored_ids=True, ahead=False, hurry=lambda: True)
    piece = next(iter(file.pieces()))
    assert piece.ids is None and piece.bad.sum() == 30
    file.close()


def test_whoever_waits_for_the_reading_thread_says_so() -> None:
    waiting, seen = threading.Event(), []

    def batches() -> Generator[Rows, None, None]:
        assert waiting.wait(60)
        seen.append(waiting.is_set())
        for number in range(3):
            yield Rows(columns=pa.table({"n": [number]}).to_batches()[0])

    for batch in read_ahead(batches(), waiting=waiting):
        assert not waiting.is_set()
        seen.append(batch.columns.column(0)[0].as_py())
    assert seen == [True, 0, 1, 2]


def test_a_copy_has_nothing_of_ids_that_are_not_kept(tmp_path: Path) -> None:
    for texts in (["ab", "secret-secret-1"], ["secret-secret-1", "ab"], ["ab", "secret-secret-1", "secret" * 9]):
        parquet.write_table(pa.table({"word": texts}), tmp_path / "f.parquet", use_dictionary=False)
        ids = pieces(tmp_path / "f.parquet", 10, ALONE)[0]
        kept = ids.chosen(np.array([text == "ab" for text in texts]))
        assert kept.to_pylist() == ["ab"]
        assert b"sec" not in kept.buffers()[2].to_pybytes()


def test_a_reader_closed_early_overwrites_what_it_holds(tmp_path: Path) -> None:
    words = pa.array([f"{i:020d}" for i in range(3000)])
    path = written(tmp_path / "f.parquet", words, use_dictionary=False, compression="none")  # never left compressed
    before = set(threading.enumerate())
    batches = FileFeed([str(path)], ALONE, batch_rows=10, stored_ids=True).batches()
    first = next(batches)
    assert first is not None and first.ids is not None
    page = first.ids._parts[0].page
    assert f"{15:020d}".encode() in page.body.tobytes()
    batches.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before
    assert first.ids.all().to_pylist() == [f"{i:020d}" for i in range(10)], "the batch in work is its holder's"
    first.wipe()
    assert not page.body.any()


@pytest.mark.slow
def test_damage_is_refused_or_read_but_nothing_worse(tmp_path: Path) -> None:
    column = pa.array([f"word-{number % 90}" for number in range(800)], pa.string())
    draw, masks = random.Random(5), np.random.default_rng(5)
    outcomes, said = {"read": 0, "refused": 0}, set()
    for codec, version, dictionary in itertools.product(("none", "snappy"), ("1.0", "2.0"), (False, True)):
        path = written(
            tmp_path / "f.parquet", column, compression=codec, data_page_version=version, use_dictionary=dictionary
        )
        sound = bytearray(path.read_bytes())
        start = parquet.read_metadata(path).row_group(0).column(1).data_page_offset
        for _ in range(60):
            broken = sound.copy()
            for _ in range(draw.choice((1, 3))):
                broken[draw.randrange(start, len(sound) - 600)] = draw.choice((0, 1, 127, 128, 255))
            path.write_bytes(broken)
            batches: list[Rows] = []
            try:
                file = ParquetFile(
                    path, ALONE, rows=150, stored_ids=True, ahead=False, hurry=lambda: draw.random() < 0.5
                )
                for batch in file.pieces():
                    batches.append(batch)
                    if batch.ids is not None:
                        kept = batch.ids.chosen(masks.random(len(batch)) < 0.3)
                        # Its letters may be damaged, its offsets must not.
                        offsets = np.frombuffer(kept.buffers()[1], np.int32)
                        assert (np.diff(offsets) >= 0).all() and offsets[-1] <= kept.buffers()[2].size
                outcomes["read"] += 1
            except FeedError as refused:
                said.add(str(refused))
                outcomes["refused"] += 1
            finally:
                file.close()
                for batch in batches:
                    batch.wipe()
                    assert batch.ids is None or len(batch.ids) == 0
    assert min(outcomes.values()) > 20, outcomes
    assert said == {"f.parquet could not be read: it is cut off, damaged or not a Parquet file"}


def test_a_page_that_is_damaged_is_refused_again_after_it_was_overwritten() -> None:
    body = b"\1\0\0\0a" + b"\377\377\377\377b" + b"\1\0\0\0c"
    page = StoredPage(np.frombuffer(bytearray(body), np.uint8), 0, 3, "visits.parquet")
    first, rest = StoredIds.of(page, 0, 3).split(1)
    middle, last = rest.split(1)
    assert first.all().to_pylist() == ["a"]
    with pytest.raises(FeedError, match="visits.parquet could not be read"):
        last.all()
    last.wipe()
    for ids in (middle, StoredIds.of(page, 0, 1)):
        with pytest.raises(FeedError, match="damaged"):
            ids.chosen(np.array([True]))


def test_no_byte_outside_a_page_is_read_or_written() -> None:
    """The page ends where memory ends: one byte further, and the process would be gone."""
    from panstream.primitives.kernels.sources.parquet_pages import (
        SLACK,
        all_present,
        chosen_items,
        end_of_items,
        plain_items,
    )

    size = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * size)
    everything = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    beyond = ctypes.c_void_p(everything.ctypes.data + size)
    assert protect(beyond, ctypes.c_size_t(size), 0) == 0
    draw = random.Random(6)
    try:
        for _ in range(300):
            items = [bytes(draw.choices(b"xyz", k=draw.choice((0, 3, 8, 15, 16, 17, 24, 40)))) for _ in range(5)]
            body = b"".join(len(item).to_bytes(4, "little") + item for item in items)
            cut = draw.choice((0, 0, 1, 4, 5, 20))
            page = everything[size - len(body) + cut : size]
            page[:] = np.frombuffer(body, np.uint8)[: page.size]
            keep = np.array([draw.random() < 0.5 for _ in items])
            room = sum(len(item) for item, kept in zip(items, keep, strict=True) if kept)
            for short in (0, 1):
                data = np.full(room + SLACK - short + 8, 7, np.uint8)
                offsets = np.zeros(int(keep.sum()) + 1, np.int32)
                end = chosen_items(page, 0, keep, offsets, 0, data[: data.size - 8])
                assert end == (-1 if cut else -2 if short else page.size) or (cut and short and end == -2)
                assert (data[-8:] == 7).all()
                if end == page.size:
                    kept_items = [item for item, kept in zip(items, keep, strict=True) if kept]
                    assert [data[a:b].tobytes() for a, b in itertools.pairwise(offsets)] == kept_items
            data = np.full(len(body) + SLACK + 8, 7, np.uint8)
            offsets = np.zeros(6, np.int32)
            assert (
                plain_items(page, 0, 5, offsets, 0, data[:-8]) == end_of_items(page, 0, 5) == (-1 if cut else page.size)
            )
            assert (data[-8:] == 7).all()
            if not cut:
                assert [data[a:b].tobytes() for a, b in itertools.pairwise(offsets)] == items
            all_present(page, max(0, page.size - 2), 100)
    finally:
        assert protect(beyond, ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE) == 0


@pytest.mark.parametrize(
    ("levels", "present"),
    [
        (b"\x14\x01", True),  # ten times 1
        (b"\x16\x01", True),
        (b"\x12\x01", False),  # nine times 1: the tenth is said elsewhere
        (b"\x14\x00", False),
        (b"\x05\xff\x03", False),  # ten bits
        (b"\x94\x00\x01", True),
        (b"\x14", False),
        (b"\x80\x80\x80\x80\x80\x80", False),
        (b"", False),
    ],
)
def test_levels_that_say_once_that_all_are_there(levels: bytes, present: bool) -> None:
    from panstream.primitives.kernels.sources.parquet_pages import all_present

    assert all_present(np.frombuffer(b"??" + levels, np.uint8).copy(), 2, 10) == present


@pytest.mark.slow
def test_the_engine_answers_alike_whether_ids_stay_in_their_pages(tmp_path: Path) -> None:
    """Several conditions, conditions on the id itself, groups, declared ids, and bounds on users."""
    draw = random.Random(8)
    ids = [f"u{draw.randrange(300)}" for _ in range(4000)]
    table = pa.table({"name": ids, "region": [draw.choice("nsx") for _ in ids], "w": [draw.randrange(9) for _ in ids]})
    parquet.write_table(table, tmp_path / "f.parquet", row_group_size=900, data_page_size=900, write_batch_size=70)
    distinct = "SELECT COUNT(DISTINCT name) FROM s"
    settings = config(
        question("all", distinct, expected=500),
        question("some", f"{distinct} WHERE w < 3", expected=500),
        question("none", f"{distinct} WHERE w < 0", expected=500),
        question("some more", f"{distinct} WHERE w = 3 OR region = 'n'", expected=500),
        question("listed", distinct, universe=[f"u{i}" for i in range(40)]),
        question("by region", "SELECT region, COUNT(DISTINCT name) FROM s GROUP BY region", expected=500,
                 groups={"region": ["n", "s"]}),
        question("bounded", "SELECT COUNT(*) FROM s", contributions=4),
        user="name",
    )  # fmt: skip
    by_id = config(question("by id", f"{distinct} WHERE name LIKE 'u1%' AND w < 5", expected=500), user="name")
    for each in (settings, by_id):
        answers = []
        for stay in (True, False):
            schema = RowSchema(columns={"name": "string", "region": "string", "w": "int"}, user="name")
            source = FileFeed([str(tmp_path / "f.parquet")], schema, batch_rows=640, stored_ids=stay)
            with Selector(each) as select, Engine(each, zero_noise=True) as engine:
                fed = drain(engine, source, select)
                engine.finish()
                values = [(release.query, release.number, release.record["value"]) for release in engine.log.history()]
                answers.append((sorted(values, key=str), fed.rows, fed.skipped, fed.skipped_count))
        assert answers[0] == answers[1]
        assert len(answers[0][0]) == (8 if each is settings else 1)


def test_ids_kept_by_everybody_are_copied_once() -> None:
    page = StoredPage(np.frombuffer(bytearray(b"\1\0\0\0a\1\0\0\0b"), np.uint8), 0, 2, "f")
    ids = StoredIds.of(page, 0, 2)
    rows = Rows(count=2, ids=ids)
    (one, first), (two, second) = rows.some_ids(np.ones(2, bool)), rows.some_ids(np.ones(2, bool))
    assert one is two and not first and not second
    kept, owned = rows.some_ids(np.array([False, True]))
    assert owned and kept.to_pylist() == ["b"]
    wipe_array(kept)
    assert ids[:].to_pylist() == ["a", "b"]
