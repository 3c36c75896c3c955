"""Access logs: the same fields as a pattern finds, whatever the block size; a bad line spoils no other."""

import datetime
import io
import json
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.engine.config.config import read_config
from panstream.engine.config.website import LOG_MADE
from panstream.engine.reporting.export import answers
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.sources import open_source
from panstream.engine.sources.byte_streams import RecordParser, TextReader
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.access_log import COLUMNS, AccessLogParser, CaddyParser, LogParser
from panstream.engine.sources.schema_guess import infer_schema
from panstream.errors import SourceError
from tests.engine.runtime.streams import good

FAULT = "the line is not one of an access log in the common or combined format"
NGINX = (
    '203.0.113.7 - ann [10/Oct/2025:13:55:36 -0730] "GET /news/a?x=1&y=2 HTTP/1.1" 200 2326 '
    '"https://example.org/start" "Mozilla/5.0 (X11; \\x22Linux\\x22)" 0.003 "extra"'
)
NASA = 'in24.inetnebr.com - - [01/Aug/1995:00:00:01 -0400] "GET /shuttle/sts-68.html HTTP/1.0" 200 1839'
QUOTED = rb'"((?:[^"\\]|\\.)*)"'
LINE = re.compile(
    rb"(\S+) (\S+) (\S+) \[(.{26})\] " + QUOTED + rb" (\S+)(?: (\S+)(?: " + QUOTED + rb"(?: " + QUOTED + rb".*)?.*)?)?$"
)


class _Memory:
    was_cut = False

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readinto(self, view: memoryview, wait: float) -> int | None:
        return self._data.readinto(view)

    def close(self) -> None:
        pass


def read(
    text: str | bytes,
    columns: dict[str, str] = COLUMNS,
    *,
    block: int = 1 << 20,
    parser: Callable[..., RecordParser] = AccessLogParser,
) -> tuple[list[dict[str, object]], dict[int, str]]:
    schema = RowSchema(columns=columns)
    data = text if isinstance(text, bytes) else text.encode()
    coalescer = Coalescer(schema, rows=1000, producer="p", label="access.log")
    made = parser(schema, label="access.log")
    reader = TextReader(_Memory(data), made, coalescer, block_bytes=block, record_bytes=1 << 16)
    found: list[dict[str, object]] = []
    bad: dict[int, str] = {}
    while not reader.ended:
        for batch in reader.pump():
            found += good(batch).to_pylist()
            bad |= {fault.row: fault.reason for fault in batch.bad_rows(schema)}
    return found, bad


def test_lines_of_nginx_and_apache() -> None:
    found, bad = read(f"{NGINX}\n{NASA}\r\n\n")
    assert not bad
    nginx, nasa = found
    moment = nginx.pop("time")
    assert isinstance(moment, datetime.datetime)
    assert moment.replace(tzinfo=None) == datetime.datetime(2025, 10, 10, 21, 25, 36)
    assert nginx == {
        "host": "203.0.113.7",
        "user": "ann",
        "method": "GET",
        "path": "/news/a",
        "query": "x=1&y=2",
        "protocol": "HTTP/1.1",
        "status": 200,
        "bytes": 2326,
        "referrer": "https://example.org/start",
        "agent": "Mozilla/5.0 (X11; \\x22Linux\\x22)",
    }
    assert (nasa["host"], nasa["path"], nasa["status"]) == ("in24.inetnebr.com", "/shuttle/sts-68.html", 200)
    assert {name for name, value in nasa.items() if value is None} == {"user", "query", "referrer", "agent"}


@pytest.mark.parametrize(
    ("line", "method", "path", "query", "protocol"),
    [
        ("GET / HTTP/1.0", "GET", "/", None, "HTTP/1.0"),
        ("GET /a b HTTP/1.0", "GET", "/a b", None, "HTTP/1.0"),
        ("GET /a", "GET", "/a", None, None),
        ("GET /? HTTP/2", "GET", "/", None, "HTTP/2"),
        ("-", None, None, None, None),
        ("", None, None, None, None),
        ("\\x16\\x03\\x01", None, None, None, None),
        ('GET /\\"x\\" HTTP/1.1', "GET", '/\\"x\\"', None, "HTTP/1.1"),
    ],
)
def test_request_lines(line: str, method: str, path: str, query: str, protocol: str) -> None:
    columns = {name: "string" for name in ("method", "path", "query", "protocol")}
    found, bad = read(f'h - - [10/Oct/2025:13:55:36 +0000] "{line}" 400 -\n', columns)
    assert (found, bad) == ([{"method": method, "path": path, "query": query, "protocol": protocol}], {})


