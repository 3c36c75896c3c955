"""Kafka: rows as messages say, each counted once whatever breaks, and a store from which nobody sees how many."""

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from panstream.cli.app import app
from panstream.engine.config.config import load_config, read_config
from panstream.engine.config.kafka import PASSWORD, KafkaAddress
from panstream.engine.planner.public_facts import ingestion_paths
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.sources import KafkaSource, open_source
from panstream.engine.sources._kafka_offsets import MAX_MARKS, OffsetMarks
from panstream.engine.sources.kafka import CLIENT_SETTINGS, gzip_warning
from panstream.errors import ConnectionLost, InvalidParameter, MissingExtra, SourceError
from panstream.testing.memory import make_needles
from tests.engine.runtime.streams import good
from tests.engine.sources.kafka_broker import CONFIG, REAL, Broker, DescribingBroker
from tests.engine.sources.kafka_child import USERS, counting
from tests.scanned import Scanned
from tests.waiting import PATIENCE

SCHEMA = RowSchema(columns={"key": "string", "n": "int"}, user="key")
NUMBERS = RowSchema(columns={"n": "int"})
ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("PANSTREAM_KILLS", "8"))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    running = Broker()
    yield running
    running.stop()


def source(url: str, schema: RowSchema = NUMBERS, **settings: Any) -> KafkaSource:
    return KafkaSource(url, schema, **{"poll": 0.01, "batch_time": 0.0, "max_outage": 5.0, **settings})


def take(running: Iterator[RowBatch | None], rows: int) -> list[RowBatch]:
    batches: list[RowBatch] = []
    for batch in itertools.islice(running, 5_000):
        batches += [batch] if batch is not None and len(batch) else []
        if sum(map(len, batches)) >= rows:
            return batches
    raise AssertionError("the messages did not come")


def numbers(batches: list[RowBatch]) -> list[int]:
    return [n for batch in batches for n in good(batch).column("n").to_pylist()]


def test_messages_become_rows(broker: Broker) -> None:
    topic = broker.topic()
    broker.publish(topic, [(f"user {n}", f'{{"n": {n}, "other": "x"}}') for n in range(500)])
    feed = source(broker.url(topic), SCHEMA)
    stream = feed.batches()
    batches = take(stream, 500)
    found = [row for batch in batches for row in good(batch).to_pylist()]
    assert sorted(found, key=lambda row: row["n"]) == [{"key": f"user {n}", "n": n} for n in range(500)]
    assert not any(any(messages.buffer.data) for messages in feed._messages.values())
    feed.close()
    assert list(itertools.islice(stream, 3)) == []


@pytest.mark.skipif(REAL is not None, reason="the real broker of make kafka has no transactions")
def test_messages_of_committed_transactions_become_rows(broker: Broker) -> None:
    """librdkafka's broker does not hide those that are open or aborted; panstream asks it to."""
    assert CLIENT_SETTINGS["isolation.level"] == "read_committed"
    topic = broker.topic()
    flink = Producer({**broker.settings, "transactional.id": f"{topic}-0"})
    flink.init_transactions(PATIENCE)
    for first in (0, 50):
        flink.begin_transaction()
        for n in range(first, first + 50):
            flink.produce(topic, f'{{"n": {n}}}', partition=n % 4)
        flink.commit_transaction(PATIENCE)
    feed = source(broker.url(topic))
    assert sorted(numbers(take(feed.batches(), 100))) == list(range(100))
    feed.close()


def test_bad_messages(broker: Broker) -> None:
    topic = broker.topic()
    values = ['{"n": "many"}', "{}", "7", "", b"\xff\x00\n", '{"n": 2} {"n": 3}', '{\n "n":\n 5\n}', '{"n": 1, "n": 2}']
    broker.publish(topic, [("k", value) for value in values], partition=2)
    broker.publish(topic, [(None, '{"n": 1}'), (b"\xff", '{"n": 1}')], partition=2)
    batches = take(source(broker.url(topic), SCHEMA).batches(), 10)
    found = [bad for batch in batches for bad in batch.bad_rows(SCHEMA)]
    assert [bad.row for bad in found] == [1, 3, 4, 5, 6, 8, 9, 10]
    assert found[0].reason == "partition 2, offset 0: column n is not a whole number of 64 bits"
    assert numbers(batches) == [None, 5]


