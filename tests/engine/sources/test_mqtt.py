"""MQTT with a real Mosquitto: rows as messages say, what waits for a restart, and no message counted twice."""

import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from panstream.engine.planner.public_facts import ingestion_paths
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources import MqttSource, open_source
from panstream.engine.sources.mqtt import PASSWORD, _address
from panstream.errors import ConnectionLost, InvalidParameter, MissingExtra, SourceError
from panstream.testing.memory import make_needles
from tests.engine.runtime.streams import good
from tests.engine.sources.mosquitto import Mosquitto
from tests.scanned import Scanned

SCHEMA = RowSchema(columns={"topic": "string", "n": "int"}, user="topic")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    running = Mosquitto(tmp_path_factory.mktemp("mosquitto"))
    yield running
    running.stop()


_clients = itertools.count()


def source(
    broker: Mosquitto, schema: RowSchema = SCHEMA, *, client: str | None = None, topic: str = "meters/#"
) -> MqttSource:
    name = client or f"reader-{next(_clients)}"
    return MqttSource(
        f"{broker.url(topic)}?client={name}", schema, poll=0.01, batch_time=0.0, retries=3, sleep=lambda seconds: None
    )


def take(running: Iterator[RowBatch | None], rows: int) -> list[RowBatch]:
    batches: list[RowBatch] = []
    for batch in itertools.islice(running, 2_000):
        batches += [batch] if batch is not None else []
        if sum(len(batch) for batch in batches) >= rows:
            return batches
    raise AssertionError("the messages did not come")


def numbers(batches: list[RowBatch]) -> list[int]:
    return [n for batch in batches for n in good(batch).column("n").to_pylist()]


def objects(numbers: range) -> list[tuple[str, str]]:
    return [(f"meters/{n % 3}", f'{{"n": {n}, "other": "x"}}') for n in numbers]


def test_messages_become_rows(broker: Mosquitto) -> None:
    feed = source(broker)
    stream = feed.batches()
    assert next(stream) is None
    broker.publish([*objects(range(500)), ("elsewhere", '{"n": 1}')])
    batches = take(stream, 500)
    assert numbers(batches) == list(range(500))
    assert batches[0].columns.column("topic").to_pylist()[:3] == ["meters/0", "meters/1", "meters/2"][: len(batches[0])]
    assert all(batch.producer is None and batch.token is None for batch in batches), "no number of messages is stored"
    assert not any(feed._messages.data)
    assert next(stream) is None
    feed.close()
    assert list(stream) == []


def test_bad_messages(broker: Mosquitto) -> None:
    stream = source(broker).batches()
    next(stream)
    payloads = [
        '{"n": "many"}',
        "{}",
        "7",
        "",
        b"\xff\x00\n",
        '{"n": 2} {"n": 3}',
        '{\n "n":\n 5\n}',
        '{"n": 1, "n": 2}',
    ]
    broker.publish([("meters/1", payload) for payload in payloads])
    batches = take(stream, len(payloads))
    found = [bad for batch in batches for bad in batch.bad_rows(SCHEMA)]
    assert [bad.row for bad in found] == [1, 3, 4, 5, 6, 8]
    assert found[0].reason == "column n is not a whole number of 64 bits"
    assert all("many" not in bad.reason for bad in found)
    assert numbers(batches) == [None, 5]
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [("double", " 1.25\n", 1.25), ("bool", "true", True), ("string", 'ON "x"\\', 'ON "x"\\'), ("int", "12", 12)],
)
def test_bare_values(broker: Mosquitto, kind: str, payload: str, value: object) -> None:
    stream = source(broker, RowSchema(columns={"payload": kind, "topic": "string"}, user="topic")).batches()
    next(stream)
    broker.publish([("meters/é/1", payload), ("meters/2", '{"payload": null}')])
    rows = [row for batch in take(stream, 2) for row in good(batch).to_pylist()]
    assert rows == [{"payload": value, "topic": "meters/é/1"}, {"payload": None, "topic": "meters/2"}]
    stream.close()  # type: ignore[attr-defined]


