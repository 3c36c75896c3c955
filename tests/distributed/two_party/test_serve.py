"""`panstream serve` on two machines: rows over HTTP, answers, claims, announced intrusions, and a machine that is
gone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.distributed.two_party.session import open_engine
from panstream.engine.config.config import read_config
from panstream.errors import TwoPartyError
from tests.distributed.two_party.test_steps import settings
from tests.server.server_live import CSV, Live, served

EVENTS = "/v1/streams/s/events"


@pytest.fixture
def live(tmp_path: Path, transport: InProcessTwoPartyTransport) -> Iterator[Live]:
    config = read_config(settings(tmp_path))
    engine = functools.partial(open_engine, config, transport=transport, zero_noise=True)
    with served(config, engine=engine) as server:
        yield server


def body(first: int, last: int) -> bytes:
    return ("user,value\n" + "".join(f"{user},1.0\n" for user in range(first, last))).encode()


def test_rows_come_over_http_and_answers_come_back(live: Live, transport: InProcessTwoPartyTransport) -> None:
    """Batches that are sent again count once; a failing machine makes them wait, and loses none."""
    producer = live.opened("till")
    sent = {"Panstream_Producer": producer}
    for number in (1, 2, 2):
        first = 40 * (number - 1)
        taken = live.post(body(first, first + 60), CSV, EVENTS, Panstream_Sequence=str(number), **sent)
        assert taken.status == 200, taken.body
    answer = transport.second.answer
    transport.second.answer = _gone  # type: ignore[method-assign]
    refused = live.post(body(100, 120), CSV, EVENTS, Panstream_Sequence="3", **sent)
    assert refused.status in (500, 503), refused.body
    transport.second.answer = answer  # type: ignore[method-assign]
    while (again := live.post(body(100, 120), CSV, EVENTS, Panstream_Sequence="3", **sent)).status != 200:
        assert again.status in (500, 503), again.body
    asked = {name: live.ask("POST", f"/v1/queries/{name}/release").json for name in ("share", "count")}
    found = {name: reply["releases"][0]["value"] for name, reply in asked.items()}
    assert found == {"share": pytest.approx(120 / 300), "count": 140.0}
    claim = next(each for each in live.get("/v1/queries").json["queries"] if each["name"] == "share")["claim"]
    assert claim["intrusions"] == {"unannounced": "any", "announced": 0, "per_phase": False, "machines": 2}
    assert "X25519" in claim["assumption"]


def test_announcing_an_intrusion_blinds_the_shares(live: Live, transport: InProcessTwoPartyTransport) -> None:
    assert live.post(body(0, 50), CSV, EVENTS).status == 200
    before = transport.first._party.shares["0/0/share"].cells.copy()
    step = transport.first.step
    priced = live.get("/v1/intrusions").json["price"]
    assert all(each["refreshable"] and "any number of copies of one machine" in each["text"] for each in priced)
    done = live.ask("POST", "/v1/intrusions", b'{"confirm": true}', Content_Type="application/json")
    assert done.status == 200, done.body
    assert all(state["refreshed"] and state["covered"] for state in done.json["states"])
    assert {state["verdict"] for state in done.json["states"]} == {
        "covered, unless both machines were copied in one epoch"
    }
    assert transport.first.step > step
    assert (before != transport.first._party.shares["0/0/share"].cells).any()


def _gone(data: bytearray) -> bytearray:
    raise TwoPartyError("machine b: it cannot be reached (ConnectionRefusedError)")
