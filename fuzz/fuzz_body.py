"""Bodies of requests, CSV, JSON lines and Arrow, plain and packed: rows, or a refusal."""

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.rows.row_batch import RowSchema
    from panstream.server.auth import Limits, QuotaTracker
    from panstream.server.errors import HttpError
    from panstream.server.ingest.request_bodies import RequestBody, parse

_KINDS = ("csv", "json", "arrow")
_ENCODINGS = ("identity", "gzip", "zstd")
_SCHEMA = RowSchema(
    columns={
        "user": "string",
        "n": "int",
        "x": "double",
        "raw": "binary",
        "ok": "bool",
        "at": "timestamp",
        "day": "date",
    },
    user="user",
)
_LIMITS = Limits(body=1 << 20, unpacked=1 << 22, rows=10_000)


def test_one_input(data: bytes) -> None:
    """The first byte chooses format and packing."""
    if not data:
        return
    choice = data[0]
    gate = QuotaTracker(_LIMITS)
    body = RequestBody(gate, _KINDS[choice % 3], _ENCODINGS[choice // 3 % 3])
    try:
        body.append(data[1:])
        rows = parse(body, _SCHEMA)
    except HttpError:
        return
    finally:
        body.wipe()
    rows.wipe()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
