"""The search against ``bytes.find``, the encodings against the standard library, the scan against itself."""

import base64
import json
import re
import struct
from urllib.parse import quote, quote_plus

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.testing.memory import scan, scanner
from panstream.testing.memory._encodings import ENCODINGS, forms
from panstream.testing.memory._launcher import ScanRequest
from panstream.testing.memory._needles import make_needles
from panstream.testing.memory.scanner import Searcher

Match = tuple[int, int]


def occurrences(haystack: bytes, patterns: list[bytes]) -> list[Match]:
    """Return every (offset, number of the pattern), by the plainest search there is."""
    found = []
    for number, pattern in enumerate(patterns):
        at = haystack.find(pattern)
        while at >= 0:
            found.append((at, number))
            at = haystack.find(pattern, at + 1)
    return sorted(found)


def search_all(haystack: bytes, patterns: list[bytes], chunk_bytes: int) -> list[Match]:
    searcher = Searcher(chunk_bytes)
    searcher.add(enumerate(patterns), ("raw",))
    searcher.prepare()
    found: list[Match] = []

    def read(offset: int, piece: memoryview) -> None:
        piece[:] = haystack[offset : offset + len(piece)]

    def note(offsets: np.ndarray, numbers: np.ndarray) -> None:
        found.extend(zip(offsets.tolist(), [searcher.owner_of(number)[0] for number in numbers], strict=True))

    searcher.sweep(0, len(haystack), read, note)
    return sorted(found)


@st.composite
def haystacks(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Return text of few letters, so that prefixes are shared and half matches abound, with patterns planted in it."""
    letters = draw(st.sampled_from([b"\0", b"\0a", b"ab", b"0123456789abcdef", bytes(range(256))]))
    shortest = draw(st.sampled_from([6, 7, 8, 9, 10, 14, 15, 16, 33]))
    text = st.lists(st.sampled_from(list(letters)), max_size=40).map(bytes)
    pattern = st.lists(st.sampled_from(list(letters)), min_size=shortest, max_size=shortest + 40).map(bytes)
    patterns = draw(st.lists(pattern, min_size=1, max_size=12, unique=True))
    pieces = draw(st.lists(st.one_of(text, st.sampled_from(patterns)), max_size=30))
    return b"".join(pieces), patterns


@pytest.mark.slow
@given(haystacks(), st.integers(1, 300))
@example((bytes(100), [bytes(6)]), 7)
@example((b"", [b"abcdef"]), 16)
@settings(max_examples=200, deadline=None)
def test_search_agrees_with_find(case: tuple[bytes, list[bytes]], chunk_bytes: int) -> None:
    haystack, patterns = case
    assert search_all(haystack, patterns, chunk_bytes) == occurrences(haystack, patterns)


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_many_needles_in_random_bytes(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    lengths = rng.integers(6, 100, 500)
    patterns = [rng.bytes(length) for length in lengths]
    haystack = bytearray(rng.bytes(100_000))
    haystack[20_000:40_000] = bytes(20_000)
    planted = rng.choice(500, 150, replace=False)
    for number in planted:
        at = int(rng.integers(0, len(haystack) - 100))
        haystack[at : at + len(patterns[number])] = patterns[number]
    expected = occurrences(bytes(haystack), patterns)
    assert len(expected) > 100
    assert search_all(bytes(haystack), patterns, data.draw(st.sampled_from([4096, 1 << 20]))) == expected


@pytest.mark.parametrize("length", [8, 12, 40])
def test_patterns_that_begin_with_zeros_behind_zeros(length: int) -> None:
    """Zeros are skipped in leaps, which must not leap over a pattern's own."""
    for zeros in range(length + 1):
        pattern = (bytes(zeros) + bytes(range(1, 64)))[:length]
        within = b"a" + bytes(zeros)[: length - 2] + bytes(range(1, 64))[: max(1, length - 1 - zeros)]
        for before in range(40, 64):
            haystack = bytes(before) + pattern + bytes(50) + within + pattern + bytes(70) + within
            for patterns in ([pattern], [within], [pattern, within]):
                assert search_all(haystack, patterns, 1 << 12) == occurrences(haystack, patterns)


def test_more_matches_than_fit_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "_MATCHES", 5)
    patterns = [b"abcabc", b"abcabcabc", b"bcabcabcabca"]
    haystack = b"abc" * 50
    assert search_all(haystack, patterns, 64) == occurrences(haystack, patterns)


needle_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=30)
needle_ints = st.integers(1 << 47, (1 << 64) - 1) | st.integers(-(1 << 63), -(1 << 47))


@given(st.one_of(needle_texts, st.binary(min_size=6, max_size=30)), st.binary(max_size=5), st.binary(max_size=5))
@settings(deadline=None)
def test_base64_is_found_whatever_surrounds_it(needle: str | bytes, before: bytes, after: bytes) -> None:
    data = needle if isinstance(needle, bytes) else needle.encode()
    for name, encode in (("base64", base64.b64encode), ("base64url", base64.urlsafe_b64encode)):
        text = encode(before + data + after)
        assert any(pattern in text for _, pattern in forms(needle, (name,)))


