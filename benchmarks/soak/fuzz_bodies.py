"""Arrow bodies that are nearly right: none may crash or hang the process that reads them, or be taken for other rows.

Good streams of every type and encoding (views, dictionaries, nested, extension, run-end-encoded and compressed ones
too) are bent at random and read as the server reads a body, in a child process whose body ends where its memory ends.
What is accepted is hashed by the kernels, and compared with pyarrow's own full check and values.

    python -m benchmarks.soak.fuzz_bodies [--bodies 100000] [--seed 0]
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import io
import math
import mmap
import multiprocessing
import random
import struct
import sys
import time
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

HANG = 60.0  # seconds
MOST = 20  # crashes and hangs, after which it is enough
ROWS = 23
PAGE = mmap.PAGESIZE
Seed = tuple[str, bytes]  # how x is declared, and a stream


def columns() -> list[tuple[str, Any]]:
    """Return arrays of every type, with the kind that their column is declared as."""
    words = ["a", None, "a word of more than twelve letters", "", "ü"] * 5
    texts = pa.array(words[:ROWS])
    whole = pa.array([None if n % 6 == 5 else n for n in range(ROWS)])
    raw = texts.cast(pa.binary())
    times = pa.array([datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=n) for n in range(ROWS)])
    found: list[tuple[str, Any]] = []
    for kind in (pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()):
        found += [("int", whole.cast(kind)), ("double", whole.cast(kind))]
    for kind in (pa.decimal32(5, 1), pa.decimal64(9, 1), pa.decimal128(20, 1), pa.decimal256(40, 1)):
        found.append(("double", pa.array([Decimal(n) / 2 for n in range(ROWS)], kind)))
    found += [("string", texts.cast(kind)) for kind in (pa.string(), pa.large_string(), pa.string_view())]
    found += [("binary", raw.cast(kind)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())]
    found.append(("binary", pa.array([b"abc"] * ROWS, pa.binary(3))))
    for index in (pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint64()):
        coded = texts.dictionary_encode()
        found.append(("string", pa.DictionaryArray.from_arrays(coded.indices.cast(index), coded.dictionary)))
    coded = texts.dictionary_encode()
    for kind in (pa.large_string(), pa.string_view()):
        found.append(("string", pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(kind))))
    found.append(("string", texts.dictionary_encode(null_encoding="encode")))
    found.append(("int", whole.dictionary_encode()))
    found.append(("bool", pa.array([n % 3 == 0 for n in range(ROWS)])))
    found += [("timestamp", times.cast(pa.timestamp(unit, "UTC"))) for unit in ("s", "ms", "us", "ns")]
    found += [("timestamp", pa.array([str(n) for n in times.to_pylist()])), ("date", times.cast(pa.date32()))]
    found += [("date", times.cast(pa.date64())), ("string", pa.nulls(ROWS))]
    found.append(("string", pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "t", "v"), texts)))
    found.append(("binary", pa.array([n.to_bytes(16, "big") for n in range(ROWS)], pa.binary(16)).cast(pa.uuid())))
    # Of types that are refused, or not read where nobody has declared them.
    lists = pa.array([[str(n)] * (n % 3) for n in range(ROWS)])
    for array in (
        lists,
        lists.cast(pa.large_list(pa.string())),
        pa.array(lists.to_pylist(), pa.list_view(pa.string())),
        pa.array([{"a": n, "b": str(n)} for n in range(ROWS)]),
        pa.array([[(str(n), n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64())),
        pa.RunEndEncodedArray.from_arrays([10, ROWS], ["a", "b"]),
        pa.UnionArray.from_sparse(pa.array([0] * ROWS, pa.int8()), [whole]),
        pa.UnionArray.from_dense(pa.array([0] * ROWS, pa.int8()), pa.array(range(ROWS), pa.int32()), [whole]),
        pa.array([datetime.timedelta(n) for n in range(ROWS)]),
        pa.array([[1.0, 2.0]] * ROWS, pa.list_(pa.float32(), 2)),
    ):
        found += [("other", array), ("string", array)]
    return found


def stream(x: Any, kind: str, **options: Any) -> bytes:
    users = pa.array([f"user number {n}" for n in range(ROWS)])
    table = pa.table({"u": users, "x" if kind != "other" else "y": x})
    if kind == "other":
        table = table.append_column("x", pa.array(range(ROWS)))
    sink = io.BytesIO()
    chunk = options.pop("chunk", 100)
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def seeds() -> list[Seed]:
    found: list[Seed] = []
    for kind, array in columns():
        declared = "int" if kind == "other" else kind
        found.append((declared, stream(array, kind)))
        found.append((declared, stream(array, kind, chunk=9)))
    text = pa.array(["a", "b"] * 11 + ["c"])
    for options in ({"compression": "lz4"}, {"compression": "zstd"}, {"use_legacy_format": True}):
        found.append(("string", stream(text, "string", **options)))
    return found


INTERESTING = [
    0,
    1,
    -1,
    2,
    7,
    8,
    12,
    13,
    16,
    23,
    24,
    64,
    127,
    128,
    255,
    256,
    4096,
    2**31 - 1,
    2**31,
    -(2**31),
    2**40,
    2**63 - 1,
]


def bent(data: bytes, others: list[Seed], chance: random.Random) -> bytes:
    """Return a stream with some bytes or numbers changed, moved or left out."""
    body = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 3, 6])):
        way = chance.random()
        size = len(body)
        if size < 16:
            break
        if way < 0.25:
            body[chance.randrange(size)] = chance.randrange(256)
        elif way < 0.65:
            width = chance.choice([1, 2, 4, 8])
            at = chance.randrange(size // width) * width
            number = chance.choice(INTERESTING) if chance.random() < 0.8 else chance.randrange(size)
            body[at : at + width] = struct.pack("<q", number)[:width]
        elif way < 0.75:
            at = chance.randrange(size)
            to = chance.randrange(size)
            count = chance.randrange(1, 64)
            body[to : to + count] = body[at : at + count]
        elif way < 0.83:
            other = chance.choice(others)[1]
            count = chance.randrange(1, 200)
            at = chance.randrange(len(other))
            to = chance.randrange(size)
            body[to : to + count] = other[at : at + count]
        elif way < 0.9:
            del body[chance.randrange(size) :][: chance.choice([1, 4, 8, size])]
        elif way < 0.95:
            at = chance.randrange(size)
            body[at:at] = bytes(chance.choice([1, 4, 8, 64]))
        else:
            body = body[: chance.randrange(size)]
    return bytes(body)


class Memory:
    """Memory that ends with its last byte: to read further ends the process."""

    def __init__(self, size: int) -> None:
        self._pages = -(-size // PAGE)
        self._map = mmap.mmap(-1, (self._pages + 1) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        protect = ctypes.CDLL(None).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert protect(start + self._pages * PAGE, PAGE, 0) == 0

    def hold(self, data: bytes) -> memoryview:
        start = self._pages * PAGE - len(data)
        self._map[start : start + len(data)] = data
        return memoryview(self._map)[start : start + len(data)]


def expected(body: bytes, kind: str) -> list[Any] | None:
    """Return x as pyarrow reads it, row by row, if it vouches for all of u and x; bytes where they are text."""
    found: list[Any] = []
    names = pa.ipc.open_stream(pa.py_buffer(bytes(body))).schema
    options = pa.ipc.IpcReadOptions(included_fields=sorted(names.get_field_index(name) for name in ("u", "x")))
    for batch in pa.ipc.open_stream(pa.py_buffer(bytes(body)), options=options):
        for name in ("u", "x"):
            vouched(batch.column(name))
        found += values(batch.column("x"))
    return found


_PLAIN = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def vouched(array: Any) -> None:
    array = getattr(array, "storage", array)
    if pa.types.is_dictionary(array.type):
        array.validate()
        vouched(array.dictionary)
        array.indices.validate(full=True)
        codes = [code for code in array.indices.to_pylist() if code is not None]
        if codes and not 0 <= min(codes) <= max(codes) < len(array.dictionary):
            raise pa.ArrowInvalid("codes")
        return
    array.validate()
    if array.type != pa.date64():
        as_bytes(array).validate(full=True)


def as_bytes(array: Any) -> Any:
    plain = _PLAIN.get(array.type)
    return array if plain is None else pa.Array.from_buffers(plain, len(array), array.buffers(), offset=array.offset)


def values(array: Any) -> list[Any]:
    array = getattr(array, "storage", array)
    if pa.types.is_dictionary(array.type):
        words = values(array.dictionary)
        return [None if code is None else words[code] for code in array.indices.to_pylist()]
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        return [...] * len(array)  # compared by the type matrix
    try:
        return list(as_bytes(array).to_pylist())
    except InvalidOperation:  # decimals with more places than Python's
        return [...] * len(array)


def same(ours: Any, theirs: Any, kind: str) -> bool:
    if theirs is ... or ours is None:
        return True
    if kind in ("string", "binary"):
        return bool((ours.encode() if isinstance(ours, str) else ours) == theirs)
    return math.isclose(ours, theirs, rel_tol=1e-12) if kind == "double" else bool(ours == theirs)


@cache
def evaluator(kind: str) -> Any:
    """Return a condition that the engine evaluates by itself."""
    from panstream.engine.rows.evaluator import Evaluator, Expression

    condition = {"string": "x = 'a' OR x LIKE 'ü%'", "bool": "x"}.get(kind, "x >= 3")
    condition = condition if kind in ("int", "double", "string", "bool") else "x IS NOT NULL"
    return Evaluator([Expression(sql=condition)], {"u": "string", "x": kind}, user="u")


def check(body: memoryview, kind: str) -> str:
    """Read a body as the server does; return what became of it."""
    from panstream.engine.rows.row_batch import RowSchema
    from panstream.errors import SourceError
    from panstream.primitives.hashing import derive
    from panstream.primitives.hashing.items import hash_items
    from panstream.primitives.inputs import items
    from panstream.server.errors import HttpError
    from panstream.server.ingest.request_bodies import _read_arrow

    schema = RowSchema(columns={"u": "string", "x": kind}, user="u")
    copy = bytes(body)
    try:
        piece = _read_arrow(body, schema, rows=100_000)
    except (SourceError, HttpError):
        return "refused"
    except Exception as error:  # a server would answer 500
        print(f"{type(error).__name__} for a body of kind {kind}")
        return "WRONG"
    bad = piece.bad
    ids = piece.columns.column("u").filter(pa.array(~bad))
    if len(ids):
        hash_items(items(ids), derive(0, "fuzz"), np.empty(len(ids), np.uint64))
    x = piece.columns.column("x")
    evaluator(kind).evaluate(piece.columns)
    ours = as_bytes(x).to_pylist() if kind not in ("timestamp", "date") else [...] * len(x)
    try:
        theirs = expected(copy, kind)
    except (pa.ArrowException, OSError, KeyError):
        return "WRONG"
    if theirs is None or len(theirs) != len(ours):
        return "WRONG" if theirs is not None else "accepted"
    piece.wipe()
    fine = all(same(a, b, kind) for a, b, wrong in zip(ours, theirs, bad, strict=True) if not wrong and a is not ...)
    return "accepted" if fine else "WRONG"


def work(first: int, stop: int, seed: int, progress: Any, counts: Any) -> None:
    """Fuzz some numbers; ``progress`` tells which one is being read."""
    good = seeds()
    memory = Memory(1 << 20)
    for number in range(first, stop):
        progress.value = number
        chance = random.Random(f"{seed} {number}")
        kind, data = chance.choice(good)
        body = bent(data, good, chance) if number % 50 else data
        outcome = check(memory.hold(body), kind)
        if outcome == "WRONG":
            print(f"wrong: --seed {seed}, body {number}, kind {kind}", flush=True)
        counts[("accepted", "refused", "WRONG").index(outcome)] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bodies", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    progress = context.Value("q", 0)
    counts = context.Array("q", 3)
    crashes: list[int] = []
    hangs: list[int] = []
    first = 0
    while first < given.bodies and len(crashes) + len(hangs) < MOST:
        child = context.Process(target=work, args=(first, given.bodies, given.seed, progress, counts))
        child.start()
        last = -1
        since = time.monotonic()
        while child.is_alive():
            child.join(1.0)
            if progress.value != last:
                last = progress.value
                since = time.monotonic()
            elif time.monotonic() - since > HANG:
                child.kill()
                child.join()
                hangs.append(last)
        if child.exitcode == 0:
            break
        if not hangs or hangs[-1] != progress.value:
            crashes.append(progress.value)
        first = progress.value + 1
    accepted, refused, wrong = counts
    print(
        f"{given.bodies:,} bodies: {accepted:,} accepted with pyarrow's values, {refused:,} refused, {wrong:,} wrong, "
        f"{len(crashes)} crashes, {len(hangs)} hangs"
    )
    for name, numbers in (("crash", crashes), ("hang", hangs)):
        for number in numbers[:10]:
            print(f"{name}: --seed {given.seed}, body {number}")
    return 1 if crashes or hangs or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
