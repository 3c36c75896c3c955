"""MQTT: one message is one row, a JSON object or a bare value; nothing about messages is stored, not even their number.

A message is acknowledged before it is counted, and counted only once the broker has said that it handled what came
before: then it cannot come again. So a crash can lose the messages of a batch and its step, and never counts one twice,
which would give a reading twice the weight that its claim allows for. Numbers of messages could prevent the loss, but
would have to be stored, and tell how many there were.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import parse_qs, unquote, urlsplit

from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources._message_buffer import MessageBuffer
from panstream.engine.sources.base import EventSource, SourceSettings
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.json_lines import JsonParser
from panstream.errors import ConnectionLost, InvalidParameter, PanstreamError, SourceError, import_optional

PASSWORD = "PANSTREAM_MQTT_PASSWORD"  # the variable that may hold it
_OPTIONS = ("ca", "certificate", "private_key", "password_file", "client", "session")
_PACKET = 1 << 18  # bytes; the broker is told to send no larger one
_IN_FLIGHT = 1_000  # messages the broker may send before the first is acknowledged
_KEEP_ALIVE = 60  # seconds
_TIMEOUT = 10.0  # seconds to wait for the broker


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttAddress:
    """Where the broker is, whom it knows us as, and which topics are asked for."""

    host: str
    port: int
    topic: str
    user: str | None
    password: str | None
    tls: ssl.SSLContext | None
    client: str
    session: int


def _address(url: str) -> MqttAddress:
    """Read ``mqtt[s]://[user[:password]@]host[:port]/topic/filter[?options]``, whose filter may have # and +."""
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, _, topic = rest.partition("/")
    parts = urlsplit(f"//{authority}")
    options = {name: values[-1] for name, values in parse_qs(query).items()}
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise InvalidParameter(f"an MQTT address has the options {', '.join(_OPTIONS)}; got {unknown[0]}")
    if not topic or parts.hostname is None:
        raise InvalidParameter("an MQTT source is given as mqtt://host:port/topic, where the topic may have + and #")
    if not options.get("session", "0").isdigit():
        raise InvalidParameter("session must be a whole number of seconds")
    tls = None
    try:
        if scheme == "mqtts":
            tls = ssl.create_default_context(cafile=options.get("ca"))
            if "certificate" in options:
                tls.load_cert_chain(options["certificate"], options.get("private_key"))
        file_password = Path(options["password_file"]).read_text().strip() if "password_file" in options else None
    except (OSError, ssl.SSLError) as error:
        raise SourceError(f"a file of the MQTT address cannot be read: {error.strerror or error.reason}") from None  # type: ignore[attr-defined]
    password = (
        file_password or (None if parts.password is None else unquote(parts.password)) or os.environ.get(PASSWORD)
    )
    return MqttAddress(
        host=parts.hostname,
        port=parts.port or (8883 if tls else 1883),
        topic=unquote(topic),
        user=None if parts.username is None else unquote(parts.username),
        password=password,
        tls=tls,
        client=options.get("client", "panstream"),
        session=int(options.get("session", "3600")),
    )