def test_what_was_retained_is_not_counted_again(broker: Mosquitto) -> None:
    broker.publish([("kept/1", '{"n": 1}')], retain=True)
    stream = source(broker, topic="kept/%2B").batches()
    next(stream)
    broker.publish([("kept/1", '{"n": 2}')])
    assert numbers(take(stream, 1)) == [2]
    stream.close()  # type: ignore[attr-defined]


def test_a_session_outlives_the_reader(broker: Mosquitto) -> None:
    """What comes while nobody reads waits; what was handed out does not come again, whatever became of it."""
    first = source(broker, client="lasting").batches()
    next(first)
    broker.publish(objects(range(10)))
    assert numbers(take(first, 10)) == list(range(10))
    first.close()  # type: ignore[attr-defined]
    broker.publish(objects(range(10, 20)))
    second = source(broker, client="lasting").batches()
    assert numbers(take(second, 10)) == list(range(10, 20))
    second.close()  # type: ignore[attr-defined]


def test_never_twice_when_readers_die(broker: Mosquitto) -> None:
    """Readers whose connection breaks at every place of their work: each message is handed out at most once."""
    next(source(broker, client="dying").batches())
    seen: list[int] = []
    for turns in (*range(1, 20), None):  # the last one lives until it has the last message
        first = 20 * (turns or 20)
        broker.publish(objects(range(first, first + 20)))
        feed = source(broker, client="dying")
        steps = itertools.count()
        real = feed._run_loop

        def breaking(wait: float, feed: MqttSource = feed, real=real, steps=steps, turns=turns) -> bool:  # type: ignore[no-untyped-def]
            if next(steps) == turns:
                feed._client.socket().shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
                raise ConnectionLost("as if killed")
            return bool(real(wait))

        feed._run_loop = breaking  # type: ignore[method-assign]
        stream = feed.batches()
        try:
            for batch in stream:
                seen += numbers([batch]) if batch is not None else []
                if turns is None and first + 19 in seen:
                    break
        except ConnectionLost:
            pass
        finally:
            stream.close()  # type: ignore[attr-defined]
    assert len(seen) == len(set(seen))
    assert set(range(400, 420)) <= set(seen), "the last reader has all that came after the others were gone"
    assert len(seen) > 20, "readers that died had handed out some"


def test_a_broker_that_restarts(tmp_path: Path) -> None:
    own = Mosquitto(tmp_path, persists=True)
    stream = source(own).batches()
    next(stream)
    own.publish(objects(range(3)))
    assert numbers(take(stream, 3)) == [0, 1, 2]
    own.stop()
    own.start()
    assert next(stream) is None
    own.publish(objects(range(3, 5)))
    assert numbers(take(stream, 2)) == [3, 4]
    own.stop()
    with pytest.raises(ConnectionLost, match="could not be reached"):
        list(itertools.islice(stream, 100))


def test_two_readers_of_one_name(broker: Mosquitto) -> None:
    first = source(broker, client="same").batches()
    next(first)
    second = source(broker, client="same").batches()
    next(second)
    with pytest.raises(ConnectionLost, match="another client connects as 'same'"):
        for _ in range(20):
            next(first)
            next(second)
    first.close()  # type: ignore[attr-defined]
    second.close()  # type: ignore[attr-defined]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # paho leaves a refused TLS socket to Python
def test_passwords_and_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt")),
        ],
        check=True,
        capture_output=True,
    )
    os.chmod(tmp_path / "key", 0o644)
    (tmp_path / "people").write_text("reader:pass word\n")
    tool = Path("/usr/bin/mosquitto_passwd")
    subprocess.run([str(tool), "-U", str(tmp_path / "people")], check=True, capture_output=True)
    files = [f"certfile {tmp_path / 'crt'}", f"keyfile {tmp_path / 'key'}", f"password_file {tmp_path / 'people'}"]
    own = Mosquitto(tmp_path, *files, "allow_anonymous false")
    base = f"localhost:{own.port}/meters"
    trusted = f"ca={tmp_path / 'crt'}"

    def first(url: str) -> object:
        return next(MqttSource(url, SCHEMA, poll=0.01, retries=1, sleep=lambda seconds: None).batches())

    monkeypatch.delenv(PASSWORD, raising=False)
    (tmp_path / "password").write_text("pass word\n")
    assert first(f"mqtts://reader:pass%20word@{base}?{trusted}") is None
    assert first(f"mqtts://reader@{base}?{trusted}&password_file={tmp_path / 'password'}") is None
    for wrong in (f"mqtts://{base}?{trusted}", f"mqtts://reader:wrongful@{base}?{trusted}"):
        with pytest.raises(SourceError, match="refused: Not authorized") as caught:
            first(wrong)
        assert "wrongful" not in str(caught.value)
    monkeypatch.setenv(PASSWORD, "pass word")
    assert first(f"mqtts://reader@{base}?{trusted}") is None
    for untrusted in (f"mqtts://reader@{base}", f"mqtt://reader@{base}"):
        with pytest.raises(ConnectionLost):
            first(untrusted)
    own.stop()


