"""Digests of what most kernels give for fixed input, compiled for this processor or as the environment says."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

# The processor without fused multiply-add and wide vectors is the one furthest from any that tests run on.
TARGETS = {"generic": {"NUMBA_CPU_NAME": "generic"}}
if os.environ.get("PANSTREAM_FULL") == "1":  # every target takes 22 s of CPU time to compile
    TARGETS["no AVX-512"] = {"NUMBA_CPU_FEATURES": "-avx512f,-avx512vl,-avx512bw,-avx512dq"}
    TARGETS["haswell"] = {"NUMBA_CPU_NAME": "haswell"}


def results() -> Iterator[tuple[str, np.ndarray]]:

    from panstream.primitives.hashing import (
        cells_of_integers,
        cells_of_strings,
        hash_integers,
        hash_strings,
        mark_integers_packed,
        mark_strings,
        mark_strings_packed,
    )
    from panstream.primitives.kernels.algorithms import noisy_tree as tree
    from panstream.primitives.kernels.algorithms import packed_bits as bits
    from panstream.primitives.kernels.noise import bernoulli as draws
    from panstream.primitives.kernels.sources import csv_simd as csv_records
    from panstream.primitives.kernels.sources import json_fields, text_values
    from panstream.primitives.noise import Coin, DiscreteGaussian, DiscreteLaplace, SeededSource

    rng = np.random.default_rng(9)
    rows = 5_003
    shape = (1_021, 14)
    numbers = rng.integers(-(2**63), 2**63 - 1, rows)
    for name, longest in (("short", 16), ("any", 700)):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(0, longest + 1, rows))]).astype(np.int32)
        text = rng.integers(0, 256, int(offsets[-1]), np.uint8)
        for kind in ("fold", "siphash"):
            hashes = np.empty(rows, np.uint64)
            cells = np.empty(rows, np.int32)
            hash_strings(offsets, text, 3, hashes, hash=kind)
            cells_of_strings(offsets, text, 3, *shape, cells, hash=kind)
            yield f"{kind} of {name} strings", hashes
            yield f"{kind} cells of {name} strings", cells
        marks = np.zeros(shape[0] * shape[1], np.uint8)
        mark_strings(offsets, text, 3, *shape, marks)
        yield f"marks of {name} strings", marks
        words = np.zeros(-(-shape[0] * shape[1] // 64), np.uint64)
        mark_strings_packed(offsets, text, 3, *shape, words)
        yield f"packed marks of {name} strings", words
    for length in (16, 11):
        equal = np.arange(301, dtype=np.int64) * length
        bits_of_cells = np.zeros(words.size, np.uint64)
        hash_strings(equal, text, 3, hashes[:300], hash="fold")
        mark_strings_packed(equal, text, 3, *shape, bits_of_cells)
        yield f"hashes of {length} bytes", hashes[:300].copy()
        yield f"packed marks of {length} bytes", bits_of_cells
    hashes = np.empty(rows, np.uint64)
    cells = np.empty(rows, np.int32)
    hash_integers(numbers, 3, hashes)
    cells_of_integers(numbers, 3, *shape, cells)
    yield "integers", hashes
    yield "cells of integers", cells
    words = np.zeros(words.size, np.uint64)
    mark_integers_packed(numbers, 3, *shape, words)
    yield "packed marks of integers", words

    coins = rng.integers(0, 256, rows, np.uint8)
    words = rng.integers(0, 2**64, draws.compare_bytes(coins, np.uint8(178)), np.uint64)
    draws.resolve_coins(coins, np.uint8(178), np.uint64(1 << 55), words)
    yield "coins", coins
    table = np.zeros(-(-shape[0] * shape[1] // 8), np.uint8)
    bits.scatter(table, cells, coins)
    bits.draw_marked(table, marks, np.resize(coins, marks.size))
    yield "bits", table
    thirds, few = rng.integers(0, 2**64, (2, 3_000), np.uint64)
    few &= thirds << np.uint64(1)
    with SeededSource(4) as source:
        source.redraw(Coin.at_most(0.7), thirds, few)
    yield "redrawn bits", thirds

    with SeededSource(5) as source:
        for sigma, size in ((40.0, 1_000), (4e3, 1_000), (40.0, 1 << 14)):  # all sizes, blocks, a table
            noise = np.zeros(size, np.int64)
            source.add_discrete_gaussian(noise, DiscreteGaussian.at_least(sigma))
            yield f"{size} of Gaussian noise, {sigma}", noise
        noise = np.zeros(1_000, np.int64)
        source.add_discrete_laplace(noise, DiscreteLaplace.at_most(0.01))
        yield "Laplace noise", noise
    lines = [b'{"a":%d,"b c":"%s"}' % (number, b"x" * (number % 80)) for number in range(-500, 500)]
    text = np.frombuffer(b"\n".join(lines) + b"\n" + b'{"a":[],"b c":"\\n"}\n{"a":\n', np.uint8).copy()
    starts = np.zeros((2, 1_002), np.int64)
    stops = np.zeros((2, 1_002), np.int64)
    forms = np.zeros((2, 1_002), np.uint8)
    names = np.frombuffer(b"ab c", np.uint8)
    faults = np.zeros(1_002, np.uint8)
    assert json_fields.scan_lines(text, text.size, names, np.array([0, 1, 4]), starts, stops, forms, faults) == 1_002
    yield "values of JSON", np.concatenate([*starts, *stops, *forms, faults])
    numbers = np.zeros(1_002, np.int64)
    bad = np.zeros(1_002, bool)
    text_values.parse_ints(text, starts[0], stops[0], forms[0] == json_fields.NUMBER, numbers, bad)
    yield "whole numbers", numbers
    cells = [b'"%s",%d' % (b'x""y,\n' * (number % 20), number) for number in range(1_000)]
    text = np.frombuffer(b"\r\n".join(cells) + b'\na"b,\n', np.uint8).copy()
    spots = np.array([0, 1])
    assert csv_records.split_records(text, text.size, 0x2C, 0x22, spots, starts, stops, forms, faults) == (
        1_001,
        text.size,
    )
    yield "fields of CSV", np.concatenate([*starts, *stops, *forms, faults])
    keep = np.empty(rows, np.uint8)
    users = rng.integers(0, 900, rows)
    addresses = np.uint64(users.ctypes.data) + np.arange(rows, dtype=np.uint64) * np.uint64(8)
    firsts = np.empty(1 << 14, np.int64)
    counts = np.zeros(1 << 14, np.int64)
    tree.keep_first_rows(users.astype(np.uint64), addresses, np.full(rows, 8), 2, firsts, counts, keep)
    yield "first rows", keep


def digests(target: dict[str, str]) -> dict[str, str]:
    run = subprocess.run(
        [sys.executable, __file__], env=os.environ | target, capture_output=True, text=True, check=True, timeout=600
    )
    by_kernel: dict[str, str] = json.loads(run.stdout)
    return by_kernel


if __name__ == "__main__":
    print(json.dumps({name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in results()}))
