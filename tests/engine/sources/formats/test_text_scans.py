"""Looking at many bytes at once finds what looking at one after the other does, and reads nothing behind the end."""

import ctypes
import itertools
import mmap
import random
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.formats.csv import CsvParser
from panstream.engine.sources.formats.json_lines import JsonParser
from panstream.primitives.kernels import simd_byte_search as byte_masks
from panstream.primitives.kernels.sources.csv_fields import split_records_bytewise
from panstream.primitives.kernels.sources.csv_simd import split_records, split_records_simd
from panstream.primitives.kernels.sources.json_fields import scan_lines
from panstream.primitives.kernels.sources.text_values import parse_booleans, parse_ints

Bytes = NDArray[np.uint8]


NO_DIGITS = set(range(256)) - set(b"0123456789")
NO_LETTERS = {0x22, 0x5C, *range(0x20)}


class Fence:
    """Memory whose last byte is followed by some that may not be read: doing so ends the process."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 4 * mmap.PAGESIZE)
        whole = np.frombuffer(self._map, np.uint8)
        self._room = whole[: 3 * mmap.PAGESIZE]
        last = whole.ctypes.data + self._room.size
        if sys.platform == "linux":
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(last), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0

    def before(self, data: bytes) -> Bytes:
        found = self._room[self._room.size - len(data) :]
        found[:] = np.frombuffer(data, np.uint8)
        return found


FENCE = Fence()


def spaced(data: bytes, behind: int) -> Bytes:
    """Return the bytes with others behind them that must make no difference."""
    return np.frombuffer(data + bytes([behind]) * 80, np.uint8).copy()


# --- masks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize(
    "letters", [b"0123456789", b"0123456789/:\n", b"ab \xff", b'ab"\\\x1f\n\x00', bytes(range(256))]
)
def test_masks_find_what_a_loop_finds(letters: bytes, fenced: bool) -> None:
    """Every stretch of some texts, with more of the same behind its end."""
    chance = random.Random(5)
    for size, filler in itertools.product((0, 1, 31, 33, 97), (0.0, 0.95)):
        text = bytes(letters[0] if chance.random() < filler else chance.choice(letters) for _ in range(size))
        data = FENCE.before(text) if fenced else spaced(text, letters[0])
        for at, end in itertools.combinations_with_replacement(range(size + 1), 2):

            def first(wanted: set[int], at: int = at, end: int = end, text: bytes = text) -> int:
                return next((place for place in range(at, end) if text[place] in wanted), end)

            assert byte_masks.find_byte(data, at, end, letters[-1]) == first({letters[-1]})
            assert byte_masks.count_byte(data, end, letters[-1]) == text[:end].count(letters[-1])
            assert byte_masks.end_of_digits(data, at, end) == first(NO_DIGITS)
            assert byte_masks.end_of_letters(data, at, end) == first(NO_LETTERS)


def test_repeats() -> None:
    """Every size with nothing, and with every single byte, changed; what follows always differs."""
    for size in (*range(1, 36), 63, 64, 65, 70):
        text = bytes(range(100, 100 + size))
        for change in range(size + 1):
            other = bytearray(text + b"\x00")
            other[change] ^= 1
            whole = text + b"!" + bytes(other)
            for place in (FENCE.before, lambda text: FENCE.before(text[:-1]), lambda text: spaced(text, 0)):
                data = place(whole)
                assert byte_masks.is_repeated(data, 0, size + 1, size) == (change == size)
                assert byte_masks.is_repeated(data, size + 1, 0, size) == (change == size)


# --- CSV --------------------------------------------------------------------------------------------------------------


def fields(split: str, data: Bytes, end: int, delimiter: int, quote: int, spots: list[int]) -> tuple[object, ...]:
    columns = len([spot for spot in spots if spot >= 0])
    most = 2 + data.size
    starts, stops = np.full((2, columns, most), -7, np.int64)
    forms = np.full((columns, most), 77, np.uint8)
    ragged = np.full(most, 77, np.uint8)
    dialect = (delimiter, quote, np.array(spots, np.int64))
    found = (starts, stops, forms, ragged)
    if split == "any":
        rows, done = split_records_bytewise(data, 0, end, *dialect, 0, *found)
    else:
        rows, done = (split_records if split == "quick" else split_records_simd)(data, end, *dialect, *found)
    return rows, done, *(array[..., :rows].tolist() for array in found)


CSV_PARTS = [
    *(
        b'"',
        b'""',
        b'"""',
        b",",
        b",,",
        b"\n",
        b"\r\n",
        b"\r",
        b'",',
        b',"',
        b'"\n',
        b'\n"',
        b'"\r\n',
        b'"x"',
        b'"x,y"',
    ),
    *(b"a", b"b" * 63, b"c" * 64, b"d" * 7, b"\xff", b"\xc3\xa9", b"\x00", b"'", b"\t", b'"p\nq"', b'"p""q"', b"x,y\n"),
]


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(
    st.lists(st.sampled_from(CSV_PARTS), max_size=60) | st.lists(st.binary(max_size=70), max_size=3),
    st.sampled_from([b",", b"\t", b"a", b"'"]),
    st.sampled_from([b'"', b"'", None]),
    st.sampled_from([[0, 1], [0], [-1, 0], [1, -1, 0], [], [0, 1, 2, -1]]),
    st.integers(0, 70),
)
@example([b'"p""q",x\n'] * 20, b",", b'"', [1, 0], 0)
@example([b"x" * 63, b"\r", b"\n", b"y,z\n"], b",", b'"', [0, 1], 0)
@example([b'"', b"x" * 62, b'"', b"\n", b"y,z\n"], b",", b'"', [0, 1], 0)
@example([b'"', b"x" * 62, b'"', b"tail\n", b"y,z\n"], b",", b'"', [0, 1], 0)
@example([b"x" * 62, b"\r", b"y,z\n"], b",", b'"', [0, 1], 0)
@example([b"x" * 63, b"\r", b"y,z\n"], b",", b'"', [0, 1], 0)
def test_records_are_those_found_byte_by_byte(
    parts: list[bytes], delimiter: bytes, quote: bytes | None, spots: list[int], cut: int
) -> None:
    if delimiter == quote:
        quote = None
    text = b"".join(parts)
    end = max(0, len(text) - cut)
    mark = -1 if quote is None else quote[0]
    expected = fields("any", np.frombuffer(text, np.uint8).copy(), end, delimiter[0], mark, spots)
    for data in (FENCE.before(text), *(spaced(text, behind) for behind in (0x0A, 0x22, 0x2C, 0x0D))):
        assert fields("quick", data, end, delimiter[0], mark, spots) == expected


