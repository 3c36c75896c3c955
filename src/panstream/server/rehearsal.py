"""Everything once on made-up rows, before the first request: loops are compiled or loaded when they are first used.

Without it the first senders would wait, for seconds where nothing was compiled before. The states that are used here are thrown away.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.config import Config, QueryConfig
from panstream.engine.engine import Engine
from panstream.engine.plan import needed_columns
from panstream.engine.rows import QueryRows, Rows, RowSchema, arrow_type
from panstream.engine.select import Selector
from panstream.errors import PanstreamError
from panstream.server.bodies import Body, parse
from panstream.server.limits import Gate, Limits
from panstream.server.refusals import Refusal

__all__ = ["rehearse"]

_WORDS = {
    "int": "1",
    "double": "1.0",
    "string": "a",
    "binary": "a",
    "bool": "true",
    "timestamp": "2000-01-01 00:00:00",
    "date": "2000-01-01",
}
_NOW = 1e9


def rehearse(config: Config) -> None:
    """Parse a row of every format, select, apply and answer, with states of its own and nothing on disk."""
    config = replace(config, directory=None)
    schema = RowSchema.of(config.stream, needed_columns(config))
    with contextlib.suppress(PanstreamError, Refusal), Selector(config) as select:
        for kind, text in _bodies(schema).items():
            with contextlib.closing(_Loan(kind, text)) as loan:
                batch = parse(loan.body, schema)
                select(batch)
                select.wipe()
                batch.wipe()
    with contextlib.suppress(PanstreamError), Engine(config, clock=lambda: _NOW) as engine:
        engine.apply(_rows(config))
        engine.finish()


class _Loan:
    """A body that is given back."""

    def __init__(self, kind: str, text: bytes) -> None:
        self.body = Body(Gate(Limits()), kind, "identity")
        self.body.make_room(len(text))
        self.body.data[: len(text)] = text
        self.body.size = len(text)

    def close(self) -> None:
        """Give it back."""
        self.body.wipe()


def _bodies(schema: RowSchema) -> dict[str, bytes]:
    names, words = list(schema.columns), [_WORDS[kind] for kind in schema.columns.values()]
    quoted = [
        word if kind in ("int", "double", "bool") else f'"{word}"'
        for word, kind in zip(words, schema.columns.values(), strict=True)
    ]
    line = ",".join(f'"{name}":{word}' for name, word in zip(names, quoted, strict=True))
    arrays = [_array(word, 1, kind) for word, kind in zip(words, schema.columns.values(), strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    text = f"{','.join(names)}\n{','.join(words)}\n"
    return {"json": f"{{{line}}}\n".encode(), "csv": text.encode(), "arrow": sink.getvalue().to_pybytes()}


def _array(word: str, count: int, kind: str) -> Any:
    """Return a column; ``pa.array`` would do, and import pandas, where it is installed."""
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * len(word))
    text = pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(word.encode() * count)])
    return text.cast(arrow_type(kind))


def _rows(config: Config) -> Rows:
    """Return two rows that every query takes, whatever its conditions."""
    stream = config.stream
    kind = None if stream.user is None else stream.columns[stream.user]
    ids = None if kind is None else _array(_WORDS[kind], 2, kind)
    return Rows(
        count=2,
        queries={query.name: _chosen(query) for query in config.queries},
        ids=ids,
        times=None if stream.time is None else np.full(2, _NOW),
    )


def _chosen(query: QueryConfig) -> QueryRows:
    parsed = query.parsed
    return QueryRows.all(
        2,
        values=None if parsed.value is None else np.zeros(2),
        weights=None if parsed.weight is None else np.ones(2, np.int64),
        groups=np.zeros(2, np.int64) if parsed.group_by else None,
    )