def test_bad_lines_are_told_apart_and_never_quoted() -> None:
    lines = [NASA, "walrus", NASA.replace("/Aug/", "/Agu/"), NASA.replace("200", "2x0"), NASA.replace('"', "", 1), NASA]
    found, bad = read("\n".join(lines) + "\n")
    assert len(found) == 2
    assert list(bad) == [2, 3, 4, 5]
    assert bad[2] == bad[5] == FAULT
    assert bad[3].startswith("column time ")
    assert bad[4].startswith("column status ")
    assert not any(word in str(bad) for word in ("walrus", "Agu", "2x0"))
    with pytest.raises(SourceError, match="an access log has the columns host, user, .* and no 'visits'"):
        read(NASA, {"visits": "string"})
    with pytest.raises(SourceError, match="the column visitor is a hash, so its type must be int"):
        read(NASA, {"visitor": "string"})


CADDY = {
    "level": "info",
    "ts": 1646861401.5241024,
    "logger": "http.log.access.log0",
    "msg": "handled request",
    "request": {
        "remote_ip": "127.0.0.1",
        "client_ip": "203.0.113.9",
        "proto": "HTTP/2.0",
        "method": "GET",
        "uri": "/a/b?x=1&y=2",
        "headers": {"User-Agent": ['a "quoted" agent'], "Accept": ["*/*"], "Referer": ["https://example.org/"]},
        "tls": {"resumed": False},
    },
    "user_id": "",
    "size": 10900,
    "status": 200,
    "resp_headers": {"Server": ["Caddy"]},
}


EVENTS = st.sampled_from(["/", "/a.html", "/A.CSS", "/x.jpeg", "/y.woff", "/b.gif/c", "/d.", "/gif"])
METHODS = st.sampled_from(["GET", "POST", "-"])
STATUS = st.sampled_from(["200", "304", "404", "499", "500", "503"])
AGENTS = st.sampled_from(["Mozilla/5.0 Firefox/130.0", "Googlebot/2.1", "-", "SmartTV", "iPad", "Android 14"])
REFERRERS = st.sampled_from(["-", "https://www.Example.org/x", "http://search.test:80/?q=1", "android-app://x"])
QUERIES = st.sampled_from(
    ["", "?utm_campaign=may", "?a=1&utm_campaign=june&b=2", "?xutm_campaign=no", "?utm_source=a&utm_term=b", "?"]
)


@given(st.lists(st.tuples(EVENTS, QUERIES, METHODS, STATUS, REFERRERS, AGENTS), min_size=1, max_size=6))
def test_columns_about_visits_are_what_the_lines_say(lines: list[tuple[str, ...]]) -> None:
    """The oracle is Python, line by line; robots and devices are those that beacons have."""
    columns = {"status": "int", **LOG_MADE, "path": "string"}
    text = "".join(
        f'::1 - - [10/Oct/2025:13:55:36 +0000] "{method} {path}{query} HTTP/1.1" {status} 5 "{referrer}" "{agent}"\n'
        for path, query, method, status, referrer, agent in lines
    )
    found, bad = read(text, columns, parser=partial(LogParser, site="example.org"))
    assert not bad
    for row, (path, query, method, status, referrer, agent) in zip(found, lines, strict=True):
        host = re.match(r"https?://(?:www\.)?([^/:?#]+)", referrer.lower())
        campaign = re.search(r"[?&]utm_campaign=([^&]+)", query)
        file = re.search(r"\.(css|jpeg|woff|gif)$", path.lower())
        view = method == "GET" and status in ("200", "304") and not file
        event = "error" if status >= "500" else "bot" if "Googlebot" in agent else "view" if view else "other"
        device = {"-": "other", "SmartTV": "other", "iPad": "tablet", "Android 14": "tablet"}.get(agent, "desktop")
        wanted = {"event": event, "device": device, "path": path, "status": int(status)}
        wanted |= {"section": "/" + path.split("/")[1], "campaign": campaign[1] if campaign else ""}
        for name in ("utm_source", "utm_medium", "utm_term", "utm_content"):
            parameter = re.search(rf"[?&]{name}=([^&]+)", query)
            wanted[name] = parameter[1] if parameter else ""
        wanted["browser"] = "Firefox" if "Firefox/" in agent else "other"
        wanted["system"] = {"iPad": "iOS", "Android 14": "Android"}.get(agent, "other")
        wanted |= {"referrer_host": host[1] if host else "", "entry": host is None or host[1] != "example.org"}
        assert row == wanted


