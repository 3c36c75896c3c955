"""One history: a seed chooses what producers send, when the clock moves, and when processes and the power fail.

The oracle is what a producer and a reader can see: which batches were acknowledged, and which answers were published.
In histories of even seeds there is no noise, so that an answer tells how many rows it counts; in the others there is,
so that it tells whether it was drawn before.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from panstream.engine.config.config import Config
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.storage.release_log import Release
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import PanstreamError, StoreError, TwoPartyError
from panstream.primitives.noise import SeededSource
from tests.engine.runtime.streams import config, question, rows
from tests.simulated.disk import SimulatedDisk, Stopped

ASKED = question("asked", "SELECT COUNT(*) FROM s", releases=40)
TICKS = question("ticks", "SELECT COUNT(*) FROM s", every=10, horizon=500)
WINDOWS = question("windows", "SELECT COUNT(*) FROM s", window=10)
BACK = (3.0, 12.0, 3_600.0, 86_400.0)  # seconds by which the system's clock is set back
PRODUCERS = ("p", "q")


class Wrong(AssertionError):
    """Something was lost, doubled, drawn again, or taken for good."""


@contextlib.contextmanager
def on(disk: SimulatedDisk) -> Iterator[None]:
    """Let stores that are opened in the block be on a simulated disk."""
    before = SnapshotStore.disk
    SnapshotStore.disk = disk  # type: ignore[assignment]
    try:
        yield
    finally:
        SnapshotStore.disk = before


class History:
    """A stream in one process. Subclasses keep its states elsewhere."""

    def __init__(self, seed: int, root: Path, *, events: int = 14) -> None:
        self.seed = seed
        self.root = root
        self.events = events
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(root, self.random.randrange)
        self.now = 1_000_000.0
        self.passed = 0.0  # by the clock that nobody sets
        self.engine: Engine | None = None
        self.exact = seed % 2 == 0
        self.rng = None if self.exact else SeededSource(seed)
        self.sizes: dict[tuple[str, int], int] = {}
        self.sent = dict.fromkeys(PRODUCERS, -1)  # the last number that was tried
        self.acknowledged = dict.fromkeys(PRODUCERS, -1)
        self.seen: dict[tuple[str, int], Any] = {}  # published values
        self.answered: dict[str, int] = {}  # the number of the answer about each window, by its beginning
        self.happened: list[str] = []
        self.backup: tuple[dict[Path, bytes], dict[str, int]] | None = None

    # The world.

    def clock(self) -> float:
        self.disk.moment("clock")
        return self.now

    def publish(self, release: Release) -> None:
        value = release.record["unclipped"]
        if self.seen.setdefault((release.query, release.number), value) != value:
            self.wrong(f"answer {release.number} of {release.query} was drawn twice")
        if "window" in release.record:
            start = release.record["window"][0]
            if self.answered.setdefault(start, release.number) != release.number or start < max(self.answered):
                self.wrong(f"the window from {start} was over, and was answered again")

    def wrong(self, what: str) -> None:
        raise Wrong(f"seed {self.seed}: {what}; {', '.join(self.happened)}")

    def settings(self) -> Config:
        return config(ASKED, TICKS, WINDOWS, directory=self.root / "state")

    @functools.cached_property
    def config(self) -> Config:
        return self.settings()

    def opened(self) -> Engine:
        return Engine(self.config, **self.options())

    def options(self) -> dict[str, Any]:
        """Return what every kind of engine is opened with."""
        world = {"clock": self.clock, "elapsed": lambda: self.passed, "publish": self.publish}
        return {"zero_noise": self.exact, "rng": self.rng, **world}

    def let_go(self) -> None:
        """Forget a process that ended: nothing of it runs any more, and its log is closed."""
        engine = self.engine
        self.engine = None
        if engine is not None:
            with contextlib.suppress(Stopped, PanstreamError):
                engine.close()
            engine.log.close()

    # What happens.

    def run(self) -> list[str]:
        """Live through the history, and return what happened; raise Wrong where it went wrong."""
        with self._simulated():
            try:
                for _ in range(self.events):
                    self._event()
                self.disk.fail_in = None
                self._check_end()
            finally:
                self.disk.fail_in = None
                self.disk.stopped = False
                self.let_go()
        return self.happened

    @contextlib.contextmanager
    def _simulated(self) -> Iterator[None]:
        (self.root / "state").mkdir(exist_ok=True)  # of the log of answers, which is SQLite's
        with on(self.disk):
            yield

    def _event(self) -> None:
        if self.random.random() < 0.6:
            self.disk.ending = self.random.choice(("kill", "power", "power", "refuse"))
            self.disk.fail_in = self.random.randrange(40)
            self.disk.refusals = self.random.choice((1, 1, 2, 3))
        kinds = {"send": 8, "again": 2, "ask": 3, "wait": 4, "reopen": 1, "roll back": 1, "set back": 2}
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        self.happened.append(kind)
        self.disk.refused = False
        try:
            getattr(self, f"_{kind.replace(' ', '_')}")()
        except Stopped:
            self._ended()
        except (StoreError, TwoPartyError) as error:
            if not self.excused():
                self.wrong(f"refused without a cause: {error}")
            self._refused()

    def excused(self) -> bool:
        """Return whether something failed in this event that may refuse it."""
        return self.disk.refused

    def _ended(self) -> None:
        """The process ended, by itself or with the whole machine."""
        self.happened.append(self.disk.ending)
        self.let_go()
        self.disk.restart()

    def _refused(self) -> None:
        """A step was refused: the process ends as after an error, and the disk works again."""
        self.happened.append("refused")
        self.let_go()
        self.disk.fail_in = None
        self.disk.ending = "kill"
        self.disk.restart()

    def _running(self) -> Engine:
        if self.engine is None:
            self.engine = self.opened()
            for producer in PRODUCERS:
                last = self.engine.last_sequence(producer)
                if not self.acknowledged[producer] <= last <= self.sent[producer]:
                    self.wrong(f"{producer} had {self.acknowledged[producer]} acknowledged, and {last} are there")
            log = {(each.query, each.number): each.record["unclipped"] for each in self.engine.log.history()}
            if not self.seen.items() <= log.items():
                self.wrong("an answer that was published is not in the log")
        return self.engine

    def _batch(self, producer: str, sequence: int) -> RowBatch:
        size = self.sizes.setdefault((producer, sequence), self.random.randrange(1, 9))
        return rows([query.name for query in self.config.queries], count=size, producer=producer, sequence=sequence)

    def _send(self) -> None:
        engine = self._running()
        producer = self.random.choice(PRODUCERS)
        sequence = engine.last_sequence(producer) + 1
        self.sent[producer] = max(self.sent[producer], sequence)
        engine.apply(self._batch(producer, sequence))
        self.acknowledged[producer] = sequence

    def _again(self) -> None:
        """A producer did not hear that its batch was taken."""
        producer = self.random.choice(PRODUCERS)
        if self.sent[producer] >= 0:
            self._running().apply(self._batch(producer, self.sent[producer]))
            self.acknowledged[producer] = self.sent[producer]

    def _ask(self) -> None:
        engine = self._running()
        (release,) = engine.release("asked")
        self.publish(release)
        self._check_count(engine, release)

    def _wait(self) -> None:
        seconds = self.random.choice((1.0, 4.0, 12.0, 25.0))
        self.now += seconds
        self.passed += seconds
        self._running().advance()

    def _set_back(self) -> None:
        """The system's clock is set back, for a while: rows come, and the engine looks at the clock."""
        seconds = self.random.choice(BACK)
        self._running()
        self.now -= seconds
        try:
            self._send()
            self._running().advance()
            self._send()
        finally:
            self.now += seconds

    def _reopen(self) -> None:
        if self.engine is not None:
            self.engine.close()
            self.engine.log.close()
            self.engine = None
        self._running()

    def _roll_back(self) -> None:
        """Somebody puts a backup back: noticed if an answer was published since."""
        self.let_go()
        if self.disk.stopped:  # the process ended while it was being closed: before anybody touched the disk
            raise Stopped
        if self.backup is None:
            self._running()
            self.let_go()
            self.backup = self.disk.image(), self._published()
            return
        image, before = self.backup
        self.backup = None
        self.disk.fail_in = None
        current = self.disk.image()
        if self._published() == before or image == current:
            return
        self.disk.put_back(image)
        try:
            self.opened().close()
        except (StoreError, TwoPartyError):
            self.happened.append("noticed")
        else:
            self.wrong("a state that was rolled back was opened")
        self.disk.put_back(current)

    def _published(self) -> dict[str, int]:
        return {name: max((n for query, n in self.seen if query == name), default=0) for name, _ in self.seen}

    # What must be true.

    def _there(self, lasts: dict[str, int]) -> int:
        return sum(size for (producer, sequence), size in self.sizes.items() if sequence <= lasts[producer])

    def _check_count(self, engine: Engine, release: Release) -> None:
        """An answer counts what the stream has, and nothing of it twice."""
        found = round(release.record["value"])
        least = self._there({producer: engine.last_sequence(producer) for producer in PRODUCERS})
        if self.exact and not self.counted(found, least, self._there(self.sent)):
            self.wrong(f"{found} rows were counted of {least}, and at most {self._there(self.sent)} were sent")

    def counted(self, found: int, least: int, most: int) -> bool:
        """Return whether so many rows may be counted; ``most`` includes batches that were not acknowledged."""
        return found == least

    def _check_end(self) -> None:
        """Producers send what was not acknowledged, and then everything is counted once; every answer is in the log."""
        try:
            engine = self._running()
            for producer in PRODUCERS:
                for sequence in range(engine.last_sequence(producer) + 1, self.sent[producer] + 1):
                    engine.apply(self._batch(producer, sequence))
            engine.release("asked")  # which an earlier process may have drawn
            release = engine.release("asked")[0]
            self._wait_for_windows(engine)
        except PanstreamError as error:
            self.wrong(f"the stream does not go on: {error}")
        else:
            if self.exact and round(release.record["value"]) != self._there(self.sent):
                self.wrong(f"{release.record['value']} rows were counted in the end of {self._there(self.sent)}")
            if self.exact and any(query.window is not None for query in self.config.queries):
                self._check_windows(engine)

    def _wait_for_windows(self, engine: Engine) -> None:
        self.now += 10.0
        self.passed += 10.0
        engine.advance()

    def _check_windows(self, engine: Engine) -> None:
        """Every row is counted in one window: none of them was skipped."""
        found = round(sum(release.record["value"] for release in engine.log.history("windows")))
        if found != self._there(self.sent):
            self.wrong(f"{found} rows were counted in windows of {self._there(self.sent)}")
