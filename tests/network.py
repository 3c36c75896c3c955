"""Who needs the network as it is, and who changes it: a browser drops its requests when an interface comes or goes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PLACE = Path(tempfile.gettempdir()) / f"panstream-network-{os.getuid()}.lock"


@contextlib.contextmanager
def _held(kind: int) -> Iterator[None]:
    with _PLACE.open("w") as file:
        fcntl.flock(file, kind)
        yield


def unchanged() -> contextlib.AbstractContextManager[None]:
    """Return a block in which no other test adds or removes an interface."""
    return _held(fcntl.LOCK_SH)


def changing() -> contextlib.AbstractContextManager[None]:
    """Return a block in which no test relies on the interfaces."""
    return _held(fcntl.LOCK_EX)
