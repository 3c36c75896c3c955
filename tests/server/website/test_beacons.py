"""Beacons of browsers: which are taken, from whom, and what is counted; without loss, and without a trace."""

import asyncio
import gzip
import json
import socket
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.engine.arrow import pa
from panstream.engine.config.config import read_config
from panstream.engine.config.website import BEACON, WebConfig, parse_network
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.planner.sender_bounds import sender_caps
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.byte_streams import SPARE_BYTES
from panstream.engine.sources.formats._bots import BotDetector, known_bots
from panstream.engine.sources.formats.beacons import (
    BROWSERS,
    OTHER,
    OTHERS,
    PHONES,
    SYSTEMS,
    TABLETS,
    derived_column,
    parse_beacons,
)
from panstream.errors import ConfigError
from panstream.primitives.kernels.sources.visitor_ids import mark_repeats
from panstream.server.auth import Limits, QuotaTracker
from panstream.server.ingest.jobs import Job
from panstream.server.website.beacon_buffer import MAX_BEACON, BeaconBuffer
from panstream.server.website.script import website_script
from tests.server.server_live import EXACT, Live, served, write_config
from tests.waiting import PATIENCE

ORIGIN = "https://shop.example"
PATH = "/v1/beacon"
AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"
CONFIG = f"""
[web]
site = "shop.example"
trusted_proxies = ["127.0.0.1"]
[stream]
name = "web"
user = "visitor"
[stream.columns]
visitor = "int"
url = "string"
referrer = "string"
language = "string"
agent = "string"
event = "string"
value = "double"
[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM web WHERE event = 'view'"
epsilon = {EXACT}
releases = 40
[[query]]
name = "austrians"
sql = "SELECT COUNT(*) FROM web WHERE language = 'de-AT' AND url LIKE '/a%' AND value > 1.5"
epsilon = {EXACT}
releases = 40
[[query]]
name = "people"
sql = "SELECT COUNT(DISTINCT visitor) FROM web"
epsilon = {5 * EXACT}
expected = 1000
releases = 40
[store]
directory = "state"
step = "5 ms"
"""


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compile what parses beacons: answers would overtake the first ones meanwhile."""
    parsed(("shop.example 192.0.2.1", AGENT, "de-AT", b'{"url": "/", "event": "view", "once": 0.5}'))


def beacon(live: Live, body: Any, **headers: str) -> Any:
    content = json.dumps(body) if isinstance(body, dict) else body
    given = {"Origin": ORIGIN, "User_Agent": AGENT, "Content_Type": "text/plain"} | headers
    return live.ask("POST", PATH, content, **given)


def counted(live: Live, query: str = "rows") -> int:
    """How many were counted, once the basket was handed over: what waits now is handed over before the next step."""
    for _ in range(2):  # a call that waits for a commit, twice: the step under way, and a whole one
        assert live.ask("POST", "/v1/producers/waits").status == 200
        _wait_for_a_step(live)
    return round(live.ask("POST", f"/v1/queries/{query}/release").json["releases"][0]["value"])


def _wait_for_a_step(live: Live) -> None:
    beacons: BeaconBuffer = live.running._beacons
    loop = live.running._service._loop
    handed = asyncio.run_coroutine_threadsafe(_handed_over(beacons), loop)
    handed.result(30)


async def _handed_over(beacons: BeaconBuffer) -> None:
    before = beacons._body
    while beacons._body is before:
        await asyncio.sleep(0)


@pytest.mark.slow
def test_what_is_sent_is_counted(live: Live) -> None:
    before = counted(live)
    others = counted(live, "austrians")
    for number in range(20):
        answer = beacon(live, {"url": f"/a{number}", "event": "view", "value": 2}, Accept_Language="de-AT,de;q=0.9")
        assert answer.status == 204
        assert answer.body == b""
        assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "Set-Cookie" not in answer.headers
    assert beacon(live, {"url": "/b", "event": "load", "value": 2}, Accept_Language="de-AT").status == 204
    assert counted(live) - before == 20
    assert counted(live, "austrians") - others == 20


def test_visitors_are_addresses_with_agents(live: Live) -> None:
    before = counted(live, "people")
    for address in ("203.0.113.7", "203.0.113.8", "2001:db8::1"):
        for agent in ("Firefox/1", "Firefox/2"):
            for _ in range(3):
                beacon(live, {"url": "/", "event": "view"}, X_Forwarded_For=f"9.9.9.9, {address}", User_Agent=agent)
    assert counted(live, "people") - before == pytest.approx(6, abs=1)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://shop.example.evil", "null", None])
def test_pages_of_other_sites_are_refused(live: Live, origin: str | None) -> None:
    before = counted(live)
    headers = {} if origin is None else {"Origin": origin}
    for method in ("POST", "OPTIONS"):
        answer = live.ask(method, PATH, '{"url": "/", "event": "view"}', **headers)
        assert (answer.status, answer.code) == (403, "forbidden")
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert counted(live) == before


@pytest.mark.parametrize(
    "headers", [{"DNT": "1"}, {"Sec_GPC": "1"}, {"User_Agent": "Googlebot/2.1"}, {"User_Agent": "curl/8"}]
)
def test_who_asks_not_to_be_counted_is_not_nor_are_robots(live: Live, headers: dict[str, str]) -> None:
    before = counted(live)
    assert beacon(live, {"url": "/", "event": "view"}, **headers).status == 204
    assert counted(live) == before


def test_a_picture_counts_a_page_without_scripts(live: Live) -> None:
    before = counted(live)
    headers = {"Referer": f"{ORIGIN}/page", "User_Agent": AGENT}
    answer = live.get("/v1/beacon.gif?u=/page", **headers)
    assert (answer.status, answer.headers["Content-Type"], answer.body[:6]) == (200, "image/gif", b"GIF89a")
    assert live.get("/v1/beacon.gif", **headers).status == 200
    assert live.get("/v1/beacon.gif", Referer="https://evil.example/", User_Agent=AGENT).status == 403
    assert live.get("/v1/beacon.gif", User_Agent=AGENT).status == 403
    assert counted(live) - before == 2


def test_the_script_is_small_and_stores_nothing(live: Live) -> None:
    answer = live.get("/panstream.js")
    assert answer.status == 200
    assert len(gzip.compress(answer.body, 9)) < 1_000
    assert not any(word in answer.body for word in (b"cookie", b"localStorage", b"sessionStorage", b"indexedDB"))
    assert live.get("/panstream.js", If_None_Match=answer.headers["ETag"]).status == 304


def test_the_script_counts_where_queries_need_it() -> None:
    plain = website_script({})
    counted = website_script({("view", 86_400): 8, ("view", 604_800): 12}).decode()
    assert plain != counted.encode()
    assert '[["view", "v", 86400, 8], ["view", "v", 604800, 12]]' in counted
    assert "indexedDB" in counted
    assert "Object.assign(send, { counter })" in counted
    assert len(gzip.compress(counted.encode(), 9)) < 2_000


def test_a_beacon_has_the_counts_of_its_sender() -> None:
    body = b'{"url": "/", "event": "view", "sender_counts": "view:60:7:1 row:60:7:3"}'
    columns = {"event": "string", "sender_counts": "string"}
    data = bytearray()
    for content in (body, b'{"url": "/", "event": "view"}', b'{"event": "view", "sender_counts": 3}'):
        data += b"shop.example 192.0.2.1\n" + AGENT.encode() + b"\nde-AT\n" + content + b"\n"
    end = len(data)
    data += bytes(SPARE_BYTES)
    batch = parse_beacons(data, end, RowSchema(columns=columns))
    assert batch.columns.column("sender_counts").to_pylist() == ["view:60:7:1 row:60:7:3", None, None]
    assert batch.bad.tolist() == [False, False, True]


def test_a_beacon_that_is_delivered_twice_is_one_row() -> None:
    """In one batch, from the same address, agent and language, and only where the script said that it is sent once."""
    view = {"url": "/", "event": "view"}
    beacons = [
        ("192.0.2.1", {**view, "once": 0.25}),
        ("192.0.2.1", {**view, "once": 0.25}),  # repeated
        ("192.0.2.2", {**view, "once": 0.25}),  # somebody else who drew the same number
        ("192.0.2.1", {**view, "once": 0.5}),
        ("192.0.2.1", view),
        ("192.0.2.1", view),  # nothing says that it is the same
        ("192.0.2.1", {**view, "once": 0.25}),  # repeated again
    ]
    data = bytearray()
    for address, body in beacons:
        data += f"shop.example {address}\n{AGENT}\nde-AT\n{json.dumps(body)}\n".encode()
    end = len(data)
    data += bytes(SPARE_BYTES)
    batch = parse_beacons(data, end, RowSchema(columns={"event": "string"}))
    assert np.flatnonzero(batch.bad).tolist() == [1, 6]


@given(st.lists(st.integers(0, 5), max_size=60), st.lists(st.booleans(), min_size=60, max_size=60))
def test_repeats_are_found_as_python_finds_them(numbers: list[int], skipped: list[bool]) -> None:
    hashes = np.array(numbers, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    repeated = np.array(skipped[: len(numbers)], np.uint8)
    mark_repeats(hashes, np.zeros(128, np.uint64), repeated)
    seen: set[int] = set()
    for number, skip, mark in zip(numbers, skipped, repeated.tolist(), strict=False):
        assert mark == (skip or number in seen)
        seen |= set() if skip else {number}


def test_a_browser_that_asks_first_is_told(live: Live) -> None:
    answer = live.ask("OPTIONS", PATH, Origin=ORIGIN, Access_Control_Request_Method="POST")
    assert (answer.status, answer.headers["Access-Control-Allow-Methods"]) == (204, "POST")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff\n\xfe", b'{"event": 1}', b'{"event": "view", "event": "view"}']
)
def test_nonsense_is_answered_alike_and_not_counted(live: Live, body: bytes) -> None:
    before = counted(live)
    assert beacon(live, body).status == 204
    assert counted(live) == before


def test_a_body_cannot_pose_as_several_beacons(live: Live) -> None:
    before = counted(live)
    forged = b'{"event": "view"}\nshop.example 1.2.3.4\nAgent\nde\n{"event": "view"}'
    assert beacon(live, forged).status == 204
    assert beacon(live, b'{"event":\n"view"}').status == 204
    assert counted(live) - before == 1


def test_a_large_body_is_refused(live: Live) -> None:
    assert beacon(live, b" " * (MAX_BEACON + 1)).status == 413


def request(body: bytes) -> bytes:
    lines = [f"POST {PATH} HTTP/1.1", "Host: x", f"Origin: {ORIGIN}", f"User-Agent: {AGENT}"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def test_beacons_come_together_or_in_pieces(live: Live) -> None:
    """Five in one packet; one byte by byte; one followed by a question of the interface."""
    before = counted(live)
    one = request(b'{"event": "view"}')
    with socket.create_connection((live.host, live.port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(5 * one)
        _expect(connection, b"HTTP/1.1 204", 5)
        for place in range(len(one)):
            connection.sendall(one[place : place + 1])
        _expect(connection, b"HTTP/1.1 204", 1)
        connection.sendall(one + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        _expect(connection, b'"status":"ok"', 1)
    assert counted(live) - before == 7


def _expect(connection: socket.socket, what: bytes, times: int) -> None:
    found = b""
    while found.count(what) < times:
        piece = connection.recv(65536)
        assert piece, found
        found += piece


def test_no_number_of_requests_is_kept(live: Live) -> None:
    beacon(live, {"url": "/", "event": "view"})
    live.get("/healthz")
    assert not [value for value in vars(live.running.state).values() if isinstance(value, int)]


def test_the_interface_tells_of_the_site(live: Live) -> None:
    assert live.get("/v1/queries").json["web"] == {"site": "shop.example", "source": "beacon"}


def test_without_a_site_there_is_no_beacon(tmp_path: Path) -> None:
    with served(write_config(tmp_path)) as plain:
        assert plain.post(b"{}", path=PATH).status == 404
        assert plain.get("/v1/queries").json["web"] is None


# The basket.


def basket(**web: Any) -> tuple[BeaconBuffer, list[Job]]:
    jobs: list[Job] = []
    config = WebConfig(site="shop.example", origins=(ORIGIN,), **web)
    return BeaconBuffer(config, QuotaTracker(Limits()), jobs.append, lambda: None, 0.2), jobs


def test_every_step_is_handed_over_in_one_size_however_many_came() -> None:
    beacons, jobs = basket()
    for count in (0, 1, 500):
        for _ in range(count):
            beacons.take({"user-agent": AGENT}, b"{}", "203.0.113.7")
        beacons._submit_buffered()
    assert [job.body is not None for job in jobs] == [True] * 3
    assert len({(len(job.body.data), job.body.reserved) for job in jobs if job.body is not None}) == 1


TRUSTED = (parse_network("10.0.0.0/8"), parse_network("::1"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "proxies", "address"),
    [
        ("198.51.100.1", "203.0.113.7", (), "198.51.100.1"),
        ("198.51.100.1", "203.0.113.7", TRUSTED, "198.51.100.1"),
        ("10.1.2.3", "203.0.113.7", TRUSTED, "203.0.113.7"),
        ("::ffff:10.1.2.3", "203.0.113.7", TRUSTED, "203.0.113.7"),
        ("::1", "6.6.6.6, 203.0.113.7, 10.0.0.2", TRUSTED, "203.0.113.7"),
        ("10.1.2.3", "203.0.113.7, nonsense", TRUSTED, "10.1.2.3"),
        ("10.1.2.3", "", TRUSTED, "10.1.2.3"),
    ],
)
def test_only_declared_proxies_are_believed(peer: str, forwarded: str, proxies: Any, address: str) -> None:
    beacons, _ = basket(trusted_proxies=proxies)
    assert beacons._address({"x-forwarded-for": forwarded}, peer) == address


SCHEMA = RowSchema(columns=BEACON, user="visitor")


def parsed(*beacons: tuple[str, str, str, bytes]) -> Any:
    text = b"".join(b"%b\n%b\n%b\n%b\n" % (*(part.encode() for part in parts), body) for *parts, body in beacons)
    return parse_beacons(bytearray(text + bytes(SPARE_BYTES)), len(text), SCHEMA)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.text(max_size=20).map(lambda text: json.dumps({"url": text}).encode())))
def test_whatever_is_sent_is_one_row_each(bodies: list[bytes]) -> None:
    """The oracle is Python's own parser of JSON, for those that are objects with a text."""
    bodies = [body.replace(b"\n", b" ") for body in bodies]
    rows = parsed(*[("s a", "Firefox", "en", body) for body in bodies])
    assert len(rows) == len(bodies)
    for place, body in enumerate(bodies):
        try:
            value = json.loads(body.decode())
        except ValueError:
            assert rows.codes[place]
            continue
        if isinstance(value, dict) and isinstance(value.get("url"), str):
            try:
                value["url"].encode()
            except UnicodeEncodeError:
                continue
            assert rows.columns.column("url")[place].as_py() == value["url"]


