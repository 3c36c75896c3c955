"""A free port for a program that needs one as an argument."""

import random
import socket

# Below the system's ephemeral range, so that a server that another test starts meanwhile never gets it.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    while True:
        with socket.socket() as probe:
            port = random.SystemRandom().choice(PORTS)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
