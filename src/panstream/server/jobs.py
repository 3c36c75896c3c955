"""What waits for the engine's thread: bodies and calls, and whom to tell what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from panstream.engine.engine import Applied, Engine
from panstream.engine.producers import Sender
from panstream.engine.rows import Rows
from panstream.server.bodies import Body

__all__ = ["NOBODY", "Job", "Taken", "Tell", "overwrite", "teller"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of a body, for its sender alone."""

    applied: Applied
    rows: int


Tell: TypeAlias = Callable[[Any, BaseException | None], None]  # the result, or why there is none


@dataclass(slots=True, eq=False)
class Job:
    """A body with its rows once they are parsed, or a call; and what came of it."""

    work: Rows | Callable[[Engine], Any] | None
    tell: Tell
    body: Body | None = None
    sender: Sender | None = None
    sequence: int = 0
    durable: bool = False  # of a call: whether it is answered with the commit
    result: Any = None
    refusal: BaseException | None = None
    answered: bool = False


NOBODY = Job(None, lambda result, refusal: None)


def overwrite(jobs: Iterable[Job]) -> None:
    """Overwrite bodies and what was parsed of them, which may be the same memory; nothing the second time."""
    for job in jobs:
        if isinstance(job.work, Rows):
            job.work.wipe()
            job.work = None
        if job.body is not None:
            job.body.overwrite()


def teller(future: asyncio.Future[Any]) -> Tell:
    """Return what settles a future, unless nobody waits for it any more."""

    def tell(result: Any, refusal: BaseException | None) -> None:
        if future.done():
            return
        if refusal is not None:
            future.set_exception(refusal)
        else:
            future.set_result(result)

    return tell
