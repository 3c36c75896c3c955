"""Batches in parts: all of them count, once, or none; what waits is bounded, and wiped whatever happens."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from panstream.engine.config.config import Config
from panstream.server.auth import Limits
from tests.server.server_live import (
    ARROW,
    CSV,
    EVENTS,
    LINES,
    Answer,
    Live,
    arrow,
    csv,
    lines,
    served,
    until,
    write_config,
)

COMMIT = EVENTS.replace("events", "commit")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return write_config(tmp_path)


@pytest.fixture
def live(config: Config) -> Iterator[Live]:
    with served(config) as server:
        yield server


def area(live: Live) -> Any:
    return live.running._service.staging


def part(live: Live, producer: str, label: str, body: bytes, kind: str = LINES, number: int = 1) -> Answer:
    return live.post(body, kind, Panstream_Producer=producer, Panstream_Sequence=str(number), Panstream_Part=label)


def commit(live: Live, producer: str, parts: Any, number: int = 1, method: str = "POST") -> Answer:
    return live.ask(
        method,
        COMMIT,
        json.dumps({"parts": parts}),
        Content_Type="application/json",
        Panstream_Producer=producer,
        Panstream_Sequence=str(number),
    )


def reserved(live: Live) -> int:
    return int(live.running.state.fast_path.quotas._memory)


def test_parts_of_every_format_count_as_one_batch(live: Live) -> None:
    producer = live.opened("job")
    bodies = [(lines(3), LINES), (csv(4), CSV), (arrow(5), ARROW), (b"", LINES), (arrow(0), ARROW)]
    for number, (body, kind) in enumerate(bodies, 1):
        answer = part(live, producer, f"{number}/5", body, kind)
        assert (answer.status, answer.json["new"]) == (200, True)
    assert [p["last"] for p in live.get("/v1/producers").json["producers"]] == [0]
    assert live.rows() == 0
    answer = commit(live, producer, 5)
    assert (answer.status, answer.json["new"], answer.json["rows"]) == (200, True, 12)
    assert [p["last"] for p in live.get("/v1/producers").json["producers"]] == [1]
    assert live.rows() == 12
    assert len(area(live)) == 0
    assert reserved(live) == 0


def test_the_outcome_names_bad_rows_as_if_the_parts_were_one_body(live: Live) -> None:
    producer = live.opened("job")
    bad = b'{"user": 7, "region": "north", "amount": 1}\n'
    part(live, producer, "2/2", lines(2) + bad)
    part(live, producer, "1/2", bad + lines(3))
    answer = commit(live, producer, 2).json
    assert (answer["rows"], answer["skipped"]) == (7, {"count": 2, "rows": [1, 7]})


def test_a_commit_and_parts_that_are_sent_again_have_no_effect(live: Live) -> None:
    producer = live.opened("job")
    for _ in range(3):
        part(live, producer, "1/1", lines(10))  # replaces itself
    assert len(area(live)) == 1
    assert commit(live, producer, 1).json["new"]
    for _ in range(2):
        assert commit(live, producer, 1).json["new"] is False
    assert part(live, producer, "1/1", lines(10)).json["new"] is False
    assert len(area(live)) == 0
    assert commit(live, producer, 0, number=2).json["new"]  # an empty batch
    assert live.rows() == 10


def test_commits_at_the_same_time_count_once(live: Live) -> None:
    producer = live.opened("job")
    part(live, producer, "1/1", lines(50))
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda: answers.append(commit(live, producer, 1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200] * 8
    assert live.rows() == 50


def test_two_senders_stage_parts_of_one_batch_and_the_commit_names_what_counts(live: Live) -> None:
    producer = live.opened("job")

    def send(first: int) -> None:
        for number in range(first, 20, 2):
            assert part(live, producer, f"{4096 * number + 1}/*", lines(3, 100 * number)).status == 200

    threads = [threading.Thread(target=send, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(area(live)) == 20
    assert commit(live, producer, [4096 * number + 1 for number in range(5, 15)]).json["rows"] == 30
    assert len(area(live)) == 0  # those of attempts that failed are wiped
    assert live.rows() == 30


def test_a_missing_part_and_then_all_of_them(live: Live) -> None:
    producer = live.opened("job")
    part(live, producer, "1/3", lines(1))
    part(live, producer, "3/3", lines(1))
    answer = commit(live, producer, 3)
    assert (answer.status, answer.code) == (409, "missing_parts")
    assert "1 parts of this batch are not here: 2;" in answer.json["error"]["message"]
    part(live, producer, "2/3", lines(1))
    assert commit(live, producer, 3).status == 200
    assert live.rows() == 3


def test_who_opens_the_producer_anew_drops_the_parts_of_the_other(live: Live) -> None:
    first = live.opened("job")
    part(live, first, "1/2", lines(10))
    second = live.opened("job")
    assert len(area(live)) == 0
    assert part(live, first, "2/2", lines(10)).code == "unknown_producer"
    assert commit(live, first, 2).code == "unknown_producer"
    part(live, second, "1/1", lines(7))
    assert commit(live, second, 1).json["rows"] == 7
    part(live, second, "1/1", lines(7), number=2)
    live.ask("DELETE", "/v1/producers/job")
    assert len(area(live)) == 0
    assert (live.rows(), reserved(live)) == (7, 0)


def test_after_a_restart_the_parts_are_gone_and_what_counted_is_known(config: Config) -> None:
    with served(config) as live:
        producer = live.opened("job")
        part(live, producer, "1/1", lines(10))
        commit(live, producer, 1)
        part(live, producer, "1/1", lines(5), number=2)
        staging = area(live)
    assert len(staging) == 0
    with served(config) as live:
        assert commit(live, producer, 1).json["new"] is False
        assert commit(live, producer, 1, number=2).code == "missing_parts"
        part(live, producer, "1/1", lines(5), number=2)
        assert commit(live, producer, 1, number=2).json["new"]
        assert live.rows() == 15


@pytest.mark.parametrize("ending", ["aborted", "timed out", "stopped", "next batch"])
def test_what_waits_is_wiped(config: Config, ending: str) -> None:
    with served(config, Limits(staged_time=0.2 if ending == "timed out" else 600)) as live:
        producer = live.opened("job")
        part(live, producer, "1/2", arrow(1000), ARROW)
        staging = area(live)
        jobs = [job for batch in staging._batches.values() for job in batch.parts.values()]
        if ending == "aborted":
            assert commit(live, producer, 0, method="DELETE").status == 200
        elif ending == "timed out":
            until(lambda: len(staging) == 0)
        elif ending == "next batch":
            assert live.post(lines(1), Panstream_Producer=producer, Panstream_Sequence="1").status == 200
            part(live, producer, "1/1", lines(1), number=2)
            commit(live, producer, 1, number=2)
        if ending != "stopped":
            assert reserved(live) == 0
    assert len(staging) == 0
    for job in jobs:
        assert job.rows is None
        assert job.body is not None
        assert not any(job.body.data)


def test_over_the_cap(config: Config) -> None:
    with served(config, Limits(staged=600_000)) as live:
        one = live.opened("one")
        other = live.opened("other")
        sent = 0
        while (answer := part(live, one, f"{sent + 1}/*", lines(500, 500 * sent))).status == 200:
            sent += 1
        assert (answer.status, answer.code) == (413, "too_large")
        assert "--max-staged" in answer.json["error"]["message"]
        assert 1 < sent < 20
        refused = part(live, other, "1/*", lines(500))
        assert (refused.status, refused.code, refused.headers["Retry-After"]) == (429, "rate_limited", "1")
        assert commit(live, one, list(range(1, sent + 1))).json["rows"] == 500 * sent
        assert part(live, other, "1/*", lines(500)).status == 200
        commit(live, other, 0, method="DELETE")
        assert reserved(live) == 0


def test_small_parts_count_against_the_cap_and_a_refused_batch_leaves_nothing(config: Config) -> None:
    with served(config, Limits(staged=1_000_000)) as live:
        one = live.opened("one")
        other = live.opened("other")
        sent = 0
        while (answer := part(live, one, f"{sent + 1}/*", lines(1, sent))).status == 200:
            sent += 1
        assert answer.status == 413
        assert 1 < sent < 50, "a part of one row counts with the memory that its rows may take"
        assert part(live, other, "1/*", lines(1)).status == 429
        assert len(area(live)._batches) == 1


def test_requests_that_are_refused(live: Live) -> None:
    producer = live.opened("job")
    for label in ("0/2", "3/2", "1", "1/10001", "x/*", "1/2/3", "99999999999999999999/*"):
        assert part(live, producer, label, lines(1)).code == "bad_request"
    assert live.post(lines(1), Panstream_Part="1/1").code == "bad_request"
    assert part(live, producer, "1/1", lines(1), number=3).code == "sequence_gap"
    assert part(live, producer, "1/1", b"\xff", ARROW).code == "bad_body"
    for parts in (-1, 10_001, [1, 1], [0], ["1"], {}, None, True, [True], 1.5):
        assert commit(live, producer, parts).code == "bad_request"
    part(live, producer, "1/2", lines(1))
    assert part(live, producer, "2/3", lines(1)).code == "bad_request"
    assert commit(live, producer, 2, number=2).code == "sequence_gap"
    assert live.post(b"{}", "text/plain", COMMIT, Panstream_Producer=producer, Panstream_Sequence="1").status == 415
    other = COMMIT.replace("visits", "other")
    assert live.ask("DELETE", other, Panstream_Producer=producer, Panstream_Sequence="1").status == 404
    assert len(area(live)) == 1
    assert reserved(live) > 0
    assert live.rows() == 0