def test_ordinary_records_need_no_second_look() -> None:
    """Quotes in place, doubled quotes, line ends of Windows, blank lines, ragged rows: all are found by masks."""
    text = b'a,"b ""c""",d\r\n\r\n\n1,2\n"x\ny",,"",9\n' * 50
    data = spaced(text, 0)
    end = len(text)
    found = fields("plain", data, end, 0x2C, 0x22, [0, 1, 2])
    assert found[:2] == (150, end)
    assert found == fields("any", data, end, 0x2C, 0x22, [0, 1, 2])


# --- JSON -------------------------------------------------------------------------------------------------------------

NAMES = [b"a", b"id", b"a name longer than thirty-two bytes, this one"]
JSON_PARTS = [
    *(
        b'{"a":',
        b'{"a" : ',
        b',"id":',
        b', "id" :\t',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"a":1',
        b'"a":"x"',
        b'"',
        b"\\",
    ),
    *(
        b'"id":"' + b"y" * 40 + b'"',
        b'"q":"\\u00e9\\n"',
        b'"\\u0061":2',
        b'"' + NAMES[2] + b'":1.5e3',
        b'"z":{"a":[1,{}]}',
    ),
    *(
        b"12",
        b"-0.5",
        b"01",
        b"1e",
        b"5" * 40,
        b"." + b"7" * 33,
        b"true",
        b"null",
        b"NaN",
        b" ",
        b"\t",
        b"\r",
        b"\xff",
        b"\x01",
    ),
]
GOOD = [
    *(
        b'{"a":1,"id":"x","q":2}',
        b'{"a": 1,"id":"x"}',
        b'{"id":"x","a":1}',
        b'{"a":1,"id":"x","a":3}',
        b'{"a":1,"idd":"x"}',
    ),
    *(
        b'{"a":1,"id" :"x"}',
        b'{"a":   1}',
        b'{"a":}',
        b'{"a":   ',
        b'{"a":',
        b'{"a"',
        b"{}",
        b"  {}  ",
        b'{"\\u0061":1,"id":2}',
    ),
    b'{"' + NAMES[2] + b'":"' + b"k" * 70 + b'","a":' + b"1" * 35 + b"}",
    b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(70)) + b',"a":5}',
]


def values(lines: list[bytes], *, together: bool, fenced: bool) -> list[object]:
    """Return what is found in every line, with places from its beginning on."""
    names = np.frombuffer(b"".join(NAMES), np.uint8)
    edges = np.cumsum([0, *map(len, NAMES)])
    found: list[object] = []
    for group in [lines] if together else [[line] for line in lines]:
        text = b"".join(line + b"\n" for line in group)
        data = FENCE.before(text) if fenced else spaced(text, 0x22)
        starts, stops = np.full((2, len(NAMES), len(group)), -7, np.int64)
        kinds = np.full((len(NAMES), len(group)), 77, np.uint8)
        broken = np.full(len(group), 77, np.uint8)
        rows = scan_lines(data, len(text), names, edges, starts, stops, kinds, broken)
        begins = [0, *itertools.accumulate(len(line) + 1 for line in group)]
        filled = [begin for begin, line in zip(begins, group, strict=False) if line.strip(b" \t\r")]
        assert rows == len(filled)
        for row, begin in enumerate(filled):
            places = np.where(kinds[:, row] == 0, 0, begin)
            spans = ((array[:, row] - places).tolist() for array in (starts, stops))
            found.append((*spans, kinds[:, row].tolist(), int(broken[row])))
    return found


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(
    st.lists(st.sampled_from(GOOD) | st.lists(st.sampled_from(JSON_PARTS), max_size=12).map(b"".join), max_size=8),
    st.booleans(),
)
def test_lines_are_read_as_if_each_were_the_only_one(lines: list[bytes], fenced: bool) -> None:
    """A key found where the line before had it, by many bytes at once, is the key that a line alone has."""
    assert values(lines, together=True, fenced=fenced) == values(lines, together=False, fenced=True)


