"""Every route of the interface, on a server that runs."""

import asyncio
import gzip
import http.client
import json
import math
import re
import threading
from csv import DictReader
from datetime import datetime
from types import SimpleNamespace

import pyarrow as pa
import pytest

from panstream.server.errors import CODES
from panstream.server.http.app import _Handlers
from panstream.server.http.openapi import describe
from panstream.server.service import Service
from tests.server.server_live import ARROW, CSV, LINES, Live, arrow, csv, lines
from tests.waiting import PATIENCE


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


@pytest.mark.parametrize("packing", ["identity", "gzip", "zstd"])
@pytest.mark.parametrize("kind", [CSV, LINES, ARROW])
def test_every_format_and_packing_counts_every_row(live: Live, kind: str, packing: str) -> None:
    before = live.rows()
    body = {CSV: csv, LINES: lines, ARROW: arrow}[kind](120)
    packed = {"identity": lambda data: data, "gzip": gzip.compress, "zstd": zstd}[packing](body)
    answer = live.post(packed, kind, Content_Encoding=packing)
    assert answer.status == 200
    nothing = {"count": 0, "rows": []}
    assert answer.json == {"new": True, "rows": 120, "skipped": nothing, "late": nothing}
    assert live.rows() - before == 120


def test_a_stream_of_several_arrow_batches_is_one_body(live: Live) -> None:
    before = live.rows()
    assert live.post(arrow(100, batches=7), ARROW).json["rows"] == 100
    assert live.rows() - before == 100


def test_a_sequence_counts_once(live: Live) -> None:
    before = live.rows()
    one = live.opened("gate-7.0")
    two = live.opened("gate-7.1")
    for number in ("1", "2"):
        assert live.post(lines(10), Panstream_Producer=one, Panstream_Sequence=number).json["new"] is True
    for number in ("1", "2"):
        assert live.post(lines(10), Panstream_Producer=one, Panstream_Sequence=number).json["new"] is False
    assert live.post(lines(10), Panstream_Producer=two, Panstream_Sequence="1").json["new"] is True
    assert live.rows() - before == 30


def test_bad_rows_are_skipped_and_told_by_number(live: Live) -> None:
    before = live.rows()
    body = lines(2) + b'{"user": "x", "region": 5}\n[1]\n\xff\xfe\n' + lines(1)
    assert live.post(body).json["skipped"] == {"count": 3, "rows": [3, 4, 5]}
    text = b"user,region,amount\na,north,1\nb,north\nc,north,1e999\n"
    assert live.post(text, CSV).json["skipped"] == {"count": 2, "rows": [2, 3]}
    assert live.rows() - before == 4


def test_no_rows_are_fine(live: Live) -> None:
    for body, kind in ((b"", LINES), (b"", CSV), (b"user,region,amount\n", CSV), (arrow(0), ARROW)):
        answer = live.post(body, kind)
        assert (answer.status, answer.json["rows"]) == (200, 0)


def test_queries_and_ledger(live: Live) -> None:
    found = live.get("/v1/queries").json
    assert found["stream"]["columns"] == {"user": "string", "region": "string", "amount": "double"}
    by_name = {query["name"]: query for query in found["queries"]}
    assert by_name["by_region"]["series"] == ["by_region [region=north]", "by_region [region=south]"]
    assert [by_name[name]["on_demand"] for name in ("rows", "people", "by_region")] == [True, True, False]
    ledger = live.get("/v1/ledger").json
    totals = {total["unit"]: (total["epsilon"], total["limit"], total["bounded"]) for total in ledger["totals"]}
    assert totals == {"event": (202.0, 500.0, True), "user": ("inf", None, False)}
    event, user = (next(total for total in ledger["totals"] if total["unit"] == unit) for unit in ("event", "user"))
    assert {part["name"]: part["epsilon"] for part in event["parts"]} == {
        "rows": 200.0,
        "people": 1.0,
        "by_region": 1.0,
    }
    assert "'rows' protects one event" in user["reason"]
    metrics = live.get("/metrics").body.decode()
    assert 'panstream_ledger_epsilon{adjacency="add-remove",unit="event",window=""} 202.0' in metrics
    assert 'panstream_ledger_epsilon{adjacency="add-remove",unit="user",window=""} +Inf' in metrics
    assert 'panstream_ledger_limit{adjacency="add-remove",unit="event",window=""} 500.0' in metrics


