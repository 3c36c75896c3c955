"""Lines of access logs, of nginx, Apache and Caddy: every line is a row or a bad row."""

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.config.website import LOG_MADE
    from panstream.engine.rows.row_batch import RowSchema
    from panstream.engine.sources.byte_streams import SPARE_BYTES
    from panstream.engine.sources.formats.access_log import AccessLogParser, CaddyParser
    from panstream.errors import PanstreamError

_SCHEMA = RowSchema(
    columns={"visitor": "int", "host": "string", "path": "string", "status": "int", "time": "timestamp", **LOG_MADE},
    user="visitor",
)


def test_one_input(data: bytes) -> None:
    """The first byte chooses the format."""
    kind = CaddyParser if data[:1] < b"\x80" else AccessLogParser
    lines = data[1:] + b"\n"
    buffer = bytearray(lines + bytes(SPARE_BYTES))
    try:
        rows, end = kind(_SCHEMA, label="a log", site="example.org").parse(buffer, len(lines))
    except PanstreamError:
        return
    assert end == len(lines)
    rows.wipe()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