def test_faults_of_columns_that_are_only_read_for_others() -> None:
    """A row whose status cannot be read has no event; the reason names no column that was not declared."""
    columns = {"event": "string", "time": "timestamp"}
    broken = [NASA.replace(" 200 ", " 2x0 "), NASA.replace("Aug", "Agu"), NASA]
    found, bad = read("\n".join(broken), columns, parser=partial(LogParser, site="example.org"))
    assert [row["event"] for row in found] == ["view"]
    assert bad[1] == FAULT
    assert bad[2].startswith("column time ")
    with pytest.raises(SourceError, match="the type of column entry must be bool"):
        read(NASA, {"entry": "string"}, parser=partial(LogParser, site="example.org"))
    with pytest.raises(SourceError, match="and no 'event'"):
        read(NASA, columns, parser=LogParser)


@pytest.mark.parametrize("caddy", [False, True], ids=["combined", "caddy"])
def test_the_first_line_tells_whose_log_it_is(caddy: bool) -> None:
    line, kind = (json.dumps(CADDY), CaddyParser) if caddy else (NGINX, AccessLogParser)
    found, bad = read(f"{line}\n{line}", parser=LogParser)
    assert (found, bad) == read(f"{line}\n{line}", parser=kind)
    assert len(found) == 2
    assert not bad


def test_lines_of_caddy() -> None:
    plain = {"ts": "2025-10-10T13:55:36Z", "request": {"remote_ip": "::1", "uri": "/", "headers": {"Referer": []}}}
    escaped = json.dumps(CADDY).replace("&", "\\u0026")
    found, bad = read(f'{escaped}\n\n{{"msg": "walrus"}}\n[1]\n', parser=CaddyParser)
    assert bad == {2: FAULT, 3: FAULT}
    (row,) = found
    assert str(row.pop("time")).startswith("2022-03-09 21:30:01.524102")
    assert list(row.values()) == [
        "203.0.113.9", None, "GET", "/a/b", "x=1&y=2", "HTTP/2.0", 200, 10900, "https://example.org/",
        'a "quoted" agent',
    ]  # fmt: skip
    (row,), bad = read(json.dumps(plain) + "\n", parser=CaddyParser)
    assert not bad
    assert str(row["time"]).startswith("2025-10-10 13:55:36")
    assert {name: value for name, value in row.items() if value is not None and name != "time"} == {
        "host": "::1",
        "path": "/",
    }


def test_damaged_lines_of_caddy_crash_nothing() -> None:
    chance = random.Random(6)
    whole = json.dumps(CADDY).encode()
    for _ in range(300):
        line = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(line))
            line[at : at + chance.randrange(3)] = bytes([chance.choice(b'\x00"\\[]{},:\xff9t')])
        found, bad = read(whole + b"\n" + bytes(line).replace(b"\n", b" ") + b"\n" + whole, parser=CaddyParser)
        assert found[0]["host"] == found[-1]["host"] == "203.0.113.9"
        assert len(found) + len(bad) in (2, 3)


@pytest.mark.parametrize("seconds", ["1e300", "-1e12", "NaN"])
def test_times_that_are_none(seconds: str) -> None:
    line = json.dumps(CADDY).replace("1646861401.5241024", seconds)
    found, bad = read(line + "\n", parser=CaddyParser)
    assert not found
    assert bad[1].startswith("column time ")


WORD = st.text("ab.-:/7", min_size=1, max_size=6)
TEXT = st.text('ab -?/=\\"x', max_size=12).map(lambda text: text.replace("\\", "\\\\").replace('"', '\\"'))
ZONES = st.sampled_from(["+0000", "-0730", "+1245", "-0400", "+0530"])
MOMENTS = st.datetimes(datetime.datetime(1970, 1, 2), datetime.datetime(2100, 1, 1))
TIME = st.builds(lambda moment, zone: moment.strftime("%d/%b/%Y:%H:%M:%S ") + zone, MOMENTS, ZONES)
LINES = st.builds(
    lambda *parts: '{} {} {} [{}] "{}" {} {} "{}" "{}"'.format(*parts),
    WORD, WORD, WORD, TIME, TEXT, st.integers(100, 599), st.integers(0, 10**12), TEXT, TEXT,
)  # fmt: skip


