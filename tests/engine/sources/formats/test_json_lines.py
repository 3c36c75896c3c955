"""JSON lines: the same values as Python's json module, whatever the block size; a bad line spoils no other."""

import datetime
import io
import json
import math
import random
import re

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.byte_streams import TextReader
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.json_lines import JsonParser
from panstream.errors import BadRowError
from tests.engine.runtime.streams import good

ALL = {"s": "string", "i": "int", "d": "double", "b": "bool", "t": "timestamp", "day": "date", "raw": "binary"}
NOON = datetime.datetime(2024, 3, 1, 12)
GOOD = '{"s":"x","i":5,"d":0.5,"b":true,"t":"2024-03-01T12:00:00Z","day":"2024-03-01","raw":"é"}'
ROW = ("x", 5, 0.5, True, NOON, NOON.date(), "é".encode())
FAULT = "the line is not a JSON object"
WORDS = "column s is not a string of valid UTF-8"
WHOLE = "column i is not a whole number of 64 bits"


class Memory:
    was_cut = False

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def readinto(self, view: memoryview, wait: float) -> int | None:
        return self.data.readinto(view)

    def close(self) -> None:
        pass


def read(
    text: str | bytes,
    columns: dict[str, str],
    *,
    user: str | None = None,
    block: int = 1 << 20,
    record: int = 1 << 24,
    on_bad_row: str = "skip",
) -> tuple[list[tuple[object, ...]], dict[int, str]]:
    schema = RowSchema(columns=columns, user=user, on_bad_row=on_bad_row)  # type: ignore[arg-type]
    data = text if isinstance(text, bytes) else text.encode()
    coalescer = Coalescer(schema, rows=1000, producer="p", label="visits.jsonl")
    reader = TextReader(Memory(data), JsonParser(schema), coalescer, block_bytes=block, record_bytes=record)
    found = []
    bad = {}
    while not reader.ended:
        for batch in reader.pump():
            found += list(zip(*(column.to_pylist() for column in good(batch).columns), strict=True))
            bad |= {fault.row: fault.reason for fault in batch.bad_rows(schema)}
            assert good(batch).num_rows + int(batch.bad.sum()) == len(batch)
    return found, bad


VALUES = {
    "s": st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["} {", "}\n", "{", '"', "null", "}null"]),
    "i": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
    "b": st.booleans(),
}
OTHER = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.fixed_dictionaries({}, optional={**{k: st.none() | v for k, v in VALUES.items()}, "other": OTHER})


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(OBJECTS, max_size=10), st.integers(8, 200), st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n", "\n  "])
)
def test_the_same_as_python(objects: list[dict[str, object]], block: int, spaced: bool, newline: str) -> None:
    separators = (", ", ": ") if spaced else (",", ":")
    text = "".join(json.dumps(one, separators=separators, ensure_ascii=block % 2 == 0) + newline for one in objects)
    columns = {name: ALL[name] for name in VALUES}
    expected = [tuple(one.get(name) for name in columns) for one in objects]
    found, bad = read(text, columns, block=block)
    assert bad == {}
    assert found == expected


PARTS = [
    b"{",
    b"}",
    b'{"i":1}',
    b"\n",
    b"\r\n",
    b" ",
    b"null",
    b"[1]",
    b'{"s":"} {"}',
    b'{"i":"x"}',
    b"\xff",
    b"5",
    b'{"i":\n1}',
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=30), st.integers(8, 40))
def test_rows_do_not_depend_on_blocks(parts: list[bytes], block: int) -> None:
    columns = {"i": "int", "s": "string"}
    assert read(b"".join(parts), columns, block=block) == read(b"".join(parts), columns)


