"""Bytes of a state: refused, or a monitor whose bytes come back as they are."""

import fuzzing

with fuzzing.instrumented():
    from panstream.core.monitor import Monitor
    from panstream.errors import PanstreamError


def test_one_input(data: bytes) -> None:
    try:
        monitor = Monitor.from_bytes(data, verify_checksum=False)  # a checksum would keep everything out
    except PanstreamError:
        return
    again = monitor.to_bytes(checksum=False)
    assert Monitor.from_bytes(again, verify_checksum=False).to_bytes(checksum=False) == again
    monitor.claim()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
