"""Sources of events: files, pipes, growing files, tables, Redis Streams, MQTT and Kafka, all as micro-batches.

::

    source = open_source(["visits/"], schema)
    source.resume(applied)                  # last applied sequence per producer
    for batch in source.batches():          # None while there is nothing to read
        ...                               # update; commit the state with batch.producer and batch.sequence
        source.acknowledge(batch.token)
        batch.wipe()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.base import EventSource
from panstream.engine.sources.files import FileSource, TailSource
from panstream.engine.sources.formats.csv import Dialect
from panstream.engine.sources.input_files import Format
from panstream.engine.sources.kafka import KafkaSource
from panstream.engine.sources.mqtt import MqttSource
from panstream.engine.sources.redis_streams import RedisStreamSource
from panstream.engine.sources.tables import TableSource
from panstream.errors import SourceError

__all__ = [
    "Dialect",
    "EventSource",
    "FileSource",
    "Format",
    "KafkaSource",
    "MqttSource",
    "RedisStreamSource",
    "TableSource",
    "TailSource",
    "open_source",
]


def open_source(inputs: Sequence[str], schema: RowSchema, *, follow: bool = False, **settings: Any) -> EventSource:
    """Return the source for inputs as given on a command line.

    Paths, globs, directories and "-" go to ``FileSource`` or, with ``follow``, to ``TailSource``; a single
    ``redis://...`` (``rediss://``, ``unix://``) with ``#stream`` at its end goes to ``RedisStreamSource``, one
    ``mqtt://host/topic`` (``mqtts://``) to ``MqttSource``, and one ``kafka://host/topic`` to ``KafkaSource``.
    """
    for begins, source in ((("mqtt://", "mqtts://"), MqttSource), (("kafka://",), KafkaSource)):
        if any(source_text.startswith(begins) for source_text in inputs):
            if len(inputs) > 1:
                raise SourceError(f"a topic must be the only input: give {begins[0]}host:port/topic alone")
            if settings.keys() & {"format", "dialect"}:
                raise SourceError("messages are JSON objects or bare values, and have no format")
            return source(inputs[0], schema, **settings)
    addresses = [source_text for source_text in inputs if source_text.startswith(("redis://", "rediss://", "unix://"))]
    if not addresses:
        return (TailSource if follow else FileSource)(inputs, schema, **settings)
    url, _, stream = addresses[0].partition("#")
    if len(inputs) > 1 or not stream:
        raise SourceError(
            "a Redis stream must be the only input, and named after #: give redis://host:port/db#stream alone"
        )
    if settings.keys() & {"format", "dialect"}:
        raise SourceError("the entries of a Redis stream have fields, and no format")
    return RedisStreamSource(url, stream, schema, **settings)