def test_types() -> None:
    assert read(GOOD + "\n{}\n", ALL) == ([ROW, (None,) * 7], {})
    assert read("\ufeff" + GOOD, ALL) == ([ROW], {})
    assert read("", ALL) == ([], {})
    assert read("\n \n\r\n", ALL) == ([], {})
    assert read('{"d":5,"x":{"d":6},"y":[{"d":7}]}\n', {"d": "double"}) == ([(5.0,)], {})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"null", FAULT),
        (b"5", FAULT),
        (b"[]", FAULT),
        (b"secret", FAULT),
        (b'{"s":"secret"', FAULT),
        (b'{"s":"a"} {"s":"secret"}', FAULT),
        (b'{"s":"a"} null', FAULT),
        (b'{"s":"a"}null', FAULT),
        (b'{"s":5}', WORDS),
        (b'{"s":"a","i":1.0}', WHOLE),
        (b'{"s":"a","i":"1"}', WHOLE),
        (b'{"s":"a","i":9223372036854775808}', WHOLE),
        (b'{"s":"a","d":"secret"}', "column d is not a finite number"),
        (b'{"s":"a","d":1e999}', "column d is not a finite number"),
        (b'{"s":"a","b":1}', "column b is not true or false"),
        (b'{"s":"a","s":"b"}', WORDS),
        (b'{"s":"\\ud800"}', FAULT),
        (b'{"s":"a","d":NaN}', "column d is not a finite number"),
        (b'{"s":"a","t":"secret"}', "column t is not a time such as 2024-12-31 23:59:59"),
        (b'{"s":"a","day":"2024-02-30"}', "column day is not a date such as 2024-12-31"),
        (b'{"s":null}', "column s, the user, is missing"),
        (b'{"i":1}', "column s, the user, is missing"),
        (b'{"s":"a","raw":"' + b"[" * 3000 + b'","x":' + b"[" * 3000, FAULT),
    ],
)
def test_bad_lines(line: bytes, reason: str) -> None:
    fine = GOOD.encode()
    text = b"\n".join([fine, b"", line, fine, line, line, fine, b""])
    found, bad = read(text, ALL, user="s")
    assert found == [ROW] * 3
    assert bad == {2: reason, 4: reason, 5: reason}
    assert read(text, ALL, user="s", block=64) == (found, bad)
    assert read(line, ALL, user="s") == ([], {1: reason})
    with pytest.raises(BadRowError, match=r"visits.jsonl, row 2: ") as caught:
        read(text, ALL, user="s", on_bad_row="stop")
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_broken_letters() -> None:
    found, bad = read(b'{"s":"\xff"}\n{"s":"a"}\n', {"s": "string"})
    assert (found, bad) == ([("a",)], {1: WORDS})


def test_a_line_that_is_too_long() -> None:
    text = '{"i":1}\n{"s":"' + "x" * 5000 + '"}\n{"i":2}\n'
    found, bad = read(text, {"i": "int"}, block=64, record=256)
    assert found == [(1,), (2,)]
    assert set(bad) == {2}


# --- against pyarrow's own reader, line by line -----------------------------------------------------------------------

TYPES = {"s": pa.string(), "i": pa.int64(), "d": pa.float64(), "b": pa.bool_()}
SEEDS = [
    '{"s":"a","i":1,"d":1.5,"b":true}',
    '{"s":"\\u00e9\\n\\ud83d\\ude00","i":-0,"d":1e3,"b":null}',
    '{"x":[{"y":[1,{}]},"z",null],"i":12,"\\u0073":"\\/"}',
    '{ "d" : -0.5e-3 , "q" : {} , "r" : [ ] }',
    '{"d":NaN,"i":9223372036854775807,"b":false}',
    '{"d":-Infinity,"x":Inf,"s":""}',
]
LETTERS = '{}[]:,"\\0129.eE+-truefalsnNIy u\t'


def mutated(chance: random.Random) -> str:
    text = list(chance.choice(SEEDS))
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        place = chance.randrange(len(text))
        text[place : place + chance.randrange(2)] = chance.choice(
            ["", chance.choice(LETTERS), chance.choice(SEEDS)[:9]]
        )
    return "".join(text)


def by_pyarrow(line: str) -> object:
    """Return a row as pyarrow reads it; None if it refuses. What is not finite is left to a later check."""
    options = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema(list(TYPES.items())), newlines_in_values=False, unexpected_field_behavior="ignore"
    )
    if not line.lstrip(" \t\r").startswith("{"):
        return None  # it reads values, not lines, and crashes on a lone null
    try:
        table = pyarrow.json.read_json(pa.BufferReader(line.encode() + b"\n"), parse_options=options)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    rows = table.to_pylist()
    if len(rows) != 1 or (rows[0]["d"] is not None and not math.isfinite(rows[0]["d"])):
        return None
    return tuple(rows[0][name] for name in TYPES)


@pytest.mark.slow
def test_the_same_as_pyarrow() -> None:
    """3,000 lines that are nearly JSON: accepted and refused alike, with the same values."""
    chance = random.Random(7)
    lines = [mutated(chance) for _ in range(3000)]
    lines = [line for line in lines if line.strip()]
    kinds = {"s": "string", "i": "int", "d": "double", "b": "bool"}
    found, bad = read("\n".join(lines), kinds)
    rows = iter(found)
    accepted = 0
    for number, line in enumerate(lines, start=1):
        expected = by_pyarrow(line)
        ours = None if number in bad else next(rows)
        if (
            expected is None and ours is not None
        ):  # pyarrow refuses a line for a number that no double holds, wherever it is
            assert re.search(r"[0-9][eE]\+?[0-9]{3}", line), line
        else:
            assert ours == expected, line
        accepted += ours is not None
    assert 500 < accepted < 2500