def _first_named(patterns: dict[str, str]) -> str:
    cases = " ".join(
        f"WHEN regexp_matches(coalesce(text, ''), '{pattern}') THEN '{name}'" for name, pattern in patterns.items()
    )
    return f"CASE {cases} ELSE '{OTHER}' END"


@pytest.mark.parametrize(
    ("agent", "browser", "system"),
    [
        ("(Windows NT 10.0; Win64; x64) Chrome/128.0.0.0 Safari/537.36", "Chrome", "Windows"),
        ("(Windows NT 10.0; Win64; x64) Chrome/128.0.0.0 Safari/537.36 Edg/128.0.0.0", "Edge", "Windows"),
        ("(Windows NT 10.0; Win64; x64) Chrome/127.0.0.0 Safari/537.36 OPR/113.0.0.0", "Opera", "Windows"),
        ("(Macintosh; Intel Mac OS X 14_6) Version/17.6 Safari/605.1.15", "Safari", "macOS"),
        ("(Macintosh; Intel Mac OS X 14.6; rv:129.0) Gecko/20100101 Firefox/129.0", "Firefox", "macOS"),
        ("(X11; Linux x86_64; rv:129.0) Gecko/20100101 Firefox/129.0", "Firefox", "Linux"),
        ("(X11; CrOS x86_64 14541.0.0) Chrome/128.0.0.0 Safari/537.36", "Chrome", "ChromeOS"),
        ("(iPhone; CPU iPhone OS 17_6 like Mac OS X) Version/17.6 Mobile/15E148 Safari/604.1", "Safari", "iOS"),
        ("(iPhone; CPU iPhone OS 17_6 like Mac OS X) CriOS/128.0.6613.34 Mobile/15E148 Safari/604.1", "Chrome", "iOS"),
        ("(iPad; CPU OS 17_6 like Mac OS X) FxiOS/129.0 Mobile/15E148 Safari/605.1.15", "Firefox", "iOS"),
        ("(Linux; Android 10; K) Chrome/128.0.0.0 Mobile Safari/537.36", "Chrome", "Android"),
        ("(Linux; Android 14; SM-S918B) SamsungBrowser/25.0 Chrome/121.0.0.0 Mobile", "Samsung Internet", "Android"),
        ("(Linux; Android 10; K) Chrome/128.0.0.0 Mobile Safari/537.36 EdgA/127.0.0.0", "Edge", "Android"),
        ("(Android 14; Mobile; rv:129.0) Gecko/129.0 Firefox/129.0", "Firefox", "Android"),
        ("(PlayStation; PlayStation 5/8.00)", "other", "other"),
    ],
)  # fmt: skip
def test_browsers_and_systems_as_they_name_themselves(agent: str, browser: str, system: str) -> None:
    texts = pa.array([f"Mozilla/5.0 {agent}"])
    named = [derived_column(name, texts, "example.org").to_pylist() for name in ("browser", "system")]
    assert named == [[browser], [system]]


