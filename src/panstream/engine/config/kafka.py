"""Address of a Kafka topic, and the settings of the client, which are read from a file and never printed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from panstream.errors import InvalidParameter, SourceError, import_optional, translate_errors

PASSWORD = "PANSTREAM_KAFKA_PASSWORD"  # name of an environment variable
_OPTIONS = ("config", "group", "begin", "gzip")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Other properties could change which messages are read or written, load plug-ins, or log contents.
_ALLOWED = (
    *("security.", "sasl.", "ssl.", "enable.ssl.", "enable.idempotence", "https.", "socket.", "api.version."),
    *("broker.", "client.dns.lookup", "reconnect."),
)
_PROPERTY = re.compile(r'property:? "?([a-z0-9._]+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAddress:
    """A topic of a cluster.

    Attributes:
        group: Consumer group under which offsets are stored.
        from_beginning: Whether reading begins with the oldest message.
        allows_gzip: The owner of the stream accepts that copies of memory are not covered by the claim.
        config: File with the client's settings.
    """

    servers: str
    topic: str
    group: str
    from_beginning: bool
    allows_gzip: bool
    config: str | None

    @classmethod
    def parse(cls, url: str) -> KafkaAddress:
        """Read ``kafka://host:port[,host:port...]/topic[?options]``.

        >>> KafkaAddress.parse("kafka://one:9092,two:9092/visits?group=north").group
        'north'
        """
        parts = urlsplit(url)
        topic = parts.path[1:]
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if "@" in parts.netloc:
            raise InvalidParameter(f"credentials for Kafka go into the file of ?config=FILE, or {PASSWORD}")
        if parts.scheme != "kafka" or not parts.netloc or _TOPIC.fullmatch(topic) is None:
            raise InvalidParameter("a Kafka topic is given as kafka://host:port/topic")
        if unknown := sorted(options.keys() - set(_OPTIONS)):
            raise InvalidParameter(f"a Kafka address has the options {', '.join(_OPTIONS)}; got {unknown[0]}")
        if (begin := options.get("begin", "oldest")) not in ("oldest", "newest"):
            raise InvalidParameter('begin must be "oldest" or "newest"')
        if options.get("gzip", "allow") != "allow":
            raise InvalidParameter('gzip must be "allow", or not be given')
        return cls(
            servers=parts.netloc,
            topic=topic,
            group=options.get("group", "panstream"),
            from_beginning=begin == "oldest",
            allows_gzip="gzip" in options,
            config=options.get("config"),
        )

    def settings(self) -> dict[str, Any]:
        """Return the client's settings: those of the file, the servers, and no logging."""
        client_settings: dict[str, Any] = {} if self.config is None else _read(self.config)
        if PASSWORD in os.environ:
            client_settings["sasl.password"] = os.environ[PASSWORD]
        return {**client_settings, "bootstrap.servers": self.servers, "client.id": "panstream", "log_level": 0}


def _read(path: str) -> dict[str, str]:
    """Read lines of ``name = value`` with librdkafka properties; only those about the connection are allowed."""
    lines = translate_errors(
        lambda: Path(path).read_text().splitlines(),
        OSError,
        lambda error: SourceError(f"config of the Kafka address cannot be read: {error.strerror}"),
    )
    properties: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, mark, value = (part.strip() for part in line.partition("="))
        if not mark or not name.startswith(_ALLOWED):
            raise SourceError(
                f"config of the Kafka address, line {number}: only settings of the connection are taken, as name = "
                f"value; their names begin with {', '.join(_ALLOWED)}"
            )
        properties[name] = value
    return properties


def topic_compression(address: KafkaAddress, consumer: Any, timeout: float) -> str | None:
    """Return the broker's ``compression.type`` of a topic; None if it cannot be read.

    The request names a broker, since the client would otherwise wait for a controller, which not every cluster has.
    """
    kafka = import_optional("confluent_kafka", "Kafka", "kafka")
    admin = import_optional("confluent_kafka.admin", "Kafka", "kafka")
    topic = admin.ConfigResource(admin.ResourceType.TOPIC, address.topic)
    client = make_client("AdminClient", address.settings(), admin)
    try:
        broker = next(iter(consumer.list_topics(address.topic, timeout=timeout).brokers))
        (answer,) = client.describe_configs([topic], request_timeout=timeout, broker=broker).values()
        setting = answer.result().get("compression.type")
    except kafka.KafkaException:
        return None
    return None if setting is None else str(setting.value)


def make_client(kind: str, settings: dict[str, Any], module: Any = None) -> Any:
    """Create a ``Consumer``, a ``Producer`` or another client of ``module``.

    Raises:
        SourceError: A setting is invalid; the message has its name but not its value, which may be a password.
    """
    kafka = import_optional("confluent_kafka", "Kafka", "kafka")

    def without_value(error: Exception) -> SourceError:
        match = _PROPERTY.search(str(error))
        setting = match[1] if match else "a setting"
        return SourceError(f"config of the Kafka address: {setting} cannot be used as it is given")

    return translate_errors(lambda: getattr(module or kafka, kind)(settings), kafka.KafkaException, without_value)
