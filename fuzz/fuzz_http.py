"""Heads and bodies as they come over a connection, in any pieces: events, or a protocol error."""

import fuzzing

with fuzzing.instrumented():
    import h11

    from panstream.server.http.request_parser import RequestParser


def test_one_input(data: bytes) -> None:
    """The first byte says how long the pieces are."""
    parser = RequestParser(1 << 14)
    piece = 1 + (data[0] if data else 0)
    try:
        for start in range(1, len(data), piece):
            parser.receive(data[start : start + piece])
            while parser.next_event() not in (h11.NEED_DATA, h11.PAUSED):
                if parser.body_complete:
                    parser.next_request()
    except h11.RemoteProtocolError:
        pass
    finally:
        parser.wipe()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