@pytest.mark.parametrize(("kind", "value", "read"), [("double", b" 1.25\n", 1.25), ("string", b'ON "x"\\', 'ON "x"\\')])
def test_bare_values(broker: Broker, kind: str, value: bytes, read: object) -> None:
    topic = broker.topic()
    broker.publish(topic, [("é", value)])
    stream = source(broker.url(topic), RowSchema(columns={"payload": kind, "key": "string"}, user="key")).batches()
    assert good(take(stream, 1)[0]).to_pylist() == [{"payload": read, "key": "é"}]


def test_where_a_group_begins(broker: Broker) -> None:
    topic = broker.topic()
    broker.publish(topic, ['{"n": 1}'])
    late = source(broker.url(topic, "group=late&begin=newest")).batches()
    assert next(late) is not None
    broker.publish(topic, ['{"n": 2}'])
    assert numbers(take(late, 1)) == [2]
    assert numbers(take(source(broker.url(topic, "group=early")).batches(), 2)) == [1, 2]


class Crash(BaseException):
    """As if the process were gone: nothing handles it."""


class Kept:
    """A store: what was counted, and the position, in one commit."""

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.applied: dict[str, int] = {}


def run(broker: Broker, url: str, kept: Kept, *, ticks: int, commit: int, dies: str, messages: int) -> None:
    """Count for some ticks with a commit after every few of them, and die before or after the last commit."""
    feed = source(url, batch_rows=5)
    feed.resume(kept.applied)
    counted = list(kept.counted)
    applied = dict(kept.applied)
    tokens = list[object]()
    stream = feed.batches()
    real = feed._commit_marks

    def dying(marks: OffsetMarks) -> bool:
        if dies == "before the mark" and ticks == at:
            raise Crash
        done = real(marks)
        if dies == "after the mark" and ticks == at:
            raise Crash
        return done

    feed._commit_marks = dying  # type: ignore[method-assign]
    at = -1
    try:
        for _ in range(1_000):
            batch = next(stream)
            assert batch is not None
            if len(batch):
                at += 1
            assert applied.get(batch.producer or "", -1) < batch.sequence
            counted += numbers([batch])
            applied[batch.producer or ""] = batch.sequence
            tokens.append(batch.token)
            if at % commit == 0:
                if at >= ticks and dies == "before the commit":
                    raise Crash
                kept.counted = list(counted)
                kept.applied = dict(applied)
                if at >= ticks and dies == "after the commit":
                    raise Crash
                for token in tokens:
                    feed.acknowledge(token)
                tokens.clear()
            if len(counted) >= messages:
                kept.counted = counted
                kept.applied = applied
                return
        raise AssertionError("it should have died")
    except Crash:
        stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("dies", ["before the mark", "after the mark", "before the commit", "after the commit"])
def test_each_message_counts_once_wherever_it_breaks(broker: Broker, dies: str) -> None:
    topic = broker.topic()
    url = broker.url(topic)
    kept = Kept()
    sent = 0
    for ticks, commit in itertools.product((0, 1, 2), (1, 2, 3)):
        broker.publish(topic, [f'{{"n": {n}}}' for n in range(sent, sent + 40)])
        sent += 40
        run(broker, url, kept, ticks=ticks, commit=commit, dies=dies, messages=10**9)
        assert len(set(kept.counted)) == len(kept.counted), "twice"
    run(broker, url, kept, ticks=10**6, commit=1, dies="", messages=sent)
    assert sorted(kept.counted) == list(range(sent))