def test_all_pairs_of_lines() -> None:
    for pair in itertools.product(GOOD, repeat=2):
        alone = values(list(pair), together=False, fenced=True)
        assert values(list(pair), together=True, fenced=False) == alone
        assert values([*pair, pair[0]], together=True, fenced=True) == [*alone, alone[0]]


# --- whole numbers ----------------------------------------------------------------------------------------------------


def whole(text: bytes) -> int | None:
    text = text.strip(b" \t")
    if text[:2].lower() == b"0x":
        digits = text[2:].decode("latin1")
        good = 0 < len(digits) <= 16 and set(digits) <= set("0123456789abcdefABCDEF")
        return int(np.uint64(int(digits, 16)).astype(np.int64)) if good else None
    digits = text.removeprefix(b"-").decode("latin1")
    if not digits or set(digits) - set("0123456789"):
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


@pytest.mark.parametrize("fenced", [True, False])
def test_whole_numbers(fenced: bool) -> None:
    chance = random.Random(3)
    texts = [
        b"",
        b"-",
        b"0",
        b"-0",
        b"9223372036854775807",
        b"9223372036854775808",
        b"-9223372036854775808",
        b"0x",
        b"0xfF",
    ]
    texts += [b"-9223372036854775809", b"0" * 30 + b"7", b"9" * 16, b"9" * 17, b" 12\t", b"1 2", b"0x" + b"f" * 16]
    for _ in range(5_000):
        text = bytearray(chance.choices(b"0123456789", k=chance.randrange(20)))
        if text and chance.random() < 0.4:
            text[chance.randrange(len(text))] = chance.choice(b"/:x -+.aE\x00\x10\x39\xb0\xff ")
        texts.append(bytes(text))
    edges = np.cumsum([0, *map(len, texts)])
    data = FENCE.before(b"".join(texts)[-3 * mmap.PAGESIZE :]) if fenced else spaced(b"".join(texts), 0x30)
    if fenced:  # only as many as fit before the fence
        first = int(np.searchsorted(edges, edges[-1] - data.size))
        texts = texts[first:]
        edges = edges[first:] - (edges[-1] - data.size)
    found = np.empty(len(texts), np.int64)
    bad = np.empty(len(texts), bool)
    parse_ints(data, edges[:-1], edges[1:], np.ones(len(texts), bool), found, bad)
    for text, number, wrong in zip(texts, found.tolist(), bad.tolist(), strict=True):
        assert (None if wrong else number) == whole(text), text


def test_truths() -> None:
    """Letters of another case, words within words, and texts as long as some code of a word."""
    truths = {
        **dict.fromkeys([b"true", b"True", b"TRUE", b"1"], True),
        **dict.fromkeys([b"false", b"False", b"FALSE", b"0"], False),
    }
    texts = [
        *truths,
        b"",
        b"tRUE",
        b"truE",
        b"true ",
        b" true",
        b"falsey",
        b"11",
        b"\x011",
        b"\x001",
        b"1\x00",
        b"f",
        b"fals",
    ]
    texts += [letter * size for letter in (b"1", b"0", b"\x00") for size in range(400)]
    edges = np.cumsum([0, *map(len, texts)])
    found = np.empty(len(texts), bool)
    bad = np.empty(len(texts), bool)
    parse_booleans(
        np.frombuffer(b"".join(texts), np.uint8).copy(), edges[:-1], edges[1:], np.ones(len(texts), bool), found, bad
    )
    for text, truth, wrong in zip(texts, found.tolist(), bad.tolist(), strict=True):
        assert (None if wrong else truth) == truths.get(text), text


# --- what is left -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b'id,x\n"ab",secret-secret-1\n', b'{"id":"ab","x":"secret-secret-1"}\n'])
def test_a_column_has_nothing_of_what_follows_it(text: bytes) -> None:
    """Short texts are copied by sixteen bytes; what is behind the last one is overwritten."""
    schema = RowSchema(columns={"id": "string"}, user="id")
    parser = JsonParser(schema) if text.startswith(b"{") else CsvParser(schema, label="rows")
    block = bytearray(text + bytes(100))
    begin = parser.start(block, len(text), final=True) or 0
    block = block[begin:]
    rows, end = parser.parse(block, len(text) - begin)
    assert (end, rows.columns.column("id").to_pylist()) == (len(text) - begin, ["ab"])
    assert rows.columns.column("id").buffers()[2].to_pybytes().rstrip(b"\0") == b"ab"