def _nothing(text: bytes) -> bytes | None:
    return None if text in (b"", b"-") else text


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=8), st.integers(64, 400))
def test_the_same_as_a_pattern(lines: list[str], block: int) -> None:
    columns = {
        "host": "binary",
        "user": "binary",
        "time": "timestamp",
        "bytes": "int",
        "referrer": "binary",
        "agent": "binary",
    }
    found, bad = read("\n".join(lines) + "\n", columns, block=block)
    assert not bad
    for line, row in zip(lines, found, strict=True):
        match = LINE.match(line.encode())
        assert match is not None
        host, _, user, moment, _, _, size, referrer, agent = match.groups()
        texts = (host, user, referrer, agent)
        assert [row[name] for name in ("host", "user", "referrer", "agent")] == [_nothing(text) for text in texts]
        assert row["bytes"] == int(size)
        told = datetime.datetime.strptime(moment.decode(), "%d/%b/%Y:%H:%M:%S %z")
        assert row["time"].replace(tzinfo=datetime.UTC) == told  # type: ignore[attr-defined]


def test_damaged_lines_crash_nothing_and_spoil_no_other() -> None:
    chance = random.Random(5)
    for _ in range(300):
        line = bytearray(NGINX.encode())
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(line))
            line[at : at + chance.randrange(3)] = bytes([chance.choice(b'\x00"\\[] -\xff9a')])
        text = bytes(line).replace(b"\n", b" ")
        found, bad = read(NASA.encode() + b"\n" + text[: chance.randrange(len(text) + 1)] + b"\n" + NASA.encode())
        assert found[0]["host"] == found[-1]["host"] == "in24.inetnebr.com"
        assert len(found) + len(bad) in (2, 3)


CONFIG = {
    "stream": {
        "name": "access",
        "user": "host",
        "time": "time",
        "columns": {"host": "string", "time": "timestamp", "path": "string", "referrer": "string", "agent": "string"},
        "derived": {
            "section": "split_part(path, '/', 2)",
            "source": r"regexp_extract(referrer, '^https?://([^/:]+)', 1)",
            "device": "CASE WHEN agent ILIKE '%bot%' THEN 'bot' WHEN agent ILIKE '%mobi%' THEN 'phone' "
            "ELSE 'other' END",
        },
    },
    "query": [
        {
            "name": name,
            "sql": f"SELECT {name}, COUNT(*) FROM access GROUP BY {name}",
            "epsilon": 20.0,
            "groups": {name: keys},
        }
        for name, keys in {
            "section": ["news", "shop"],
            "source": ["example.org", "search.test"],
            "device": ["bot", "phone", "other"],
        }.items()
    ],
}


def test_derived_columns_of_a_log(tmp_path: Path) -> None:
    agents = ("Mozilla/5.0 (iPhone) Mobile/15E148", "Googlebot/2.1", "Mozilla/5.0 (X11)")
    referrers = ("https://example.org/x", "http://search.test:80/", "-")
    lines = [
        f'10.0.0.{at % 200} - - [10/Oct/2025:13:55:36 +0000] "GET /{("news", "shop")[at % 2]}/{at} HTTP/1.1" 200 5 '
        f'"{referrers[at % 3]}" "{agents[at % 3]}"\n'
        for at in range(3_000)
    ]
    (tmp_path / "access.log").write_text("".join(lines))
    with Engine(read_config(CONFIG)) as engine:
        ingest(engine, [str(tmp_path / "access.log")])
        engine.finish()
        counts = {one["name"]: one["value"] for one in answers(engine)}
    truth = {"section": {"news": 1500, "shop": 1500}, "device": {"bot": 1000, "phone": 1000, "other": 1000}}
    truth["source"] = {"example.org": 1000, "search.test": 1000}
    assert len(counts) == 7
    for name, keys in truth.items():
        for key, count in keys.items():
            assert abs(counts[f"{name} [{name}={key}]"] - count) < 20, "wrong with probability below exp(-100)"


def test_a_log_is_known_by_its_lines_and_can_be_followed(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(NGINX + "\n")
    (tmp_path / "rotated.1").write_text(NASA + "\n")
    (tmp_path / "json.log").write_text('{"a": 1}\n')
    assert infer_schema([str(tmp_path / "access.log")]).columns == COLUMNS
    assert infer_schema([str(tmp_path / "rotated.1")]).format == "log"
    assert infer_schema([str(tmp_path / "json.log")]).format == "json"
    (tmp_path / "caddy.log").write_text(json.dumps(CADDY, separators=(",", ":")) + "\n")
    assert infer_schema([str(tmp_path / "caddy.log")]).columns == COLUMNS
    following = open_source([str(tmp_path / "access.log")], RowSchema(columns={"host": "string"}), follow=True)
    batches = following.batches()
    found = next(batch for batch in batches if batch is not None)
    assert good(found).column("host").to_pylist() == ["203.0.113.7"]
    following.close()
