"""How long a test waits for what must happen, and how."""

import threading
from collections.abc import Callable

PATIENCE = 300.0  # seconds; a machine whose load is ten times its cores needs some of them, and only a hang all


def until(holds: Callable[[], bool], every: float = 0.01) -> None:
    """Ask again and again, with a pause of so many seconds, until something holds; fail after ``PATIENCE``."""
    pause = threading.Event()
    for _ in range(round(PATIENCE / every)):
        if holds():
            return
        pause.wait(every)
    raise AssertionError("it did not happen")
