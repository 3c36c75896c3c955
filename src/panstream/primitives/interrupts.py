"""Ctrl-C and SIGTERM: noticed from the first moment of a command, and never in the middle of a step."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_BOTH = (signal.SIGINT, signal.SIGTERM)


class _InterruptGuard:
    """Raises KeyboardInterrupt at once while nothing is at stake, and after the step while one is under way.

    What is raised in a signal's handler can be swallowed, by an import or in __del__, wherever the signal happens to
    find the program. So it is remembered, and raised again before the next step, after it, or at the end.
    """

    def __init__(self) -> None:
        self._asked = self._busy = False
        self._depth = 0
        self._number: int = signal.SIGINT
        self._process = 0

    @contextlib.contextmanager
    def handling(self, *signals: int) -> Iterator[_InterruptGuard]:
        """Handle SIGINT and SIGTERM, or some of them, in here; in the main thread only, where Python handles
        signals.
        """
        main = threading.current_thread() is threading.main_thread()
        chosen = signals or _BOTH
        self._process = os.getpid()
        if not self._depth:
            self._number = signal.SIGINT
        old = {number: signal.signal(number, self._handle) for number in chosen} if main else {}
        self._depth += 1
        try:
            if main and hasattr(signal, "pthread_sigmask"):
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _BOTH)  # what came during ``block_signals`` comes now
            yield self
            self.check()
        finally:
            self._depth -= 1
            for number, handler in old.items():
                signal.signal(number, handler)
            if not self._depth:
                self._asked = False

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Put off what comes in here until the end."""
        self.check()
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if one was asked for."""
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """The exit code of a command that was interrupted: 128 and the number of the last signal."""
        return 128 + self._number

    def forget(self) -> None:
        """Take note of what was asked for: it is not raised again."""
        self._asked = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a forked child, which its parent ends with a signal
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._number = number
        self._asked = True
        if not self._busy:
            raise KeyboardInterrupt


def block_signals() -> None:
    """Have signals wait until they are caught: for a command that is about to start itself again."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, _BOTH)


INTERRUPTS = _InterruptGuard()  # of this process
