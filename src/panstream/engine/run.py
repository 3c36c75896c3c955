"""From a feed to an engine, micro-batch by micro-batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from panstream.engine.config import Config
from panstream.engine.engine import Engine
from panstream.engine.feeds import Feed, open_feed
from panstream.engine.intake import Pace, intakes_of
from panstream.engine.plan import needed_columns
from panstream.engine.rows import Rows, RowSchema
from panstream.engine.select import Selector
from panstream.engine.wall import JUMPED
from panstream.errors import ClockJumped
from panstream.interrupts import INTERRUPTS

__all__ = ["Fed", "Tick", "drain", "feed", "feed_of"]

_REMEMBERED = 1000  # row numbers kept for the report to the sender
_ROWS_OF_FILES = 200_000  # of a micro-batch: they need not wait for each other as those of a pipe do
_PULSE = 1.0  # seconds between looks at the clock while nothing comes
_POLL = 0.050  # seconds that a live feed waits for rows at most before it lets the clock be looked at

Tick = Callable[[int, float | None], None]


@dataclass(slots=True)
class Fed:
    """What a feed delivered. Row numbers are for whoever sent the rows, and nobody else."""

    rows: int = 0
    batches: int = 0
    skipped: list[int] = field(default_factory=list)
    skipped_count: int = 0
    late: list[int] = field(default_factory=list)
    late_count: int = 0
    interrupted: bool = False

    def note(self, skipped: Sequence[int], late: Sequence[int]) -> None:
        """Remember the first row numbers, and how many there were."""
        self.skipped += skipped[: max(0, _REMEMBERED - len(self.skipped))]
        self.late += late[: max(0, _REMEMBERED - len(self.late))]
        self.skipped_count += len(skipped)
        self.late_count += len(late)


def feed_of(config: Config, inputs: Sequence[str], *, follow: bool = False, format: str | None = None) -> Feed:
    """Return the feed for files, globs, directories, "-" for standard input, or one ``redis://host/db#stream``."""
    schema = RowSchema.of(config.stream, needed_columns(config))
    settings: dict[str, Any] = {"batch_time": config.batch_time}
    whole = not follow and all(given != "-" and "://" not in given for given in inputs)
    rows = config.batch_rows or (_ROWS_OF_FILES if whole else None)
    if rows is not None:
        settings["batch_rows"] = rows
    if whole:
        settings["stored_ids"] = True
    else:
        settings["poll"] = min(_POLL, (config.step or _POLL) / 4)  # so that steps end on time while nothing comes
    if format is not None:
        settings["format"] = format
    return open_feed(inputs, schema, follow=follow, **settings)


def feed(
    engine: Engine,
    inputs: Sequence[str],
    *,
    follow: bool = False,
    format: str | None = None,
    tick: Tick | None = None,
) -> Fed:
    """Feed files to an engine until they end, or until Ctrl-C or SIGTERM: then ``interrupted`` is set."""
    feed = feed_of(engine.config, inputs, follow=follow, format=format)
    engine.declare(*intakes_of(inputs, follow=follow))
    with Selector(engine.config) as select:
        return drain(engine, feed, select, tick=tick)


def drain(engine: Engine, feed: Feed, select: Selector, *, tick: Tick | None = None) -> Fed:
    """Drain a feed into an engine; what was applied before is passed over, and batches are acknowledged when durable.

    Files can be read again, so that many of their micro-batches share a commit; rows of live feeds wait for the end of
    their step.
    """
    fed = Fed()
    feed.resume(engine.positions())
    share = engine.config.commit_rows if feed.progress() is not None else 1
    clock = Pace(engine.step_length) if engine.by_clock else None
    waiting: list[object] = []
    looked, pending = time.monotonic(), 0
    try:
        with INTERRUPTS.caught() as guard:
            with guard.step():
                if clock is not None:
                    engine.step()
            _check_clock(engine)
            for batch in feed.batches():
                if batch is not None:
                    pending += len(batch)
                    with guard.step():
                        _take(engine, select, batch, fed, commit=clock is None and pending >= share)
                    pending = 0 if pending >= share else pending
                    waiting.append(batch.token)
                if clock is not None:
                    if not clock.remaining():
                        with guard.step():
                            engine.step()
                        clock.next()
                        _check_clock(engine)
                elif batch is None or time.monotonic() - looked > _PULSE:
                    looked, pending = time.monotonic(), 0
                    with guard.step():
                        engine.advance()
                    _check_clock(engine)
                if engine.durable:
                    for token in waiting:
                        feed.acknowledge(token)
                    waiting.clear()
                if tick is not None:
                    tick(fed.rows, feed.progress())
    except KeyboardInterrupt:
        fed.interrupted = True
        INTERRUPTS.forget()
    finally:
        feed.close()
        if not engine.broken and (clock is not None or pending):
            with INTERRUPTS.step():
                engine.step() if clock is not None else engine.advance()
    return fed


def _check_clock(engine: Engine) -> None:
    if engine.jumped:
        raise ClockJumped(JUMPED)


def _take(engine: Engine, select: Selector, batch: Rows, fed: Fed, *, commit: bool) -> None:
    try:
        applied = engine.apply(select(batch), commit=commit)
        if applied.new:
            fed.note(applied.skipped, applied.late)
        fed.rows += len(batch)
        fed.batches += 1
    finally:
        select.wipe()
        batch.wipe()