TEXTS = st.lists(
    st.none() | st.text(max_size=20) | st.text("htps:/wexa.?&#=utm_campaign-DEAT", max_size=40),
    min_size=1,
    max_size=8,
)
ODD = ["https://www.Example.org/a?b", "http://x:80/", "/a/b?utm_campaign=m#x", "//", "/?#", "de-Latn-AT", "en-gb", "de"]
ODD += [
    "iPad Mobi",
    "Android 14 Mobile",
    "Android 14",
    "SmartTV",
    "X11; Linux",
    "Edg/1 Chrome/1",
    "CrOS X11",
    "/?utm_term=a&b",
    "",
]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_what_is_made_of_a_text_is_what_duckdb_makes_of_it(texts: list[str | None]) -> None:
    """The oracle is DuckDB, whose expressions are its own."""
    site = "example.org"
    given = [*texts, *ODD]
    host = r"coalesce(regexp_extract(lower(text), '^https?://(?:www\.)?([^/:?#]+)', 1), '')"
    expressions = {
        "path": "coalesce(regexp_extract(text, '^[^?#]+'), '')",
        "country": "coalesce(upper(regexp_extract(text, '^[A-Za-z]{2,3}(?:-[A-Za-z]{4})?-([A-Za-z]{2})', 1)), '')",
        "campaign": "coalesce(regexp_extract(text, '[?&]utm_campaign=([^&#]+)', 1), '')",
        "utm_term": "coalesce(regexp_extract(text, '[?&]utm_term=([^&#]+)', 1), '')",
        "browser": _first_named(BROWSERS),
        "system": _first_named(SYSTEMS),
        "section": "coalesce(regexp_extract(text, '^/[^/?#]*'), '')",
        "referrer_host": host,
        "entry": f"{host} <> '{site}'",
        "device": (
            f"CASE WHEN coalesce(text, '') = '' OR regexp_matches(text, '{OTHERS}') THEN 'other' "
            f"WHEN regexp_matches(text, '{TABLETS}') OR (contains(text, 'Android') AND NOT contains(text, 'Mobi')) "
            f"THEN 'tablet' WHEN regexp_matches(text, '{PHONES}') THEN 'mobile' ELSE 'desktop' END"
        ),
    }
    for name, sql in expressions.items():
        wanted = duckdb.sql(f"SELECT {sql} FROM (SELECT unnest($t) AS text)", params={"t": given}).fetchall()
        found = derived_column(name, pa.array(given, pa.string()), site).to_pylist()
        assert found == [value for (value,) in wanted], name