@pytest.mark.slow
def test_kill_nine(tmp_path: Path, broker: Broker) -> None:
    """Processes under load, killed at any moment: in the end every user is counted, and every row once."""
    topic = broker.topic()
    draw = random.Random(7)
    sent = 0
    launcher = subprocess.Popen(
        [sys.executable, "-u", str(Path(__file__).with_name("kafka_child.py")), str(tmp_path), broker.url(topic)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    assert launcher.stdin
    assert launcher.stdout
    share = USERS // KILLS
    for _ in range(KILLS):
        broker.publish(topic, (json.dumps({"user": user, "value": 1.0}) for user in range(sent, sent + share)))
        sent += share
        launcher.stdin.write("go\n")
        launcher.stdin.flush()
        child = 0
        fed = 0
        moment = draw.randint(1, share)
        while fed < moment:
            word, _, rest = launcher.stdout.readline().strip().partition(" ")
            assert word not in ("end", "failed"), rest
            child, fed = (int(rest), fed) if word == "child" else (child, int(rest) if word == "fed" else fed)
        threading.Event().wait(draw.random() * 0.3)  # a step takes 0.2 seconds
        os.kill(child, signal.SIGKILL)
        while launcher.stdout.readline().strip() != "end":
            pass
    launcher.communicate()
    with Engine(counting(tmp_path), zero_noise=True) as engine:
        from panstream.engine.runtime.ingest import ingest_all, open_configured_source
        from panstream.engine.runtime.selector import Selector

        feed = open_configured_source(engine.config, [broker.url(topic)])
        empty = 0
        real = feed.batches

        def until_the_end() -> Iterator[RowBatch | None]:
            nonlocal empty
            for batch in real():
                empty = empty + 1 if batch is None or not len(batch) else 0
                yield batch
                if empty > 40:
                    return

        feed.batches = until_the_end  # type: ignore[method-assign]
        engine.declare("kafka")
        with Selector(engine.config) as select:
            ingest_all(engine, feed, select)
        engine.finish()
        values = [engine.log.last(name).record["value"] for name in ("distinct", "sum")]  # type: ignore[union-attr]
    assert values == [pytest.approx(sent), pytest.approx(sent)]


COMMAND = """
[stream]
name = "s"
user = "user"
columns = { user = "int" }
[[query]]
name = "users"
sql = "SELECT COUNT(DISTINCT user) FROM s"
epsilon = 1.0
[store]
directory = "state"
"""


@pytest.mark.slow
def test_the_command(tmp_path: Path, broker: Broker) -> None:
    """It counts until it is told to stop, goes on after the last message, and stores a time instead of offsets."""
    topic = broker.topic()
    (tmp_path / "panstream.toml").write_text(COMMAND)
    command = [sys.executable, "-m", "panstream.cli", "run", "panstream.toml", broker.url(topic), "--no-hardening"]
    sent = 0
    for _ in range(2):
        running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2):  # what came before a mark's own messages has been taken in by then
            broker.publish(topic, [f'{{"user": {user}}}' for user in range(400)])
            sent += 100
            while broker.committed(topic, "panstream") != [sent] * 4:
                assert running.poll() is None, running.communicate()
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=PATIENCE)
        assert running.returncode == 128 + signal.SIGTERM, said
        with Engine(load_config(tmp_path / "panstream.toml")) as engine:
            (position,) = engine.positions().values()
            assert any(
                "how many messages each Kafka partition has had" in fact for fact in engine.plans[0].claim.public
            )
        assert 0 <= time.time() - (position >> 64) / 1000 < 3600


def test_what_is_stored_follows_the_clock_alone(broker: Broker) -> None:
    """Whether a hundred messages came or none: the same ticks are stored, each with bytes that say nothing."""
    topics = [broker.topic(), broker.topic()]
    ticks = []
    for topic in topics:
        now = itertools.count(1_800_000_000, 7)
        stream = source(broker.url(topic), wall=lambda now=now: float(next(now))).batches()  # type: ignore[misc]
        sequences = [next(stream).sequence for _ in range(3)]  # type: ignore[union-attr]
        if topic == topics[0]:
            broker.publish(topic, ['{"n": 1}'] * 100)
        sequences += [next(stream).sequence for _ in range(20)]  # type: ignore[union-attr]
        ticks.append([sequence >> 64 for sequence in sequences])
        seals = {sequence & (1 << 64) - 1 for sequence in sequences}
        assert len(seals) == len(sequences), "not even that nothing came in between shows"
    assert ticks[0] == ticks[1]


