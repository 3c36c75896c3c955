"""What an MQTT broker sends: packets, of which every message is a line, or a feed that fails; and messages as rows."""

import socket

import fuzzing
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

with fuzzing.instrumented():
    from panstream.engine.rows.row_batch import RowSchema
    from panstream.engine.sources.mqtt import MqttSource
    from panstream.errors import PanstreamError

_SCHEMAS = [
    RowSchema(columns={"user": "string", "n": "int"}, user="user"),
    RowSchema(columns={"topic": "string", "payload": "double"}, user="topic"),
    RowSchema(columns={"topic": "string", "payload": "string"}, user="topic"),
]


def test_one_input(data: bytes) -> None:
    """The first byte chooses the columns; the rest are a broker's bytes, and lines of topic and payload."""
    if not data or len(data) > 60_000:  # more than a socket takes without a reader
        return
    feed = MqttSource("mqtt://localhost/#", _SCHEMAS[data[0] % len(_SCHEMAS)])
    for line in data[1:].split(b"\n"):
        topic, _, payload = line.partition(b" ")
        feed._messages.add(topic.decode("utf-8", "replace"), payload)
    rows, end = feed._parser.parse(feed._messages.data, feed._messages.end)
    assert end == feed._messages.end
    assert len(rows) == feed._messages.count
    rows.wipe()
    feed._messages.forget(feed._messages.count, end)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data[1:])
        theirs.close()
        client = feed._client = Client(CallbackAPIVersion.VERSION2, client_id="fuzz", protocol=MQTTv5)
        ours.setblocking(False)
        client._sock = ours
        client.on_connect = feed._on_connect
        client.on_message = feed._on_message
        client.on_subscribe = feed._on_subscribe
        client.on_unsubscribe = feed._on_answer
        try:
            while feed._run_loop(0.0):
                pass
        except PanstreamError:
            pass
        finally:
            feed._disconnect()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
