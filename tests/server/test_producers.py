"""Producers over HTTP: bound to a token, in order, closed or retired, and never counted twice."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.producers import ROUND, Sender
from panstream.engine.runtime.selector import Selector
from panstream.errors import ProducerFenced
from panstream.server.auth import Limits, create_token
from tests.server.server_live import ARROW, LINES, Live, arrow, lines, served, write_config


def sent(server: Live, producer: str, number: int, count: int = 5, kind: str = LINES, **headers: str) -> object:
    """Return whether the batch was new, or the code of its refusal."""
    body = lines(count) if kind == LINES else arrow(count)
    answer = server.post(body, kind, Panstream_Producer=producer, Panstream_Sequence=str(number), **headers)
    return answer.json["new"] if answer.status == 200 else answer.code


@pytest.mark.slow
def test_nobody_can_silence_another_tokens_producer(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    one, other = ({"Authorization": f"Bearer {create_token(file, name, ['ingest'])}"} for name in ("one", "other"))
    admin = {"Authorization": f"Bearer {create_token(file, 'admin', ['admin'])}"}
    with served(write_config(tmp_path), tokens=file) as server:
        mine = server.opened("gate", **one)
        assert sent(server, mine, 1, **one) is True
        for kind in (LINES, ARROW):
            assert sent(server, mine, 2**62, kind=kind, **other) == "unknown_producer"
            assert sent(server, mine, 2**62, kind=kind, **one) == "sequence_gap"
            assert sent(server, mine, 1 + Limits().window + 1, kind=kind, **one) == "sequence_gap"
        theirs = server.opened("gate", **other)  # the same name, another producer
        assert sent(server, theirs, 1, **other) is True
        assert sent(server, mine, 2, **one) is True
        assert server.get("/v1/producers", **one).json == {
            "producers": [{"name": "gate", "id": mine, "last": 2, "in_flight": 32}]
        }
        assert server.get("/v1/producers/gate", **other).json == {
            "name": "gate",
            "id": theirs,
            "last": 1,
            "in_flight": 32,
        }
        assert server.ask("DELETE", "/v1/producers/gate", **other).json["last"] == 1
        assert server.get("/v1/producers/gate", **other).code == "not_found"
        assert sent(server, mine, 3, **one) is True
        answer = server.ask("POST", "/v1/queries/rows/release", **admin)
        assert round(answer.json["releases"][0]["value"]) == 4 * 5


@pytest.mark.slow
def test_new_names_evict_nobody(tmp_path: Path) -> None:
    with served(write_config(tmp_path), Limits(producers=4)) as server:
        kept = server.opened("gate")
        assert sent(server, kept, 1) is True
        statuses = [server.ask("POST", f"/v1/producers/new-{number}").status for number in range(10)]
        assert statuses == [200] * 3 + [409] * 7
        refused = server.ask("POST", "/v1/producers/another")
        assert refused.code == "too_many_producers"
        assert "close some" in refused.json["error"]["message"]
        assert sent(server, kept, 1) is False
        assert server.ask("DELETE", "/v1/producers/new-0").status == 200
        assert server.ask("POST", "/v1/producers/another").status == 200
        assert server.rows() == 5


@pytest.mark.slow
def test_what_was_closed_is_refused_not_counted_again(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    with served(config) as server:
        gone, moved, kept = (server.opened(name) for name in ("gone", "moved", "kept"))
        assert [sent(server, each, 1) for each in (gone, moved, kept)] == [True] * 3
        assert server.ask("DELETE", "/v1/producers/gone").status == 200
        again = server.opened("moved")
        assert server.opened("gone") != gone
    with served(config) as server:  # all of it is durable
        assert sent(server, gone, 1) == "unknown_producer"
        assert sent(server, moved, 1) == "unknown_producer"
        assert sent(server, again, 1) is False
        assert sent(server, again, 2) is True
        assert sent(server, kept, 1) is False
        assert server.rows() == 4 * 5


def test_unused_producers_are_retired_by_the_clock(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    now = [1e9]
    with Engine(config, clock=lambda: now[0]) as engine, Selector(config) as select:
        idle, busy = (Sender("t", engine.producers.open("t", name, 9).id) for name in ("idle", "busy"))

        def take(sender: Sender, number: int) -> bool:
            place = engine.producers.position_key(sender)
            rows = pa.RecordBatch.from_pydict({"user": ["a"], "region": ["north"], "amount": [1.0]})
            selected = select(RowBatch(columns=rows))
            return engine.apply(replace(selected, producer=place, sequence=number)).new

        assert [take(each, 1) for each in (idle, busy)] == [True, True]
        for number in (2, 3, 4):
            engine.advance()
            now[0] += ROUND * 86_400
            assert take(busy, number) is True
        engine.advance()
        with pytest.raises(ProducerFenced):
            take(idle, 1)
        assert take(busy, 4) is False
        assert [each.name for each in engine.producers.all_of("t")] == ["busy"]
        assert [*engine.positions()] == [engine.producers.find("t", "busy").position_key]


@pytest.mark.slow
def test_odd_names(tmp_path: Path) -> None:
    with served(write_config(tmp_path)) as server:
        for name in ("a%20b", "a%40b", "x" * 65, "%C3%A9"):
            assert server.ask("POST", f"/v1/producers/{name}").code == "bad_request"
            assert server.get(f"/v1/producers/{name}").code == "not_found"
            assert server.ask("DELETE", f"/v1/producers/{name}").code == "not_found"