def test_release_conflict_and_budget(live: Live) -> None:
    assert live.ask("POST", "/v1/queries/by_region/release").code == "conflict"
    assert live.ask("POST", "/v1/queries/none/release").code == "not_found"
    first = live.ask("POST", "/v1/queries/people/release").json["releases"]
    assert [release["number"] for release in first] == [1]
    assert live.ask("POST", "/v1/queries/people/release").code == "budget_exhausted"
    assert live.get("/v1/releases?query=people").json["releases"] == first
    assert live.get("/v1/releases?query=people&since=2999-01-01T00:00:00Z").json["releases"] == []


def test_releases_are_written_as_csv_too(live: Live) -> None:
    live.rows()
    answer = live.get("/v1/releases?query=rows&format=csv&limit=3")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    found = list(DictReader(answer.body.decode().splitlines()))
    shown = live.get("/v1/releases?query=rows&limit=3").json["releases"]
    assert [(row["query"], int(row["number"]), row["time"]) for row in found] == [
        (each["series"], each["number"], each["time"]) for each in shown
    ]
    assert [[float(row["low"]), float(row["high"])] for row in found] == [each["interval"] for each in shown]
    refused = live.get("/v1/releases?format=xml")
    assert (refused.status, refused.json["error"]["message"]) == (400, "format must be json or csv")


def test_latest_releases_come_oldest_first(live: Live) -> None:
    live.rows()
    live.rows()
    numbers = [release["number"] for release in live.get("/v1/releases?query=rows&limit=2").json["releases"]]
    assert numbers[1] == numbers[0] + 1
    assert numbers[1] == max(release["number"] for release in live.get("/v1/releases?query=rows").json["releases"])


def test_intrusions_show_their_price_first(live: Live) -> None:
    price = live.get("/v1/intrusions").json
    assert price["done"] is False
    kind = "application/json"
    assert live.post(b'{"confirm": false}', kind, "/v1/intrusions").json == price
    assert live.post(b'{"confirm": false, "copied_at": null}', kind, "/v1/intrusions").json == price
    done = live.post(b'{"confirm": true}', kind, "/v1/intrusions").json
    assert done["done"] is True
    assert price["states"] == []
    assert {state["query"] for state in done["states"]} == {row["query"] for row in done["price"]}
    assert all(state["refreshed"] in (True, False) for state in done["states"])
    assert len(done["announced"]) == len(price["announced"]) + 1
    assert done["announced"][-1]["copied"] is None
    assert all(state["covered"] == state["verdict"].startswith("covered") for state in done["states"])
    assert live.get("/v1/ledger").json["intrusions"] == done["announced"]
    for bad, reason in (
        (b'{"confirm": true, "copied_at": "soon"}', "copied_at must be a date and time with a time zone"),
        (b'{"confirm": true, "copied_at": "2999-01-01T00:00:00Z"}', "is in the future"),
        (b'{"confirm": true, "copied_at": "2026-01-01T00:00:00Z", "just_now": true}', "not both"),
        (b'{"confirm": true, "copied_at": 7}', "the body must be"),
        (b'{"confirm": true, "just_now": 1}', "the body must be"),
    ):
        refused = live.post(bad, kind, "/v1/intrusions")
        assert (refused.code, reason in refused.json["error"]["message"]) == ("bad_request", True)
    assert live.get("/v1/ledger").json["intrusions"] == done["announced"], "nothing is recorded"
    dated = live.post(b'{"confirm": true, "copied_at": "2001-01-01T00:00:00Z"}', kind, "/v1/intrusions").json
    assert {state["verdict"] for state in dated["states"]} == {"covered: it began later, so it was not copied"}
    assert dated["announced"][-1]["copied"] == "2001-01-01T00:00:00Z"
    for body in (b"", b"{}", b"[]", b"true", b'{"confirm": 1}', b'{"confirm": true, "x": 1}', b"[" * 900, b"\xff"):
        assert live.post(body, kind, "/v1/intrusions").code == "bad_request"
    assert live.post(b" " * 2000, kind, "/v1/intrusions").code == "too_large"
    assert live.post(b'{"confirm": true}', "text/plain", "/v1/intrusions").code == "unsupported_media_type"


