"""Replies of a Redis server: values, or a feed that fails."""

import socket

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.sources._redis_protocol import RedisConnection
    from panstream.errors import PanstreamError


def test_one_input(data: bytes) -> None:
    if len(data) > 60_000:  # more than a socket takes without a reader
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.close()
        connection = RedisConnection("redis://localhost", timeout=5.0)
        connection._socket = ours
        try:
            while True:
                connection.reply()
        except (PanstreamError, OSError):
            pass
        finally:
            connection.close()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
