"""Beacons of browsers, four lines each: site and address, user agent, language (from the request), and the body.

The body is a JSON object with ``url``, ``referrer``, ``event``, ``value`` and ``sender_counts``, chosen by the sender,
and ``once``, a random number that the script draws for every beacon. Robots are bad rows, as is a body that is not such
an object, or a beacon with ``once`` that came before in the same batch: a browser or a proxy has repeated it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import compute, pa
from panstream.engine.config.website import BEACON, MADE, UTM
from panstream.engine.rows.row_batch import NOT_JSON, RowBatch, RowSchema
from panstream.engine.rows.wiping import wipe_array, wipe_unused
from panstream.engine.sources.formats._bots import known_bots
from panstream.engine.sources.formats.text_columns import columns_from_spans
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.sender_counts import COLUMN

LINES = 4
_KEYS = ("url", "referrer", "event", "value", COLUMN)
_ONCE = "once"
_HEAD = {"agent": 1, "language": 2}  # number of the line
OTHERS = "TV|PlayStation|Xbox|Nintendo"
TABLETS = "iPad|Tablet|Kindle|Silk/"
PHONES = "Mobi|iPhone|iPod|Android"
# Coarse, in the order in which they are tried: many browsers name others too.
BROWSERS = {
    "Edge": "Edg(?:e|A|iOS)?/",
    "Opera": "OPR/|OPT/|Opera",
    "Samsung Internet": "SamsungBrowser/",
    "Firefox": "Firefox/|FxiOS/",
    "Chrome": "Chrome/|CriOS/|Chromium/",
    "Safari": "Safari/",
}
SYSTEMS = {
    "Windows": "Windows",
    "iOS": "iPhone|iPad|iPod",
    "Android": "Android",
    "ChromeOS": "CrOS",
    "macOS": "Macintosh",
    "Linux": "Linux|X11",
}
OTHER = "other"
_NAMED = {"browser": BROWSERS, "system": SYSTEMS}
SOURCES = {  # the text that a column is derived from
    **dict.fromkeys(("path", "section", *UTM), "url"),
    **dict.fromkeys(("referrer_host", "entry"), "referrer"),
    "country": "language",
    **dict.fromkeys(("device", *_NAMED), "agent"),
}
_PATTERNS = {
    "path": "^(?P<found>[^?#]+)",
    "section": "^(?P<found>/[^/?#]*)",
    **{name: f"[?&]{parameter}=(?P<found>[^&#]+)" for name, parameter in UTM.items()},
    "referrer_host": r"^https?://(?:www\.)?(?P<found>[^/:?#]+)",
    "country": "^[A-Za-z]{2,3}(?:-[A-Za-z]{4})?-(?P<found>[A-Za-z]{2})",
}
_KEY = np.uint64(0)  # need not be secret: algorithms hash it again, and it is wiped with the rows


def derived_column(name: str, text: Any, site: str) -> Any:
    """Return a column derived from a text of the browser, by pyarrow: DuckDB would leave residue of it.

    >>> derived_column("campaign", pa.array(["/a?utm_campaign=may&x=1", "/b", None]), "example.org").to_pylist()
    ['may', '', '']
    """
    text = compute.coalesce(text, pa.scalar("", pa.string()))
    if name == "device":
        return _devices(text)
    if name in _NAMED:
        return _first_named(text, _NAMED[name])
    if name == "entry":
        return compute.not_equal(derived_column("referrer_host", text, site), site)
    if name == "referrer_host":
        text = compute.ascii_lower(text)
    matches = extract_pattern(text, _PATTERNS[name])
    return compute.ascii_upper(matches) if name == "country" else matches


def extract_pattern(text: Any, pattern: str) -> Any:
    """Return the group ``found`` of a pattern in every text, "" where it does not match."""
    matches = compute.struct_field(compute.extract_regex(text, pattern), "found")
    return compute.coalesce(matches, pa.scalar("", pa.string()))


def _devices(agents: Any) -> Any:
    holds = partial(compute.match_substring_regex, agents)
    tablet = compute.or_(holds(TABLETS), compute.and_not(holds("Android"), holds("Mobi")))
    cases = (compute.or_(compute.equal(agents, ""), holds(OTHERS)), tablet, holds(PHONES))
    chosen = compute.make_struct(*cases)
    return compute.case_when(chosen, *(pa.scalar(word) for word in ("other", "tablet", "mobile", "desktop")))


def _first_named(agents: Any, patterns: dict[str, str]) -> Any:
    cases = compute.make_struct(*(compute.match_substring_regex(agents, pattern) for pattern in patterns.values()))
    return compute.case_when(cases, *(pa.scalar(word) for word in (*patterns, OTHER)))


class JsonSpans:
    """Start, end and JSON kind of the values of some keys: arrays with a row per key, filled by kernels."""

    def __init__(self, keys: tuple[str, ...], rows: int) -> None:
        self._keys = keys
        names = [key.encode() for key in keys]
        spans = np.zeros((2, len(keys), rows), np.int64)
        kinds = np.zeros((len(keys), rows), np.uint8)
        edges = np.cumsum([0, *map(len, names)])
        self.arrays = (np.frombuffer(b"".join(names), np.uint8), edges, spans[0], spans[1], kinds)

    def spans_of(self, key: str, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """Return start, end and kind of the values of a key."""
        key_index = self._keys.index(key)
        _, _, starts, stops, kinds = self.arrays
        return starts[key_index, :rows], stops[key_index, :rows], kinds[key_index, :rows]


def parse_beacons(data: bytearray, end: int, schema: RowSchema) -> RowBatch:
    """Return a row for every beacon of ``data[:end]``."""
    from panstream.primitives.kernels.sources import json_fields as json
    from panstream.primitives.kernels.sources.beacon_fields import cut_lines, scan_texts
    from panstream.primitives.kernels.sources.visitor_ids import hash_pairs

    view = np.frombuffer(data, np.uint8)
    max_rows = data.count(b"\n", 0, end) // LINES
    if not max_rows:
        return RowBatch.none(schema)
    begins, ends = np.zeros((2, LINES, max_rows), np.int64)
    rows = int(cut_lines(view, end, begins, ends))
    json_spans = JsonSpans((*_KEYS, _ONCE), rows)
    broken = np.zeros(rows, np.uint8)
    scan_texts(view, begins[3], ends[3], *json_spans.arrays, broken)
    visitors = np.empty(rows, np.uint64)
    hash_pairs((view, begins[0], ends[0]), (view, begins[1], ends[2]), _KEY, visitors)  # agent and language
    spans = {name: (begins[line], ends[line], np.full(rows, json.STRING, np.uint8)) for name, line in _HEAD.items()}
    codes = np.where(broken != 0, np.uint16(NOT_JSON), np.uint16(0))
    for name in _KEYS:
        starts, stops, sorts = json_spans.spans_of(name, rows)
        fits = np.isin(sorts, (json.NUMBER,) if name == "value" else (json.STRING, json.ESCAPED))
        codes[(sorts != json.ABSENT) & ~fits & (codes == 0)] = NOT_JSON
        spans[name] = starts, stops, np.where(fits, sorts, json.ABSENT).astype(np.uint8)
    codes[_robots(view, begins[1], ends[1])] = NOT_JSON
    codes[_repeats(view, begins, ends, json_spans.spans_of(_ONCE, rows)[2])] = NOT_JSON
    texts = _columns(view, {name: BEACON[name] for name in _needed(schema)}, codes, spans)
    site = bytes(view[: ends[0, 0]]).split(b" ", 1)[0].decode()
    columns: dict[str, Any] = {}
    for name in schema.columns:
        if name == "visitor":
            columns[name] = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(visitors)])
        elif name in MADE:
            columns[name] = derived_column(name, texts.column(SOURCES[name]), site)
        else:
            columns[name] = texts.column(name)
    parsed = RowBatch.checked(columns, schema, codes)
    wipe_unused(texts.columns, parsed.columns.columns)
    return parsed


def _needed(schema: RowSchema) -> list[str]:
    """Return the texts of a beacon that the columns of a schema are derived from."""
    return list(dict.fromkeys(SOURCES.get(name, name) for name in schema.columns if name != "visitor"))


def _columns(view: Any, kinds: dict[str, str], codes: Any, field_spans: dict[str, tuple[Any, Any, Any]]) -> Any:
    """Return the columns of texts, NULL where a row has none; an empty batch if no text is needed."""
    from panstream.primitives.kernels.sources.json_fields import ABSENT, ESCAPED, gather_values

    if not kinds:
        return pa.RecordBatch.from_arrays([], names=[])
    starts, stops, forms = (np.array([field_spans[name][part] for name in kinds]) for part in range(3))

    def copy(column: int, offsets: Any, out: Any) -> None:
        gather_values(view, starts[column], stops[column], forms[column], offsets, out)

    spans = (starts, stops)
    woven = forms == ESCAPED
    return columns_from_spans(view, RowSchema(columns=kinds), codes, spans, forms != ABSENT, copy, woven).columns


def _repeats(view: Any, begins: Any, ends: Any, once: Any) -> Any:
    """Return which rows repeat another one of the batch, in all lines, and say that each is sent only once."""
    from panstream.primitives.kernels.sources.json_fields import ABSENT
    from panstream.primitives.kernels.sources.visitor_ids import hash_pairs, mark_repeats

    several = once == ABSENT
    hashes = np.empty(once.size, np.uint64)
    table = np.zeros(1 << (2 * once.size).bit_length(), np.uint64)
    try:
        hash_pairs((view, begins[0], ends[2]), (view, begins[3], ends[3]), _KEY, hashes)
        repeated = several.view(np.uint8).copy()
        mark_repeats(hashes, table, repeated)
    finally:
        wipe(hashes)
        wipe(table)
    return repeated.view(bool) & ~several


def _robots(view: Any, starts: Any, stops: Any) -> Any:
    from panstream.primitives.kernels.sources.byte_copies import SLACK
    from panstream.primitives.kernels.sources.csv_fields import copy_spans

    offsets = np.zeros(len(starts) + 1, np.int32)
    text = np.zeros(int((stops - starts).sum()) + SLACK, np.uint8)
    copy_spans(view, starts, stops, offsets, text)
    agents = pa.Array.from_buffers(pa.string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    try:
        return known_bots().is_bot(agents)
    finally:
        wipe_array(agents)
