"""Batches under the caller's numbers: once each, whoever repeats them, and in order."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import panstream
from panstream.client.transport import RetryPolicy
from panstream.errors import InvalidParameter, RequestRejected
from tests.server.server_live import Live, served, write_config

QUICK = RetryPolicy(max_attempts=4, sleep=lambda seconds: None)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with served(write_config(tmp_path_factory.mktemp("numbered"))) as server:
        yield server


def client(live: Live, producer: str | None, **settings: Any) -> panstream.Client:
    return panstream.Client(
        f"http://{live.host}:{live.port}", stream="visits", retry=QUICK, producer=producer, **settings
    )


def rows(count: int) -> dict[str, list[Any]]:
    return {"user": [f"u{n}" for n in range(count)], "region": ["north"] * count, "amount": [0.5] * count}


def test_each_number_counts_once(live: Live) -> None:
    before = live.rows()
    with client(live, "job-1", compression="zstd") as sender:
        assert sender.send_numbered(rows(10), 1)
        assert sender.send_numbered([], 2)
        assert not sender.send_numbered(rows(10), 1)
        assert (sender.sent.batches, sender.sent.rows, sender.sent.repeated) == (3, 20, 1)
    with client(live, "job-1") as restarted:
        assert not restarted.send_numbered([], 2)
        assert restarted.send_numbered(rows(5), 3)
    assert live.rows() - before == 15


def test_attempts_at_the_same_time_count_once(live: Live) -> None:
    before = live.rows()
    new: list[bool] = []

    def attempt() -> None:
        with client(live, "job-2") as sender:
            new.extend(sender.send_numbered(rows(3), number) for number in range(1, 6))

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(new), sum(new)) == (20, 5)
    assert live.rows() - before == 15


def test_a_producer_that_is_reopened_meanwhile_goes_on(live: Live) -> None:
    with client(live, "job-3") as sender:
        assert sender.send_numbered(rows(1), 1)
        live.opened("job-3")
        assert sender.send_numbered(rows(1), 2)


def test_a_missing_number_is_refused_before_anything_is_sent(live: Live) -> None:
    before = live.rows()
    with client(live, "job-4") as sender:
        with pytest.raises(InvalidParameter, match="sequence must be 1, the first number"):
            sender.send_numbered(rows(2), 2)
        for number in (0, -1, 2**63):
            with pytest.raises(InvalidParameter, match="sequence"):
                sender.send_numbered(rows(2), number)
        with pytest.raises(RequestRejected, match="column"):
            sender.send_numbered({"other": ["secret-user"]}, 1)
        assert sender.send_numbered(rows(2), 1)
    assert live.rows() - before == 2


def test_numbers_need_a_name_and_are_not_mixed(live: Live, tmp_path: Path) -> None:
    with client(live, None) as nameless, pytest.raises(InvalidParameter, match="needs producer"):
        nameless.send_numbered(rows(1), 1)
    with client(live, "job-5") as sender:
        assert sender.send_numbered(rows(1), 1)
        for call in (lambda: sender.send(rows(1)), lambda: sender.send_body(b"user\na\n", "text/csv")):
            with pytest.raises(InvalidParameter, match="two clients"):
                call()
    with client(live, "job-6") as sender:
        sender.send(rows(1))
        sender.flush()
        with pytest.raises(InvalidParameter, match="two clients"):
            sender.send_numbered(rows(1), 2)
    with client(live, "job-7", contributions={"1 day": 2}) as meter, pytest.raises(InvalidParameter, match="leave"):
        meter.send_numbered(rows(1), 1)


def test_awaited(live: Live) -> None:
    async def work() -> list[bool]:
        url = f"http://{live.host}:{live.port}"
        async with panstream.AsyncClient(url, stream="visits", producer="job-8") as sender:
            return [await sender.send_numbered(rows(1), 1) for _ in range(2)]

    assert asyncio.run(work()) == [True, False]
