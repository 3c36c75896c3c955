"""A port for a program that must be told one before it starts."""

import random
import socket

# Below those that the system gives out by itself: a server of another test, started meanwhile, never gets it.
PLACES = range(20_000, 32_000)


def free_port() -> int:
    while True:
        with socket.socket() as probe:
            port = random.SystemRandom().choice(PLACES)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