@given(needle_texts)
@settings(deadline=None)
def test_text_forms(needle: str) -> None:
    patterns = {name: {pattern for _, pattern in forms(needle, (name,))} for name in ENCODINGS}
    assert patterns["raw"] == {needle.encode()}
    assert patterns["utf-16-le"] == {needle.encode("utf-16-le")}
    assert patterns["utf-32-le"] == {needle.encode("utf-32-le")}
    assert patterns["hex"] == {needle.encode().hex().encode()}
    assert patterns["hex-upper"] == {needle.encode().hex().upper().encode()}
    assert {json.dumps(needle)[1:-1].encode(), json.dumps(needle, ensure_ascii=False)[1:-1].encode()} == patterns[
        "json"
    ]
    assert {json.loads(b'"' + pattern + b'"') for pattern in patterns["json-u"]} == {needle}
    assert all(re.fullmatch(rb"(\\u[0-9a-fA-F]{4})+", pattern) for pattern in patterns["json-u"])
    assert {quote(needle, safe="").encode(), quote_plus(needle).encode()} <= patterns["percent"]
    assert not patterns["decimal"] | patterns["int64-le"] | patterns["int64-be"] | patterns["float64"]


@pytest.mark.slow
@given(needle_ints)
@settings(deadline=None)
def test_integer_forms(needle: int) -> None:
    patterns = {name: {pattern for _, pattern in forms(needle, (name,))} for name in ENCODINGS}
    dtype = np.int64 if needle < 0 else np.uint64
    little = np.array([needle], dtype).astype(f"<{np.dtype(dtype).str[1:]}").tobytes()
    assert patterns["int64-le"] == {little}
    assert patterns["int64-be"] == {little[::-1]}
    assert patterns["hex"] == {little.hex().encode(), little[::-1].hex().encode()}
    assert patterns["decimal"] == {b"%d" % needle}
    assert patterns["utf-16-le"] == {str(needle).encode("utf-16-le")}
    assert patterns["float64"] == {np.float64(needle).tobytes()}
    (digits,) = patterns["python-int"]
    words = struct.unpack(f"<{len(digits) // 4}I", digits)
    assert sum(word << 30 * i for i, word in enumerate(words)) == abs(needle)
    assert not patterns["raw"] | patterns["json"]


@given(st.one_of(needle_texts, needle_ints, st.binary(min_size=6, max_size=30)))
@settings(deadline=None)
def test_forms_are_distinct_and_long_enough(needle: str | bytes | int) -> None:
    found = [pattern for _, pattern in forms(needle)]
    assert len(set(found)) == len(found) > 0
    assert min(map(len, found)) >= 6


scans = st.builds(
    ScanRequest,
    pid=st.none() | st.integers(1, 1 << 22),
    stop=st.booleans(),
    read_only=st.booleans(),
    chunk_bytes=st.integers(1, 1 << 30),
    files=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    encodings=st.lists(st.sampled_from(ENCODINGS)),
    needles=st.lists(st.one_of(needle_texts, needle_ints, st.binary())),
    decoys=st.lists(st.one_of(needle_texts, needle_ints, st.binary())),
    control=st.none() | st.binary(),
)


@given(scans)
@settings(deadline=None)
def test_a_scan_is_read_as_it_was_written(order: ScanRequest) -> None:
    assert ScanRequest.from_json(order.to_json()) == order


@pytest.mark.parametrize(
    ("needle", "rule"),
    [
        (b"12345", "at least 48 bits"),
        ("12345", "at least 48 bits"),
        ("ééé", "at least 48 bits"),
        ((1 << 47) - 1, "at least 48 bits"),
        (1 << 64, "fit in 64"),
        (b"x" * 1025, "at most 1024 bytes"),
        ("abcdef\ud800", "valid Unicode"),
        (True, "str, bytes or int"),
        (1.5, "str, bytes or int"),
        (None, "str, bytes or int"),
    ],
)
def test_unfit_needles_are_refused_by_position(needle: object, rule: str) -> None:
    with pytest.raises(InvalidParameter, match=rule) as refusal:
        scan(None, [b"long enough", needle], decoys=[], control=None)  # type: ignore[list-item]
    assert "needles[1]" in str(refusal.value)
    assert "12345" not in str(refusal.value)


def test_repeated_needles_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="needles must be distinct, got 1 repeated"):
        scan(None, ["abcdef", "ghijkl", "abcdef"], decoys=[], control=None)


def test_made_needles() -> None:
    assert all(re.fullmatch("[0-9a-f]{24}", needle) for needle in make_needles(50, size=12))
    assert {len(needle) for needle in make_needles(50, "bytes")} == {16}
    assert {needle.bit_length() for needle in make_needles(50, "int")} == {63}
    assert {needle.bit_length() for needle in make_needles(50, "int", 7)} == {55}
    assert len(set(make_needles(1000, "bytes", 6))) == 1000
    for kind, size in (("string", 5), ("int", 6), ("int", 9), ("bytes", 513)):
        with pytest.raises(InvalidParameter, match="size must be in"):
            make_needles(1, kind, size)  # type: ignore[call-overload]
    with pytest.raises(InvalidParameter, match="kind must be"):
        make_needles(1, "float")  # type: ignore[call-overload]
