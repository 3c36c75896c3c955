"""Merging bodies into one step changes nothing: same answers, same state, same refusals."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.producers import Sender
from panstream.server.auth import Limits, QuotaTracker
from panstream.server.errors import HttpError
from panstream.server.ingest.batch_applier import _join, _mergeable_prefix
from panstream.server.ingest.engine_thread import EngineThread
from panstream.server.ingest.jobs import Job
from panstream.server.ingest.request_bodies import RequestBody
from tests.server.server_live import EXACT, arrow, lines, write_config

CONFIG = f"""
[stream]
name = "visits"
user = "user"
{{stream}}
[stream.columns]
user = "string"
region = "string"
amount = "double"
{{more}}
[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM visits WHERE region <> 'nowhere'"
epsilon = {EXACT}
releases = 40
[[query]]
name = "total"
sql = "SELECT SUM(amount) FROM visits"
epsilon = {EXACT}
lower = 0.0
upper = 1.0
releases = 40
[store]
directory = "state"
step = "5 ms"
"""
Post = tuple[bytes, str, str | None, int]  # body, format, producer, sequence


def outcome(result: Any, refusal: BaseException | None) -> tuple[Any, ...]:
    if refusal is not None:
        assert isinstance(refusal, HttpError)
        return (refusal.code,)
    return (result.to_json(),)


def taken(directory: Path, text: str, posts: list[Post], *, together: bool) -> tuple[list[Any], list[float], list[int]]:
    """Return what becomes of posts, together or one by one, the answers of the queries, and how many were joined."""
    config = write_config(directory, text)
    sizes: list[int] = []
    ids: dict[str, Sender] = {}

    async def work() -> tuple[list[Any], list[float]]:
        worker = EngineThread(lambda: Engine(config))
        inner = worker._applier._apply_merged
        worker._applier._apply_merged = lambda work: sizes.append(len(work)) or inner(work)  # type: ignore[method-assign,func-returns-value]
        gate = QuotaTracker(Limits())
        loop = asyncio.get_running_loop()
        waiting = []
        worker._loop = loop  # which run will set, too late for what is refused before
        if together:
            worker._parsers.start()
        else:
            worker.run()
        for _, _, producer, _ in posts:
            if producer is not None and producer not in ids:
                ids[producer] = Sender("token", worker.engine.producers.open("token", producer, 100).id)
        for data, kind, producer, sequence in posts:
            body = RequestBody(gate, kind, "identity")
            body.append(data)
            answered: asyncio.Future[Any] = loop.create_future()
            sender = None if producer is None else ids[producer]
            job = Job(body, sender, sequence)
            job.on_done = lambda result, refusal, answered=answered: answered.set_result(outcome(result, refusal))  # type: ignore[misc]
            worker.submit(job)
            waiting.append(answered)
            if not together:
                await answered
        if together:
            await asyncio.to_thread(worker._parsers.stop)  # so that all of them wait
            worker._parsers.start = lambda: None  # type: ignore[method-assign]
            worker.run()
        found = [await answered for answered in waiting]
        values = [await worker.call(lambda engine, name=name: engine.release(name)) for name in ("rows", "total")]
        assert gate._memory == 0
        await worker.stop()
        return found, [float(value[0].record["value"]) for value in values]

    found, values = asyncio.run(work())
    return found, values, sizes


def some_posts(seed: int) -> list[Post]:
    chance = random.Random(seed)
    posts = []
    lasts: dict[str | None, int] = {}
    for number in range(14):
        rows = chance.randrange(0, 9)
        kind = chance.choice(["arrow", "arrow", "json"])
        if kind == "arrow":
            data = arrow(rows)
        else:
            texts = lines(rows).decode().splitlines(keepends=True)
            odd = ['{"user": 1\n', '{"user": "u", "region": "north"}\n', '{"region": "north", "amount": 1}\n']
            texts = [chance.choice(odd) if chance.random() < 0.3 else text for text in texts]
            data = "".join(texts).encode()
        refused = kind == "arrow" and chance.random() < 0.1
        producer = chance.choice([None, "a", "b", f"p{number}"])
        last = lasts.get(producer, 0)
        sequence = chance.randrange(1, last + 2)
        if kind == "arrow" and not refused:  # batches of text get producers of their own
            lasts[producer] = max(last, sequence)
        posts.append((b"nonsense" * 5 if refused else data, kind, producer, sequence))
    return posts


@pytest.mark.parametrize("seed", range(6))
def test_together_or_one_by_one(tmp_path: Path, seed: int) -> None:
    """Text is parsed by other threads in any order, so that only its rows are compared where producers repeat."""
    text = CONFIG.format(stream="", more="")
    posts = [post for post in some_posts(seed) if post[1] == "arrow"] + [
        (data, kind, f"text-{at}", 1) for at, (data, kind, _, _) in enumerate(some_posts(seed)) if kind == "json"
    ]
    one = taken(tmp_path / "one", text, posts, together=False)
    all_ = taken(tmp_path / "all", text, posts, together=True)
    assert all_[0] == one[0]
    assert all_[1] == pytest.approx(one[1], abs=0.2)
    assert max(all_[2]) > 3
    assert not one[2]


def test_only_alike_batches_are_joined() -> None:
    words = pa.RecordBatch.from_pydict({"user": ["a"], "region": ["x"]})
    codes = pa.RecordBatch.from_arrays([words.column(0), words.column(1).dictionary_encode()], ["user", "region"])
    kinds = [RowBatch(columns=each) for each in (words, words, codes)]
    assert _mergeable_prefix(kinds) == 2
    assert _mergeable_prefix(kinds[2:]) == 1
    long = RowBatch(columns=pa.RecordBatch.from_pydict({"user": range(200_000)}))
    assert _mergeable_prefix([long, long]) == 1


def test_dictionaries_are_joined_by_their_words() -> None:
    one, two = (pa.array(words).dictionary_encode() for words in (["x", "y"], ["z", "x", None]))
    batches = [RowBatch(columns=pa.RecordBatch.from_arrays([each], ["a"])) for each in (one, two)]
    assert _join(batches).columns.column(0).to_pylist() == ["x", "y", "z", "x", None]