def test_a_clock_that_is_put_back(broker: Broker) -> None:
    topic = broker.topic()
    times = iter([50.0, 40.0, 41.0])
    stream = source(broker.url(topic), wall=lambda: next(times)).batches()
    assert [next(stream).sequence >> 64 for _ in range(3)] == [50_000, 50_001, 50_002]  # type: ignore[union-attr]


def test_a_clock_that_is_put_back_while_shards_are_ahead(broker: Broker) -> None:
    """Batches after those that come again follow them, or a cluster would take them for applied and skip them."""
    topic = broker.topic()
    first = source(broker.url(topic), wall=lambda: 50.0)
    broker.publish(topic, ['{"n": 1}'])
    (ahead,) = take(first.batches(), 1)
    second = source(broker.url(topic), wall=lambda: 40.0)
    second.resume({}, {str(ahead.producer): [ahead.sequence]})
    stream = second.batches()
    again = next(stream)
    later = next(stream)
    assert again is not None
    assert later is not None
    assert again.sequence == ahead.sequence < later.sequence


def test_marks_that_do_not_belong_to_the_store(broker: Broker) -> None:
    topic = broker.topic()
    url = broker.url(topic)
    broker.publish(topic, ['{"n": 1}'])
    first = source(url)
    (batch,) = take(first.batches(), 1)
    first.acknowledge(batch.token)
    stream = first.batches()
    broker.publish(topic, ['{"n": 2}'])

    def refused(applied: dict[str, int]) -> None:
        other = source(url)
        other.resume(applied)
        with pytest.raises(SourceError, match="group 'panstream' has no mark of this store"):
            next(other.batches())

    position = {str(batch.producer): batch.sequence}
    refused({str(batch.producer): batch.sequence + 1})
    refused({str(batch.producer): batch.sequence + (1 << 64)})
    second = source(url)
    second.resume(position)
    assert numbers(take(second.batches(), 1)) == [2]
    for text in ("", "offsets of somebody else", "panstream 1 4 0:0:0000000000000000"):
        broker.commit(topic, "panstream", text)
        refused(position)
    del stream


def test_a_group_of_somebody_else_is_left_alone(broker: Broker) -> None:
    topic = broker.topic()
    broker.publish(topic, ['{"n": 1}'] * 8)
    broker.commit(topic, "theirs", "")
    with pytest.raises(SourceError, match="group 'theirs' has no mark of this store: something else has read it"):
        next(source(broker.url(topic, "group=theirs")).batches())
    assert broker.committed(topic, "theirs") == [0] * 4


