"""How rows arrive, what that makes public, and the timer by which live rows are committed.

Rows of live sources are applied on arrival and committed at the end of steps of a public length, whether or not rows
came: neither the number of commits nor their contents reveal how many rows or requests there were.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args
from urllib.parse import parse_qs, urlsplit

from panstream.engine.config.config import Config, QueryConfig, StreamConfig
from panstream.engine.config.statement import Intake

if TYPE_CHECKING:
    from panstream.engine.planner.query_plan import QueryPlan

INTAKES: tuple[Intake, ...] = get_args(Intake)
KAFKA: frozenset[Intake] = frozenset({"kafka", "kafka with gzip"})
LIVE: frozenset[Intake] = frozenset({"growing files", "pipe", "redis", "mqtt", *KAFKA, "http"})
CONDITIONS: dict[Intake, str] = {
    "kafka": "the claim assumes that no Kafka producer compresses with gzip",
    "kafka with gzip": "no copy of memory is covered",
}
"""What an intake adds to a claim. librdkafka decompresses gzip on the stack of its own thread, where up to 512 bytes of
the last messages remain, and does not report how a message was compressed.
"""

_SCHEMES: dict[str, Intake] = {
    **dict.fromkeys(("redis", "rediss", "unix"), "redis"),
    **dict.fromkeys(("mqtt", "mqtts"), "mqtt"),
    "kafka": "kafka",
}
_MIN_STEP = 0.200  # seconds
_WRITE_RATE = 8 << 20  # bytes per second that an idle server writes at most, so large states get long steps
_STATE_OVERHEAD = 2 << 10  # bytes that could be written in the time that one state costs besides its size
# In the Kafka client's memory while it reads; not stored.
_OFFSETS = "from a copy of memory: how many messages each Kafka partition has had"
_NO_GZIP = "no Kafka producer compresses with gzip"
_GZIP = "messages from Kafka may be compressed with gzip, of which a copy of memory may hold the last 512 bytes"
_IN_FLIGHT = (
    "rows in flight are not covered: over HTTP also those of a batch that waits for an earlier one, and of parts that "
    "wait for their commit"
)
_NUMBERED = "the number of batches of each producer that numbers them, and whether one came in this seven-day round"


def ingestion_paths(inputs: Sequence[str], *, follow: bool = False) -> tuple[Intake, ...]:
    """Return the intakes of inputs as given on a command line.

    >>> ingestion_paths(["-", "visits.csv"])
    ('files', 'pipe')
    """
    paths: set[Intake] = set()
    for source_text in inputs:
        scheme, mark, _ = source_text.partition("://")
        path_kind = "pipe" if source_text == "-" else _SCHEMES.get(scheme) if mark else None
        if path_kind == "kafka" and "gzip" in parse_qs(urlsplit(source_text).query):
            path_kind = "kafka with gzip"
        paths.add(path_kind or ("growing files" if follow else "files"))
    return tuple(intake for intake in INTAKES if intake in paths)


def public_facts(
    stream: StreamConfig, query: QueryConfig, intakes: Collection[Intake], *, by_clock: bool
) -> tuple[str, ...]:
    """Return the facts about a stream that its state, answers and their times reveal without protection."""
    path_set = set(intakes)
    timed = stream.time is not None
    facts = {
        "the schedule of releases": True,
        "the input's format, its columns and their types, as guessed from its first rows": stream.guessed,
        "whether the first 200 rows of every file fit the types of the columns that are read": stream.guessed
        or "files" in path_set,
        "the newest time of any row so far, even of a row that cannot be used": timed,
        "which windows have a row": timed and query.window is not None,
        "the declared groups": query.groups,
        "the number and the times of batches": "calls" in path_set or (not by_clock and LIVE & path_set),
        "how far every file was read": {"files", "growing files"} & path_set,
        _NUMBERED: "http" in path_set,
        "the id of the last entry that was read": "redis" in path_set,
        _OFFSETS: KAFKA & path_set,
    }
    return tuple(fact for fact, holds in facts.items() if holds)


def with_public_facts(
    plans: Sequence[QueryPlan], stream: StreamConfig, intakes: Collection[Intake], *, by_clock: bool
) -> tuple[QueryPlan, ...]:
    """Return the plans with claims that name what the intakes make public, assume, or leave in memory."""
    plans_with_facts = []
    for plan in plans:
        facts = public_facts(stream, plan.config, intakes, by_clock=by_clock)
        new = [fact for fact in facts if fact not in plan.claim.public]
        claim = plan.claim.with_public(*new)
        if "http" in intakes and _IN_FLIGHT not in claim.note:
            claim = replace(claim, note="; ".join(filter(None, [claim.note, _IN_FLIGHT])))
        if "kafka" in intakes:
            claim = claim.assuming(_NO_GZIP)
        if "kafka with gzip" in intakes:
            claim = claim.without_memory(_GZIP)
        plans_with_facts.append(replace(plan, claim=claim))
    return tuple(plans_with_facts)


def step_length(config: Config, plans: Sequence[QueryPlan]) -> float:
    """Return the seconds of a live step, configured or chosen from the size of the state; 0 to commit every batch."""
    if config.step is not None:
        return config.step
    late = config.stream.lateness
    size = sum(plan.max_state_bytes(late) + _STATE_OVERHEAD * plan.max_states(late) for plan in plans)
    return max(_MIN_STEP, math.ceil(100 * size / _WRITE_RATE) / 100)


class CommitTimer:
    """Divide time into steps of ``length`` seconds, from now on."""

    def __init__(self, length: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._length = length
        self._clock = clock
        self._end = clock() + length

    def remaining(self) -> float:
        """Return the seconds until the step ends; 0 after that."""
        return max(0.0, self._end - self._clock())

    def next(self) -> None:
        """Begin the next step; missed ones are skipped."""
        behind = self._clock() - self._end
        self._end += self._length * (1 + max(0, math.floor(behind / self._length)))