def test_addresses(tmp_path: Path) -> None:
    found = _address("mqtt://host/a/+/b%3Fc/#?client=me&session=60")
    assert (found.host, found.port, found.topic, found.client, found.session) == ("host", 1883, "a/+/b?c/#", "me", 60)
    assert _address("mqtts://[::1]:99/a").port == 99
    for wrong in ("mqtt://host", "mqtt:///topic", "mqtt://host/a?colour=red", "mqtt://host/a?session=long"):
        with pytest.raises(InvalidParameter):
            open_source([wrong], SCHEMA)
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        _address(f"mqtts://host/a?ca={tmp_path / 'none'}")
    for inputs, more in ((["mqtt://host/a", "b.csv"], {}), (["mqtt://host/a"], {"format": "csv"})):
        with pytest.raises(SourceError):
            open_source(inputs, SCHEMA, **more)
    assert ingestion_paths(["mqtts://host/a"]) == ("mqtt",)


def test_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(MissingExtra, match=r"-m pip install '(panstream\[mqtt\]|paho-mqtt)"):
        MqttSource("mqtt://host/a", SCHEMA)


def test_a_broker_that_talks_nonsense() -> None:
    """Whatever bytes come: an error, and no hanging."""
    answers = [
        b"HTTP/1.1 400 Bad\r\n\r\n",
        b"\x20\xff\xff\xff\xff\xff",
        b"\x20\x03\x00\x00\x00\x30\x7f\xff\xff" + bytes(200),
    ]
    answers += [b"\x20\x03\x00\x00\x05\x11", b"\x20\x00", b"\x20\x03\x00\x00\x00\x90\x02\x00\x01", b"", b"\xf0\x00"]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            for answer in answers:  # one connection each
                with listener.accept()[0] as peer:
                    peer.recv(1000)
                    peer.sendall(answer)

        talking = threading.Thread(target=talk)
        talking.start()
        for answer in answers:
            feed = MqttSource(f"mqtt://127.0.0.1:{listener.getsockname()[1]}/a", SCHEMA, poll=0.01, retries=0)
            with pytest.raises(SourceError):
                for _ in feed.batches():
                    raise AssertionError(f"{answer!r} is no broker's")
        talking.join()


READER = """
import itertools
from panstream.engine.sources import MqttSource
from panstream.engine.rows.row_batch import RowSchema
feed = MqttSource(line().decode(), RowSchema(columns={"meter": "string"}, user="meter"), poll=0.01, batch_time=0.01)
rows, stream = 0, feed.batches()
next(stream)
answer()
for batch in stream:
    if batch is not None:
        rows += len(batch)
        if rows == 300:
            line_given = answer() or line()
        batch.wipe()
    if rows == 300:
        break
del batch
answer()
line()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_scanner")
def test_nothing_of_a_message_stays_in_memory(broker: Mosquitto) -> None:
    from panstream.primitives.memory.process_hardening import ENVIRONMENT

    meters = make_needles(300)
    reader = Scanned(READER, ENVIRONMENT)
    try:
        reader.send(f"{broker.url()}?client=scanned\n".encode())
        reader.wait_ready()
        broker.publish([(f"meters/{n}", f'{{"meter": "{meter}"}}') for n, meter in enumerate(meters)])
        reader.wait_ready()
        assert reader.scan(meters).found, "the batch in hand is there, so that the scan can find such things"
        reader.send(b"go on\n")
        reader.wait_ready()
        assert not reader.scan(meters).found
    finally:
        reader.close()
