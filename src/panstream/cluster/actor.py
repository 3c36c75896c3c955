"""A shard as a Dask actor. Nothing that goes wrong here takes its arguments along: answers are words about rules."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from panstream.cluster.shard import Shard
from panstream.errors import PanstreamError

__all__ = ["Answer", "ShardActor"]

Answer = tuple[str, Any]  # "ok" and a value; the class and the message of a refusal; or "failed" and a class
_OPEN: dict[str, Shard] = {}  # by directory: a second actor in one process takes over from the first


class ShardActor:
    """Holds one shard on a worker."""

    def __init__(self) -> None:
        self._shard: Shard | None = None

    def open(self, settings: Mapping[str, Any]) -> Answer:
        """Open the shard from its directory."""
        directory = settings["directory"]
        if directory is not None and directory in _OPEN:
            with contextlib.suppress(PanstreamError):
                _OPEN.pop(directory).close()

        def opened() -> tuple[int, int]:
            self._shard = Shard(**settings)
            if directory is not None:
                _OPEN[directory] = self._shard
            return os.getpid(), self._shard.step

        return _answer(opened)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Answer:
        """Call a method of the shard."""
        shard = self._shard
        return _answer(lambda: None if shard is None else getattr(shard, method)(*arguments))

    def close(self) -> Answer:
        """Give the shard up."""
        shard = self._shard
        return _answer(lambda: None if shard is None else shard.close())


def _answer(work: Any) -> Answer:
    """Return what ``work`` returns; of an error only its class, and its message where we wrote it."""
    try:
        return "ok", work()
    except PanstreamError as error:
        return type(error).__name__, str(error)
    except Exception as error:
        return "failed", type(error).__name__