def test_ids_of_visitors_depend_on_site_address_and_agent_alone() -> None:
    heads = [("s a", "x"), ("s b", "x"), ("s a", "y"), ("t a", "x"), ("s a", "x")]
    rows = parsed(*[(first, agent, "en", b'{"url": "/%d"}' % n) for n, (first, agent) in enumerate(heads)])
    ids = rows.columns.column("visitor").to_pylist()
    assert len(set(ids[:4])) == 4
    assert ids[4] == ids[0]


def test_the_kept_list_of_robots_finds_all_its_instances() -> None:
    listed = pytest.importorskip("crawleruseragents").CRAWLER_USER_AGENTS_DATA
    instances = [agent for entry in listed for agent in entry["instances"]]
    people = [AGENT, "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Mobile/15E148 Safari/604.1", ""]
    assert known_bots().is_bot(pa.array(instances, pa.string())).all()
    assert not known_bots().is_bot(pa.array(people, pa.string())).any()


@given(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=6), st.lists(st.text("abcd", max_size=12)))
def test_words_are_found_as_python_finds_them(words: list[str], texts: list[str]) -> None:
    found = BotDetector(words).is_bot(pa.array(texts, pa.string()))
    np.testing.assert_array_equal(found, [any(word in text for word in words) for text in texts])


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"stream": {"name": "web", "columns": {"visitor": "int", "shoe_size": "int"}}}, "a beacon has the columns"),
        ({"store": {"directory": "s", "step": "none"}}, "not for beacons"),
        ({"web": {"site": "shop.example", "origins": ["shop.example"]}}, "origins must look like"),
        ({"web": {"site": "shop.example", "trusted_proxies": ["proxy"]}}, "trusted proxy must be"),
        ({"web": {"site": "shop.example", "counter": True, "source": "log"}}, "does not go with source"),
        (
            {"web": {"site": "shop.example", "counter": True, "origins": ["https://a.example", "https://b.example"]}},
            "exactly one of origins",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(change: dict[str, Any], refusal: str) -> None:
    base = {
        "web": {"site": "shop.example"},
        "stream": {"name": "web", "columns": {"visitor": "int"}},
        "query": [{"name": "q", "sql": "SELECT COUNT(*) FROM web", "epsilon": 1.0}],
    }
    with pytest.raises(ConfigError, match=refusal):
        read_config(base | change)


def test_one_origin_is_usual_with_a_counter_and_queries_need_it() -> None:
    query = {"name": "q", "sql": "SELECT COUNT(*) FROM web", "epsilon": 1.0, "window": "1 day", "contributions": 2}
    base = {
        "stream": {"name": "web", "columns": {"event": "string", "sender_counts": "string"}},
        "query": [{**query, "bounded_by": "sender", "counter": "view"}],
    }
    counted = read_config({**base, "web": {"site": "shop.example", "counter": True}})
    assert counted.web is not None
    assert counted.web.origins == ("https://shop.example",)
    assert sender_caps(counted.queries) == {("view", 86_400): 2}
    plan_all(counted)
    with pytest.raises(ConfigError, match="needs \\[web\\] counter = true"):
        plan_all(read_config({**base, "web": {"site": "shop.example"}}))
