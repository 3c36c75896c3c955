"""A lock between tests that need stable network interfaces and tests that change them.

A browser drops its requests when an interface appears or disappears.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK_FILE = Path(tempfile.gettempdir()) / f"panstream-network-{os.getuid()}.lock"


@contextlib.contextmanager
def _locked(kind: int) -> Iterator[None]:
    with _LOCK_FILE.open("w") as file:
        fcntl.flock(file, kind)
        yield


def unchanged() -> contextlib.AbstractContextManager[None]:
    """Return a context in which no other test adds or removes an interface."""
    return _locked(fcntl.LOCK_SH)


def changing() -> contextlib.AbstractContextManager[None]:
    """Return a context in which no other test relies on the interfaces."""
    return _locked(fcntl.LOCK_EX)
