"""Ctrl-C and SIGTERM: handled from the start of a command, but never in the middle of a step."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_BOTH = (signal.SIGINT, signal.SIGTERM)


class _InterruptGuard:
    """Raises KeyboardInterrupt at once outside of steps, and at the end of a step during one.

    An exception raised in a signal handler can be swallowed, by an import or in __del__, depending on what the program
    was doing. Therefore it is recorded, and raised again before the next step, after it, or at the end.
    """

    def __init__(self) -> None:
        self._pending = self._busy = False
        self._depth = 0
        self._number: int = signal.SIGINT
        self._process = 0

    @contextlib.contextmanager
    def handling(self, *signals: int) -> Iterator[_InterruptGuard]:
        """Handle SIGINT and SIGTERM, or the given signals, in this block; no effect in other threads than the main one.

        Python runs signal handlers in the main thread only.
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
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _BOTH)  # delivers signals that `block_signals` held back
            yield self
            self.check()
        finally:
            self._depth -= 1
            for number, handler in old.items():
                signal.signal(number, handler)
            if not self._depth:
                self._pending = False

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Defer interrupts in this block to its end."""
        self.check()
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if an interrupt is pending."""
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """The exit code of an interrupted command: 128 plus the number of the last signal."""
        return 128 + self._number

    def forget(self) -> None:
        """Drop a pending interrupt: the caller has handled it."""
        self._pending = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a forked child: its parent may terminate it by a signal
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._number = number
        self._pending = True
        if not self._busy:
            raise KeyboardInterrupt


def block_signals() -> None:
    """Block signals until they are handled: for a command that is about to re-exec itself."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, _BOTH)


INTERRUPTS = _InterruptGuard()  # of this process
