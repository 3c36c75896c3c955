"""A failing body is refused by itself; an engine's thread that ends refuses pending requests and stops the server.

Every wait is bounded: what would hang fails here instead.
"""

import contextlib
import gzip
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest

from panstream.engine.config.config import Config
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.selector import Selector
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import PanstreamError
from panstream.server.auth import Limits
from panstream.server.errors import HttpError
from panstream.server.ingest import batch_applier as applying
from panstream.server.ingest import engine_thread as worker
from panstream.server.ingest import jobs
from panstream.server.server import ServerSettings, make_server
from tests.server.server_live import ARROW, AS_THEY_COME, CONFIG, EVENTS, LINES, Live, lines, served, write_config
from tests.waiting import PATIENCE, until

MARK = "x" * 50  # a region that makes a body fail where a test says so


def stream(table: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def together(
    server: Live,
    bodies: list[tuple[bytes, str]],
    ids: list[str] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Send bodies so that they wait together: a call holds the engine's thread until all of them are parsed."""
    held = threading.Event()
    go_on = threading.Event()
    queue = server.running.worker._jobs
    ids = ids or [server.opened(f"p{at}") for at in range(len(bodies))]

    def hold(engine: Engine) -> None:
        held.set()
        assert go_on.wait(PATIENCE)

    job = jobs.Job(call=hold)
    queue.put(job)
    assert held.wait(PATIENCE)
    meanwhile()
    answers: list[Any] = [None] * len(bodies)

    def send(at: int) -> None:
        body, kind = bodies[at]
        answers[at] = server.post(body, kind, EVENTS, Panstream_Producer=ids[at], Panstream_Sequence="1")

    senders = [threading.Thread(target=send, args=[at], daemon=True) for at in range(len(bodies))]
    for at, sender in enumerate(senders):
        sender.start()
        until(lambda least=at + 1: queue.qsize() + sum(answer is not None for answer in answers) >= least)  # type: ignore[misc]
    go_on.set()
    for sender in senders:
        sender.join(PATIENCE)
        assert not sender.is_alive(), "a sender hangs"
    return answers


def words(regions: list[str | None]) -> bytes:
    """Rows whose regions are a dictionary with a word that is missing."""
    coded = pa.DictionaryArray.from_arrays(pa.array([*range(len(regions))], pa.int8()), pa.array(regions))
    users = [f"u{at}" for at in range(len(regions))]
    amounts = [1.0] * len(regions)
    return stream(pa.table({"user": users, "region": coded, "amount": amounts}))


@pytest.mark.slow
def test_dictionaries_with_nulls_hurt_nobody(tmp_path: Path) -> None:
    with served(write_config(tmp_path)) as server:
        bodies = [(words(["north", None]), ARROW), (words([None, "south"]), ARROW), (words(["north", "south"]), ARROW)]
        answers = together(server, bodies)
        assert [answer.status for answer in answers] == [200] * 3
        assert server.get("/healthz").json["status"] == "ok"
        assert server.rows() == 4  # a region that is missing is not different from nowhere


@pytest.mark.slow
def test_a_join_beyond_what_offsets_hold_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow refuses to join words beyond 2 GiB; here beyond what fits in a test."""

    def refuse(batches: Any) -> Any:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    monkeypatch.setattr(applying, "_join", refuse)
    with served(write_config(tmp_path)) as server:
        answers = together(server, [(lines(3), LINES), (lines(4), LINES)])
        assert [answer.status for answer in answers] == [200, 200]
        assert server.rows() == 7


@pytest.mark.slow
def test_bodies_that_unpack_beyond_the_gate_are_refused_alone(tmp_path: Path) -> None:
    bomb = gzip.compress(lines(1) * 2_000_000)
    limits = Limits(unpacked=1 << 20, memory=8 << 20)
    with served(write_config(tmp_path), limits) as server:
        answer = server.ask("POST", EVENTS, bomb, Content_Type=LINES, Content_Encoding="gzip")
        assert answer.code == "too_large"
        assert server.post(lines(5)).status == 200
        assert server.rows() == 5
        until(lambda: not server.running.worker._open)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dictionary", "dictionary of views", "views"])
def test_words_that_stand_once_and_are_used_often_are_not_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A word of 1 kB that is the user of 30,000 rows: 30 MB from 0.1 MB. It is refused before anything is converted."""
    if form == "views":
        view = np.array([1000, int.from_bytes(b"uuuu", "little"), 0, 0], np.int32)
        views = pa.py_buffer(np.tile(view, 30_000))
        users = pa.Array.from_buffers(pa.string_view(), 30_000, [None, views, pa.py_buffer(b"u" * 1000)])
    else:
        word = pa.array(["u" * 1000], pa.string_view() if form.endswith("views") else pa.string())
        users = pa.DictionaryArray.from_arrays(pa.array([0] * 30_000, pa.int16()), word)
    table = pa.table({"user": users, "region": ["north"] * 30_000, "amount": [1.0] * 30_000})
    few = table.slice(0, 100)
    with served(write_config(tmp_path), Limits(unpacked=8 << 20)) as server:
        with monkeypatch.context() as patch:
            patch.setattr("panstream.server.ingest.request_bodies.from_arrow", None)  # not reached
            assert server.post(stream(table), ARROW).code == "too_large"
        assert server.post(stream(few), ARROW).status == 200
        assert server.rows() == 100


@pytest.mark.slow
def test_rows_that_take_more_memory_than_their_body_are_counted(tmp_path: Path) -> None:
    """Of 25,000 rows of text numbers and words, 1.6 MB of memory: more than half of what all bodies may take."""
    with served(write_config(tmp_path), Limits(memory=2 << 20)) as server:
        assert server.post(lines(25_000), LINES).status in (413, 503)
        assert server.post(lines(5)).status == 200
        assert server.rows() == 5


def marked(rows: Any) -> bool:
    """Whether a batch is the one that is to fail."""
    return MARK in rows.columns.column("region").to_pylist()


Plant = Callable[[pytest.MonkeyPatch, type[BaseException]], None]


def in_join(patch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    real = applying._join

    def join(batches: Any) -> Any:
        if any(map(marked, batches)):
            raise error
        return real(batches)

    patch.setattr(applying, "_join", join)
    in_select(patch, error)


def in_select(patch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    real = Selector.__call__

    def select(selector: Selector, batch: Any) -> Any:
        if marked(batch):
            raise error
        return real(selector, batch)

    patch.setattr(Selector, "__call__", select)


def in_apply(patch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """Fails half-way: the engine is broken afterwards."""
    real = Selector.__call__
    marks = list[bool]()
    apply = Engine.apply

    def select(selector: Selector, batch: Any) -> Any:
        marks[:] = [marked(batch)]
        return real(selector, batch)

    def half(engine: Engine, rows: Any, **options: Any) -> Any:
        done = apply(engine, rows, **options)
        if marks == [True]:
            engine.broken = True
            raise error
        return done

    patch.setattr(Selector, "__call__", select)
    patch.setattr(Engine, "apply", half)


def in_parse(patch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    real = jobs.parse

    def parse(body: Any, *rest: Any) -> Any:
        if MARK.encode() in bytes(body.data[: body.size]):
            raise error
        return real(body, *rest)

    patch.setattr(jobs, "parse", parse)


@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError, MemoryError, pa.ArrowInvalid], ids=lambda error: error.__name__)
@pytest.mark.parametrize("plant", [in_join, in_select, in_apply, in_parse], ids=lambda plant: plant.__name__)
def test_a_body_that_fails_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant, error: type[Exception]
) -> None:
    with served(write_config(tmp_path)) as server:
        assert server.post(lines(2)).status == 200
        plant(monkeypatch, error)
        bodies = [(lines(3), LINES), (lines(4, region=MARK), LINES), (lines(5), LINES), (lines(6), LINES)]
        answers = together(server, bodies)
        codes = [answer.status if answer.status == 200 else answer.code for answer in answers]
        assert codes == [200, "too_large" if error is MemoryError else "internal", 200, 200]
        assert server.get("/healthz").json["status"] == "ok"
        monkeypatch.undo()
        for at in (0, 2, 3):  # counted once: sent again, they are known
            again = server.opened(f"p{at}")
            answer = server.post(bodies[at][0], LINES, EVENTS, Panstream_Producer=again, Panstream_Sequence="1")
            assert answer.json["new"] is False
        assert server.rows() == 2 + 3 + 5 + 6


@pytest.mark.slow
def test_two_bodies_of_a_step_that_break_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(write_config(tmp_path)) as server:
        in_apply(monkeypatch, RuntimeError)
        bad = (lines(4, region=MARK), LINES)
        answers = together(server, [(lines(3), LINES), bad, (lines(5), LINES), bad, (lines(6), LINES)])
        assert [answer.status for answer in answers] == [200, 500, 200, 500, 200]
        assert server.rows() == 14


@pytest.mark.slow
def test_bodies_beyond_what_is_kept_are_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows are overwritten once applied; should the engine break later in the step, nothing of them counts."""
    monkeypatch.setattr(worker, "_MAX_HELD", 1)
    monkeypatch.setattr(worker, "_MAX_MERGED", 1)
    with served(write_config(tmp_path, AS_THEY_COME)) as server:
        in_apply(monkeypatch, RuntimeError)
        answers = together(server, [(lines(3), LINES), (lines(4, region=MARK), LINES)])
        assert [answer.code for answer in answers] == ["unavailable", "internal"]
        again = server.opened("p0")
        assert server.post(lines(3), LINES, EVENTS, Panstream_Producer=again, Panstream_Sequence="1").json["new"]
        assert server.rows() == 3


@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError, MemoryError], ids=lambda error: error.__name__)
def test_a_commit_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    with served(write_config(tmp_path)) as server:
        assert server.post(lines(2)).status == 200
        ids = [server.opened(name) for name in ("p0", "p1")]

        def fail(store: SnapshotStore, parts: Any, **options: Any) -> None:
            raise error

        def plant() -> None:
            monkeypatch.setattr(SnapshotStore, "commit", fail)

        answers = together(server, [(lines(3), LINES), (lines(4), LINES)], ids, plant)
        assert [answer.code for answer in answers] == ["unavailable"] * 2
        assert server.get("/healthz").status == 503
        monkeypatch.undo()
        until(lambda: server.get("/healthz").status == 200)
        answers = together(server, [(lines(3), LINES), (lines(4), LINES)])
        assert [answer.status for answer in answers] == [200, 200]
        assert server.get("/healthz").json["status"] == "ok"
        assert server.rows() == 9


@contextlib.contextmanager
def dying(config: Config) -> Iterator[tuple[Live, list[BaseException | None]]]:
    """A server, and how it ended."""
    ready = threading.Event()
    ends = list[BaseException | None]()
    running = make_server(config, ServerSettings(port=0), on_started=lambda address: ready.set())

    def run() -> None:
        try:
            running.run_until_stopped()
            ends.append(None)
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    place = urlsplit(running.address)
    yield Live(place.hostname or "", place.port or 0, running), ends
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the server hangs"


def failing_overwrite(job: jobs.Job) -> None:
    raise RuntimeError


def failing_step(*given: Any) -> None:
    raise SystemExit


PLANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "overwrite": lambda patch: patch.setattr(jobs.Job, "overwrite", failing_overwrite),
    "step": lambda patch: patch.setattr(worker.EngineThread, "_apply", failing_step),
    "parser": lambda patch: in_parse(patch, SystemExit),
    "select": lambda patch: in_select(patch, SystemExit),
    "wiping": lambda patch: patch.setattr(Selector, "wipe", failing_step),
}


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_a_thread_that_ends_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    """Pending requests are refused, /healthz fails, and the server ends with an error: exit code 1 of the command."""
    with dying(write_config(tmp_path)) as (server, ends):
        assert server.post(lines(2)).status == 200
        with monkeypatch.context() as patch:
            PLANTS[plant](patch)
            patch.setattr(type(server.running), "stop", lambda self: None)  # so that it can be looked at
            answers: list[Any] = []

            def send(region: str) -> None:
                with contextlib.suppress(OSError):
                    answers.append(server.post(lines(3, region=region)))

            senders = [threading.Thread(target=send, args=[each], daemon=True) for each in (MARK, "north", MARK)]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join(PATIENCE)
                assert not sender.is_alive(), "a sender hangs"
            assert {answer.code for answer in answers if answer.status != 200} == {"unavailable"}
            assert server.get("/healthz").status == 503
            assert server.post(lines(1)).code == "unavailable"
            until(lambda: not server.running.worker._open)
        server.running.stop()
    assert isinstance(ends[0], PanstreamError)
    with served(write_config(tmp_path)) as server:
        taken = sum(3 for answer in answers if answer.status == 200)
        assert server.rows() in (2 + taken, 2 + taken + 3)  # the last batch may have been durable


@pytest.mark.slow
def test_a_state_in_memory_alone_is_not_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it spent would be forgotten: the server stops."""
    with dying(write_config(tmp_path, CONFIG.partition("[store]")[0])) as (server, ends):
        in_apply(monkeypatch, RuntimeError)
        with contextlib.suppress(OSError):
            assert server.post(lines(3, region=MARK)).status in (500, 503)
    assert isinstance(ends[0], PanstreamError)


def test_refusals_name_no_value() -> None:
    refusal = HttpError.after(ValueError("user-12345"), "a body could not be read")
    assert isinstance(refusal, HttpError)
    assert "12345" not in refusal.message
