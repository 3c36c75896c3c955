"""MQTT: a message is one row, a JSON object or a single value; nothing about messages is stored, not even their number.

A message is acknowledged before it is counted, and counted only after the broker has answered a later request: then it
has processed the acknowledgement and will not send the message again. So a crash can lose the messages of a batch, but
never counts one twice, which would double its weight and break the claim. Stored message numbers could prevent the
loss, but would reveal how many messages there were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import parse_qs, unquote, urlsplit

from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources._message_buffer import MessageBuffer
from panstream.engine.sources.base import EventSource, SourceSettings
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.json_lines import JsonParser
from panstream.errors import ConnectionLost, InvalidParameter, PanstreamError, SourceError, import_optional

if TYPE_CHECKING:
    import ssl

PASSWORD = "PANSTREAM_MQTT_PASSWORD"  # environment variable
_OPTIONS = ("ca", "certificate", "private_key", "password_file", "client", "session")
_PACKET = 1 << 18  # bytes, the largest that the broker may send
_IN_FLIGHT = 1_000  # messages the broker may send before the first is acknowledged
_KEEP_ALIVE = 60  # seconds
_TIMEOUT = 10.0  # seconds to wait for the broker


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttAddress:
    """Broker, credentials and topic filter of a source."""

    host: str
    port: int
    topic: str
    user: str | None
    password: str | None
    tls: ssl.SSLContext | None
    client: str
    session: int


def _address(url: str) -> MqttAddress:
    """Parse ``mqtt[s]://[user[:password]@]host[:port]/topic/filter[?options]``; the filter may have # and +."""
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
            import ssl  # only here: most processes that import all sources need none of it

            tls = ssl.create_default_context(cafile=options.get("ca"))
            if "certificate" in options:
                tls.load_cert_chain(options["certificate"], options.get("private_key"))
        file_password = Path(options["password_file"]).read_text().strip() if "password_file" in options else None
    except OSError as error:  # an SSLError is one, too
        why = error.strerror or getattr(error, "reason", None)
        raise SourceError(f"a file of the MQTT address cannot be read: {why}") from None
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

    The columns ``topic`` and ``payload``, where declared, are the message's topic and a payload that is a single value.
    """

    def __init__(self, url: str, schema: RowSchema, *, retries: int = 5, **settings: Unpack[SourceSettings]) -> None:
        super().__init__(schema, **settings)
        import_optional("paho.mqtt.client", "reading from MQTT", "mqtt")
        self._address = _address(url)
        self.name = f"mqtt:{self._address.topic}"
        self._parser = JsonParser(schema)
        self._retries = retries
        self._client: Any = None
        self._messages = MessageBuffer(schema, "topic")
        self._answered_requests: set[int] = set()  # their packet ids; 0 is the connection
        self._refused: str | None = None
        self._failures = 0  # attempts to connect that failed, and connections that ended soon
        self._connected_since = 0.0

    def batches(self) -> Iterator[RowBatch | None]:
        """Yield rows as messages arrive, without end; ``None`` while there are none."""
        coalescer = Coalescer(self._schema, rows=self._rows, producer=None, label="mqtt")
        since: float | None = None
        self._parser.parse(bytearray(b"{}\n"), 3)[0].wipe()  # compiles the kernels before connecting
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
        """Yield the messages so far, once the broker has answered a request that followed their acknowledgements."""
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
        """Connect and subscribe unless connected; retry with growing delays, also if a connection ended soon."""
        while self._client is None:
            if self._failures:
                self._sleep(min(2.0, 0.05 * 2**self._failures))
            if self._connect():
                self._connected_since = self._clock()
                return
            self._failed("the MQTT broker could not be reached")

    def _failed(self, what: str) -> None:
        self._failures += 1
        if self._stopped or self._failures > self._retries:
            raise ConnectionLost(what)

    def _lost(self) -> None:
        if self._clock() - self._connected_since > _TIMEOUT:
            self._failures = 0
        self._failed(
            "the MQTT broker closes every connection; perhaps another client connects as "
            f"{self._address.client!r}: give each reader its own ?client="
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
        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = address.session
        properties.ReceiveMaximum = _IN_FLIGHT
        properties.MaximumPacketSize = _PACKET
        try:
            client.connect(address.host, address.port, _KEEP_ALIVE, clean_start=False, properties=properties)
        except (OSError, ValueError):
            self._disconnect()
            return False
        # A retained message would be sent again, and counted, at every start.
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        return self._on_acknowledged(0) and self._answered(
            lambda client: client.subscribe(address.topic, options=options)
        )

    def _answered(self, ask: Callable[[Any], tuple[Any, int | None]]) -> bool:
        """Send a request and wait for its answer; return False if the connection was lost."""
        number = ask(self._client)[1]
        return number is not None and self._on_acknowledged(number)

    def _on_acknowledged(self, number: int) -> bool:
        count = self._messages.count
        until = self._clock() + _TIMEOUT
        while number not in self._answered_requests:
            if not self._run_loop(self._poll):
                return False
            if self._messages.count != count:  # messages arrive before the answer
                count = self._messages.count
                until = self._clock() + _TIMEOUT
            if self._clock() > until:
                self._disconnect()
                return False
        self._answered_requests.clear()
        return True

    def _run_loop(self, wait: float) -> bool:
        """Receive packets; return False if the connection was lost, and with it all unconfirmed messages."""
        assert self._client is not None
        try:
            previous_count = self._messages.count
            code = self._client.loop(wait)
            while (
                not code and previous_count != self._messages.count < self._rows
            ):  # the client reads one packet per call
                previous_count = self._messages.count
                code = self._client.loop_read()
        except PanstreamError:
            raise
        except Exception:  # the client raises anything for bytes that are not packets
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
        self._answered_requests.clear()
        if self._client is not None:
            connection = self._client.socket()
            self._client.disconnect()
            self._client = None
            if connection is not None:
                connection.close()

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._refused = str(reason)
        self._answered_requests.add(0)

    def _on_subscribe(self, client: Any, userdata: Any, number: int, reasons: Any, properties: Any) -> None:
        if reasons[0].is_failure:
            self._refused = f"{reasons[0]}, subscribing to {self._address.topic!r}"
        self._answered_requests.add(number)

    def _on_answer(self, client: Any, userdata: Any, number: int, reasons: Any, properties: Any) -> None:
        self._answered_requests.add(number)

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        if not message.retain:
            self._messages.add(message.topic, bytes(message.payload))