def test_metrics_tell_only_what_is_public(live: Live) -> None:
    text = live.get("/metrics").body.decode()
    families = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert families == {
        "panstream_info",
        "panstream_failed",
        "panstream_waiting",
        "panstream_intrusions_total",
        "panstream_releases_total",
        "panstream_epsilon",
        "panstream_ledger_epsilon",
        "panstream_ledger_limit",
        "panstream_person_delta",
        "panstream_person_epsilon",
        "panstream_person_period_seconds",
        "panstream_answer",
        "panstream_answer_low",
        "panstream_answer_high",
        "panstream_answer_time_seconds",
    }


def test_metrics_have_the_latest_answers(live: Live) -> None:
    live.rows()
    shown = live.get("/v1/releases").json["releases"]
    latest = {each["series"]: each for each in shown}
    text = live.get("/metrics").body.decode()
    found = re.findall(r'^panstream_answer(\w*)\{group="([^"]*)",query="([^"]*)"\} (\S+)$', text, re.MULTILINE)
    figures: dict[str, dict[str, float]] = {}
    for name, group, query, value in found:
        figures.setdefault(f"{query} [{group}]" if group else query, {})[name] = float(value)
    assert set(figures) == set(latest)
    for series, each in latest.items():
        low, high = each["interval"]
        time = datetime.fromisoformat(each["time"]).timestamp()
        metrics = {"": each["value"], "_low": low, "_high": high, "_time_seconds": time}
        open_ends = {"_low": -math.inf, "_high": math.inf, "": math.nan}
        assert figures[series] == pytest.approx(
            {name: open_ends[name] if value is None else value for name, value in metrics.items()}, nan_ok=True
        )


def test_health_and_description(live: Live) -> None:
    assert live.get("/healthz").json["status"] == "ok"
    assert live.get("/openapi.json").json == json.loads(json.dumps(describe()))
    assert "server" not in {name.lower() for name in live.get("/healthz").headers}


def test_an_event_stream_has_the_past_and_what_comes(live: Live) -> None:
    live.rows()
    connection = http.client.HTTPConnection(live.host, live.port, timeout=PATIENCE)
    connection.request("GET", "/v1/releases?query=rows&limit=1", headers={"Accept": "text/event-stream"})
    response = connection.getresponse()
    assert response.headers["Content-Type"].startswith("text/event-stream")

    def event() -> dict[str, str]:
        fields: dict[str, str] = {}
        while not fields.get("event"):
            fields = {}
            while line := response.readline().decode().rstrip("\n"):
                name, _, value = line.partition(": ")
                fields[name] = value
        return fields

    past = event()
    threading.Thread(target=live.rows).start()
    new = event()
    assert json.loads(new["data"])["number"] == json.loads(past["data"])["number"] + 1
    assert new["event"] == "release"
    assert new["id"] == json.loads(new["data"])["time"]
    connection.close()


def test_every_code_is_described() -> None:
    described = {
        status
        for path in describe()["paths"].values()
        for operation in path.values()
        for status in operation["responses"]
    }
    assert {str(status) for status, _ in CODES.values()} - described == {"405"}  # no operation answers it


@pytest.mark.parametrize(
    ("failed", "stopping", "jumped", "status", "code"),
    [
        (False, False, False, "ok", 200),
        (False, False, True, "waiting", 200),
        (False, True, True, "stopping", 503),
        (True, True, True, "failed", 503),
    ],
)
def test_a_clock_that_jumped_shows_in_the_health(
    failed: bool, stopping: bool, jumped: bool, status: str, code: int
) -> None:
    worker = SimpleNamespace(failed=failed, engine=SimpleNamespace(jumped=jumped))
    service = SimpleNamespace(worker=worker, stopping=stopping, _evidence=lambda: None)
    service.health = lambda: Service.health(service)  # type: ignore[arg-type]
    response = asyncio.run(_Handlers(service, None).health(None))  # type: ignore[arg-type]
    assert (json.loads(response.body)["status"], response.status_code) == (status, code)