class MqttSource(EventSource):
    """Messages of the topics of one broker, received in MQTT 5 under a session that outlives a restart.

    The columns ``topic`` and ``payload``, where declared, are the message's topic and the whole of a bare payload.
    """

    def __init__(self, url: str, schema: RowSchema, *, retries: int = 5, **settings: Unpack[SourceSettings]) -> None:
        super().__init__(schema, **settings)
        import_optional("paho.mqtt.client", "reading from MQTT", "mqtt")
        self._address = _address(url)
        self._parser = JsonParser(schema)
        self._retries = retries
        self._client: Any = None
        self._messages = MessageBuffer(schema, "topic")
        self._heard: set[int] = set()  # requests that the broker has handled
        self._refused: str | None = None
        # To connect, or to stay connected; when it began
        self._failures = 0
        self._since = 0.0

    def batches(self) -> Iterator[RowBatch | None]:
        """Yield rows as messages arrive, for ever; ``None`` whenever there is nothing new."""
        coalescer = Coalescer(self._schema, rows=self._rows, producer=None, label="mqtt")
        since: float | None = None
        self._parser.parse(bytearray(b"{}\n"), 3)[0].wipe()  # compiles what it needs before a broker waits
        try:
            while not self._stopped:
                self._connected()
                wait = self._poll if since is None else min(self._poll, max(0.0, since + self._seconds - self._clock()))
                if not self._run_loop(wait):
                    since = None
                    self._lost()
                    continue
                waiting = self._messages
                if waiting.count and since is None:
                    since = self._clock()
                if since is not None and (waiting.full(self._rows) or self._clock() >= since + self._seconds):
                    since = None
                    yield from self._confirmed(coalescer)
                elif not waiting.count:
                    yield None
        finally:
            self._disconnect()
            coalescer.close()

    def _confirmed(self, coalescer: Coalescer) -> Iterator[RowBatch]:
        """Yield what arrived before a request that the broker has answered: their acknowledgements came before it."""
        count = self._messages.count
        end = self._messages.end
        if not self._answered(lambda client: client.unsubscribe("panstream/asks/for/an/answer")):
            self._lost()
            return
        rows, _ = self._parser.parse(self._messages.data, end)
        self._messages.forget(count, end)
        yield from coalescer.add(rows)
        yield from coalescer.flush()

    def _connected(self) -> None:
        """Connect and subscribe if need be; again a few times, also after connections that ended soon."""
        while self._client is None:
            if self._failures:
                self._sleep(min(2.0, 0.05 * 2**self._failures))
            if self._connect():
                self._since = self._clock()
                return
            self._failed("the MQTT broker could not be reached")

    def _failed(self, what: str) -> None:
        self._failures += 1
        if self._failures > self._retries:
            raise ConnectionLost(what)

    def _lost(self) -> None:
        if self._clock() - self._since > _TIMEOUT:
            self._failures = 0
        self._failed(
            "the MQTT broker ends every connection; another client that connects as "
            f"{self._address.client!r} would be a reason: give each reader its own ?client="
        )

    def _connect(self) -> bool:
        from paho.mqtt.client import Client, MQTTv5
        from paho.mqtt.enums import CallbackAPIVersion
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties
        from paho.mqtt.subscribeoptions import SubscribeOptions

        address = self._address
        client = self._client = Client(CallbackAPIVersion.VERSION2, client_id=address.client, protocol=MQTTv5)
        if address.user is not None:
            client.username_pw_set(address.user, address.password)
        if address.tls is not None:
            client.tls_set_context(address.tls)
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_answer
        client.connect_timeout = _TIMEOUT
        wishes: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        wishes.SessionExpiryInterval = address.session
        wishes.ReceiveMaximum = _IN_FLIGHT
        wishes.MaximumPacketSize = _PACKET
        try:
            client.connect(address.host, address.port, _KEEP_ALIVE, clean_start=False, properties=wishes)
        except (OSError, ValueError):
            self._disconnect()
            return False
        # What was retained is from before, and would come again at every start.
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        return self._on_acknowledged(0) and self._answered(
            lambda client: client.subscribe(address.topic, options=options)
        )

    def _answered(self, ask: Callable[[Any], tuple[Any, int | None]]) -> bool:
        """Send a request and wait for its answer; return whether the connection lasted."""
        number = ask(self._client)[1]
        return number is not None and self._on_acknowledged(number)

    def _on_acknowledged(self, number: int) -> bool:
        count = self._messages.count
        until = self._clock() + _TIMEOUT
        while number not in self._heard:
            if not self._run_loop(self._poll):
                return False
            if self._messages.count != count:  # the answer is behind messages
                count = self._messages.count
                until = self._clock() + _TIMEOUT
            if self._clock() > until:
                self._disconnect()
                return False
        self._heard.clear()
        return True

    def _run_loop(self, wait: float) -> bool:
        """Receive what there is; return whether the connection lasts. What waits for the broker's word goes with it."""
        assert self._client is not None
        try:
            previous_count = self._messages.count
            code = self._client.loop(wait)
            while (
                not code and previous_count != self._messages.count < self._rows
            ):  # the client reads a packet at a time
                previous_count = self._messages.count
                code = self._client.loop_read()
        except PanstreamError:
            raise
        except Exception:  # whatever a client trips over in bytes that are no packets
            self._disconnect()
            raise SourceError("the MQTT broker sent something that is not MQTT 5") from None
        if code:
            self._disconnect()
        if self._refused is not None:
            self._disconnect()
            raise SourceError(f"the MQTT broker refused: {self._refused}")
        return not code

    def _disconnect(self) -> None:
        self._messages.forget(self._messages.count, self._messages.end)
        self._heard.clear()
        if self._client is not None:
            connection = self._client.socket()
            self._client.disconnect()
            self._client = None
            if connection is not None:
                connection.close()

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._refused = str(reason)
        self._heard.add(0)

    def _on_subscribe(self, client: Any, userdata: Any, number: int, reasons: Any, properties: Any) -> None:
        if reasons[0].is_failure:
            self._refused = f"{reasons[0]}, subscribing to {self._address.topic!r}"
        self._heard.add(number)

    def _on_answer(self, client: Any, userdata: Any, number: int, reasons: Any, properties: Any) -> None:
        self._heard.add(number)

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        if not message.retain:
            self._messages.add(message.topic, bytes(message.payload))