def test_marks_are_renewed_while_nothing_comes(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic()
    stream = source(broker.url(topic)).batches()
    next(stream)
    broker.commit(topic, "panstream", "")  # as if the broker had forgotten them
    monkeypatch.setattr("panstream.engine.sources.kafka._PARTITION_CHECK_SECONDS", 0.0)
    batch = next(stream)
    assert batch is not None
    second = source(broker.url(topic))
    second.resume({str(batch.producer): batch.sequence})
    assert next(second.batches()) is not None


def test_marks() -> None:
    marks = OffsetMarks.begin({0: 5, 1: 7})
    assert marks.explaining(None) is marks.last
    for tick in range(10, 10 * MAX_MARKS, 10):
        assert not marks.full
        marks = marks.add(tick, {0: 10**18 + tick, 1: 7})
    assert marks.full
    assert len(marks.text(0, 2)) < 4_096 - 10 * MAX_MARKS, "what brokers take, with ticks of 13 digits"
    found, known = OffsetMarks.parse({each: marks.text(each, 2) for each in (0, 1)})
    assert found is not None
    assert known == 2
    for tick in (0, 10, 15, 479):
        mark = (
            marks.add(1000, {}).explaining(None)
            if tick == 0
            else found.explaining(marks._marks[tick // 10].position(tick))
        )
        assert mark is not None
        assert mark.tick == tick // 10 * 10
    assert found.explaining(marks._marks[1].position(25)) is None, "the mark of tick 20 is the last before 25"
    assert marks.since(15)._marks[0].tick == 10
    assert marks.since(10**9)._marks == [marks.last]
    assert OffsetMarks.parse({0: marks.text(0, 2), 1: None}) == (None, 2)
    assert OffsetMarks.parse({0: None}) == (None, 0)
    moved, _ = OffsetMarks.parse({0: marks.text(0, 2), 1: marks.since(30).text(1, 2)})
    assert moved is not None
    assert moved._marks[0].tick == 30


def test_no_more_is_read_than_there_is_room_for_marks(broker: Broker) -> None:
    topic = broker.topic()
    feed = source(broker.url(topic), batch_rows=2)
    stream = feed.batches()
    broker.publish(topic, [f'{{"n": {n}}}' for n in range(4 * MAX_MARKS)])
    batches: list[RowBatch] = []
    while len(batches) < MAX_MARKS - 1:
        batches += take(stream, 1)
    assert not any(len(next(stream) or ()) for _ in range(20))
    feed.acknowledge(batches[-1].token)
    batches += take(stream, 2)
    assert len({n for n in numbers(batches)}) == len(numbers(batches)) == 2 * MAX_MARKS, "none was dropped meanwhile"


def test_partitions_that_are_added(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there had been two of four: the others are read from their beginning, also after a restart."""
    topic = broker.topic()
    listed = [0, 1]
    url = broker.url(topic)
    monkeypatch.setattr(KafkaSource, "_partitions", lambda feed: listed)
    monkeypatch.setattr("panstream.engine.sources.kafka._PARTITION_CHECK_SECONDS", 0.0)
    broker.publish(topic, [f'{{"n": {n}}}' for n in range(8)])
    first = source(url)
    stream = first.batches()
    batches = take(stream, 4)
    assert sorted(numbers(batches)) == [0, 1, 4, 5]
    listed = [0, 1, 2]
    batches = take(stream, 2)
    assert sorted(numbers(batches)) == [2, 6]
    stream.close()  # type: ignore[attr-defined]
    listed = [0, 1, 2, 3]
    second = source(url)
    second.resume({str(batches[-1].producer): batches[-1].sequence})
    assert sorted(numbers(take(second.batches(), 2))) == [3, 7]


@pytest.mark.skipif(REAL is not None, reason="a real broker cannot be stopped by a test")
def test_a_broker_that_goes_away() -> None:
    own = Broker()
    topic = own.topic()
    stream = source(own.url(topic), max_outage=1.0).batches()
    assert next(stream) is not None
    own.publish(topic, ['{"n": 1}'])
    own.stop()
    with pytest.raises(ConnectionLost, match="has not answered for 1 second"):
        for batch in itertools.islice(stream, 10**6):
            assert batch is None or not len(batch) or numbers([batch]) == [1]


def test_a_broker_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConnectionLost, match="has not answered for 0.5 seconds"):  # it takes, and says nothing
            next(source(f"kafka://127.0.0.1:{port}/t", max_outage=0.5).batches())
    with pytest.raises(ConnectionLost):
        next(source(f"kafka://127.0.0.1:{port}/t", max_outage=0.5).batches())


def test_a_topic_whose_messages_are_gone(broker: Broker) -> None:
    topic = broker.topic()
    first = source(broker.url(topic))
    stream = first.batches()
    next(stream)
    first._offsets[0] = 1_000
    assert first._commit_marks(first._marks.add(1, first._offsets))
    marks = first._marks.add(1, first._offsets)
    first._commit_marks(marks)
    second = source(broker.url(topic))
    second.resume({first._producer: marks.last.position(5)})
    with pytest.raises(SourceError, match="the next messages are no longer on the broker"):
        list(itertools.islice(second.batches(), 1_000))


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD, raising=False)
    found = KafkaAddress.parse("kafka://a:1,b:2/t.x_y-z?group=g&begin=newest")
    assert (found.servers, found.topic, found.group, found.from_beginning) == ("a:1,b:2", "t.x_y-z", "g", False)
    wrong = ["kafka://host", "kafka:///t", "kafka://host/t/u", "kafka://host/t?colour=red", "kafka://host/t?begin=now"]
    wrong.append("kafka://host/t?gzip=yes")
    for url in (*wrong, "kafka://me:secret@host/t"):
        with pytest.raises(InvalidParameter) as caught:
            open_source([url], NUMBERS)
        assert "secret" not in str(caught.value)
    for inputs, more in ((["kafka://host/t", "b.csv"], {}), (["kafka://host/t"], {"format": "csv"})):
        with pytest.raises(SourceError):
            open_source(inputs, NUMBERS, **more)
    assert ingestion_paths(["kafka://host/t"]) == ("kafka",)
    assert ingestion_paths(["kafka://host/t?group=g&gzip=allow"]) == ("kafka with gzip",)
    assert KafkaAddress.parse("kafka://host/t?gzip=allow").allows_gzip and not found.allows_gzip
    file = tmp_path / "client.properties"
    file.write_text("# how to connect\n\nsecurity.protocol = SASL_SSL\nsasl.username=me\n")
    monkeypatch.setenv(PASSWORD, "secret")
    settings = KafkaAddress.parse(f"kafka://host/t?config={file}").settings()
    expected = {"security.protocol": "SASL_SSL", "sasl.username": "me", "sasl.password": "secret"}
    assert expected.items() <= settings.items()
    for line in ("group.id = mine", "debug=all", "secret"):
        file.write_text(f"\n{line}\n")
        with pytest.raises(SourceError, match="config of the Kafka address, line 2: only settings of the conn") as told:
            open_source([f"kafka://host/t?config={file}"], NUMBERS)
        assert "secret" not in str(told.value)
    with pytest.raises(SourceError, match="config of the Kafka address cannot be read: No such file"):
        open_source([f"kafka://host/t?config={tmp_path / 'none'}"], NUMBERS)
    monkeypatch.delenv(PASSWORD)
    for line, name in (("security.protocol = secret", "security.protocol"), ("ssl.secret = 1", "ssl.secret")):
        file.write_text(line)
        with pytest.raises(SourceError, match=f"config of the Kafka address: {name} cannot be used") as told:
            next(source(f"kafka://host/t?config={file}").batches())
        assert "= secret" not in str(told.value)


def test_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtra, match=r"-m pip install '(panstream\[kafka\]|confluent-kafka)"):
        KafkaSource("kafka://host/t", NUMBERS)


def test_a_topic_with_gzip_is_refused(broker: Broker) -> None:
    with DescribingBroker("visits", "gzip") as describing:
        url = f"kafka://{describing.server}/visits"
        for look in (lambda: next(source(url).batches()), lambda: gzip_warning(url)):
            with pytest.raises(SourceError, match="is compressed with gzip .*add gzip=allow to the address"):
                look()
    topic = broker.topic()
    broker.publish(topic, ['{"n": 1}'])
    assert numbers(take(source(broker.url(topic, "gzip=allow")).batches(), 1)) == [1]
    assert "no copy of memory is covered" in str(gzip_warning(broker.url(topic, "gzip=allow")))


@pytest.mark.parametrize(("compression", "warned"), [("producer", True), ("zstd", False), ("uncompressed", False)])
def test_producers_that_compress_as_they_like_are_a_warning(compression: str, warned: bool) -> None:
    with DescribingBroker("visits", compression) as describing:
        warning = gzip_warning(f"kafka://{describing.server}/visits")
    assert (warning is not None) == warned
    assert warning is None or "(compression.type = producer)" in warning


@pytest.mark.skipif(REAL is not None, reason="a newer broker does tell")
def test_a_broker_that_cannot_tell_how_topics_are_compressed(broker: Broker, tmp_path: Path) -> None:
    """As the one in the client library, and those before 0.11: ``check`` and ``explain`` say so and go on."""
    config = tmp_path / "panstream.toml"
    config.write_text(
        '[stream]\nname = "s"\ncolumns = { n = "int" }\n'
        '[[query]]\nname = "q"\nsql = "SELECT COUNT(*) FROM s WHERE n > 1"\nepsilon = 1.0\n'
    )
    for command in ("check", "explain"):
        result = CliRunner().invoke(app, [command, str(config), "--source", broker.url(broker.topic())])
        assert result.exit_code == 0, result.output
        assert "the Kafka broker does not say how producers compress" in result.output
    assert "the claim assumes that no Kafka producer compresses with gzip" in result.output


def test_claims_of_kafka_depend_on_producers_without_gzip() -> None:
    settings = read_config(
        {
            "stream": {"name": "s", "columns": {"n": "int"}},
            "query": [{"name": "q", "sql": "SELECT COUNT(*) FROM s WHERE n > 1", "epsilon": 1.0}],
        }
    )
    with Engine(settings) as engine:
        engine.declare("kafka")
        (plan,) = engine.plans
        assert plan.claim.assumption == "no Kafka producer compresses with gzip"
        assert plan.claim.locations == ("memory",) and "gzip" not in str(plan.claim.public)
        engine.declare("kafka")
        assert engine.plans[0].claim.assumption == plan.claim.assumption
    with Engine(settings) as engine:
        engine.declare("kafka with gzip")
        claim = engine.plans[0].claim
        assert (claim.locations, claim.intrusions.unannounced, claim.assumption) == ((), 0, "")
        assert "512 bytes" in claim.note and claim.is_private


READER = """
from panstream.engine.sources import KafkaSource
from panstream.engine.rows.row_batch import RowSchema
schema = RowSchema(columns={"user": "string", "key": "string"}, user="user")
feed = KafkaSource(line().decode(), schema, poll=0.02, batch_time=0.01)
rows, stream = 0, feed.batches()
next(stream)
answer()
for batch in stream:
    rows += len(batch)
    if rows == 300 and len(batch):
        answer()
        line()
    batch.wipe()
    feed.acknowledge(batch.token)
    if rows == 300 and not len(batch):
        break
del batch
answer()
line()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_scanner")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", *([] if REAL else ["zstd"])])
def test_nothing_of_a_message_stays_in_memory(broker: Broker, compression: str) -> None:
    from confluent_kafka import Producer

    from panstream.primitives.memory.process_hardening import ENVIRONMENT

    topic = broker.topic()
    users = make_needles(300)
    keys = make_needles(300)
    sender = Producer({**broker.settings, "compression.type": compression, "linger.ms": 100})
    reader = Scanned(READER, ENVIRONMENT)
    try:
        reader.send(f"{broker.url(topic)}\n".encode())
        reader.wait_ready()
        for user, key in zip(users, keys, strict=True):
            sender.produce(topic, f'{{"user": "{user}"}}', str(key))
        assert sender.flush(30) == 0
        reader.wait_ready()
        assert reader.scan(users).found, "the batch in hand is there, so that the scan can find such things"
        reader.send(b"go on\n")
        reader.wait_ready()
        left = len({each.needle for each in reader.scan([*users, *keys]).found})
        # librdkafka unpacks gzip through 512 bytes on a thread's stack, which keep what was last in them.
        assert left <= (512 // len(str(users[0])) if compression == "gzip" else 0)
    finally:
        reader.close()


assert CONFIG is None or REAL is not None
