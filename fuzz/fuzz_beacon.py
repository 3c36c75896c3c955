"""Beacons of browsers as the server gathers them: every one is a row or a bad row."""

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.rows.row_batch import RowSchema
    from panstream.engine.sources.byte_streams import SPARE_BYTES
    from panstream.engine.sources.formats.beacons import BEACON, MADE, parse_beacons

_SCHEMA = RowSchema(columns={"visitor": "int", **BEACON, **MADE}, user="visitor")


def test_one_input(data: bytes) -> None:
    """Lines of site and address, agent, language and content, four for each beacon, as many as there are."""
    lines = [line for line in data.split(b"\n") if line]
    whole = b"".join(line + b"\n" for line in lines[: len(lines) // 4 * 4])
    buffer = bytearray(b"example.org 192.0.2.1\nagent\nen\n{}\n" + whole + bytes(SPARE_BYTES))
    rows = parse_beacons(buffer, len(buffer) - SPARE_BYTES, _SCHEMA)
    assert len(rows.columns) == 1 + len(lines) // 4
    rows.wipe()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
