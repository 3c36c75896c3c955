"""A history of a server's engine: batches of one sender overtake each other, are lost, repeated and fenced off.

Rows are in the order of their event times and windows have no lateness, so that a batch that is applied before an
earlier one closes that one's window: its rows are late, and the window's answer is too small.
"""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from panstream.engine.config.config import Config
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.producers import Sender
from panstream.engine.storage.release_log import Release
from panstream.errors import PanstreamError
from panstream.server.auth import Limits
from panstream.server.ingest.engine_thread import EngineThread
from panstream.server.ingest.jobs import Job, Stage
from tests.engine.runtime.streams import config, question
from tests.simulated.history import ASKED, History, Wrong

WINDOWS = question("windows", "SELECT COUNT(*) FROM s", window="10 seconds")
LIMITS = Limits(out_of_order=4, order_time=5.0)
SPACING = 4.0  # seconds of event time between two batches
TOKEN = "token"


class Reordered(History):
    """A sender with several batches in flight, and a worker that is called step by step, without its threads."""

    worker: EngineThread | None = None
    caught: Wrong | None = None  # in the middle of a commit, where the worker takes it for a failure of the store
    refused_before = False  # what the disk refuses after a commit shows in the next one

    def _event(self) -> None:
        self.refused_before = self.disk.refused
        super()._event()

    def excused(self) -> bool:
        return super().excused() or self.refused_before

    def settings(self) -> Config:
        return config(ASKED, WINDOWS, directory=self.root / "state", time="at")

    def let_go(self) -> None:
        if self.worker is not None:
            self.engine = self.worker.engine
            self.worker._applier.close()
        self.worker = None
        super().let_go()

    def _running(self) -> Engine:
        if self.worker is None:
            self.worker = EngineThread(self.opened, limits=LIMITS)
            self.worker._order._clock = lambda: self.now
            self._take_over()
        elif self.worker._applier.failed:
            self.worker._applier.reopen_engine()
            if self.worker._applier.failed:
                self._refused()
                return self._running()
        self.engine = self.worker.engine
        return self.engine

    def _take_over(self) -> None:
        """Open the producer, and compare how far the server has come with what was acknowledged."""
        assert self.worker is not None
        opened = self.worker.engine.producers.open(TOKEN, "p", 9)
        self.worker.engine.commit()
        self.sender = Sender(TOKEN, opened.id)
        last = max(0, self.worker.engine.last_sequence(opened.position_key))
        if not max(0, self.acknowledged["p"]) <= last <= max(0, self.sent["p"]):
            self.wrong(f"{self.acknowledged['p']} batches were acknowledged, and {last} are there")
        self.acknowledged["p"] = last

    def _rows(self, number: int) -> RowBatch:
        size = self.sizes.setdefault(("p", number), self.random.randrange(1, 9))
        times = pa.array([int(number * SPACING * 1e6)] * size, pa.timestamp("us"))
        columns = {"user": pa.array([1] * size), "at": times}
        return RowBatch(columns=pa.RecordBatch.from_pydict(columns), first_row=1)

    def _arrive(self, numbers: list[int], sender: Sender) -> None:
        """Have batches arrive together, in this order, and end the step."""
        assert self.worker is not None
        jobs = [Job(None, sender, number, rows=self._rows(number), stage=Stage.READY) for number in numbers]
        waiting = [each.job for batches in self.worker._order._waiting.values() for each in batches.values()]
        self.worker._apply(jobs)
        self.worker._commit(lambda durable: self.worker.engine.step(durable=durable))  # type: ignore[union-attr]
        if self.caught is not None:
            raise self.caught
        for job in [*jobs, *waiting]:
            if job.stage is Stage.ANSWERED and job.refusal is None:
                if len(job.result.applied.late):
                    self.wrong(f"rows of batch {job.sequence} were late")
                self.acknowledged["p"] = max(self.acknowledged["p"], job.sequence)

    def _outstanding(self) -> list[int]:
        return list(range(max(0, self.acknowledged["p"]) + 1, max(0, self.sent["p"]) + 1))

    def _send(self) -> None:
        """Cut new batches, as far as the window allows, and have some of those in flight arrive in any order."""
        self._running()
        first = max(0, self.acknowledged["p"]) + 1
        self.sent["p"] = min(first + LIMITS.window - 1, max(0, self.sent["p"]) + self.random.randrange(1, 5))
        some = [number for number in self._outstanding() if self.random.random() < 0.7]
        self.random.shuffle(some)
        self._arrive(some, self.sender)

    def _again(self) -> None:
        """Send a batch once more, whether or not it was acknowledged."""
        self._running()
        if self.sent["p"] > 0:
            self._arrive([self.random.randrange(1, self.sent["p"] + 1)], self.sender)

    def _reopen(self) -> None:
        """A successor takes over the name; what its predecessor has in flight arrives behind it, and is refused."""
        self._running()
        before = self.sender
        self._take_over()
        last = self.acknowledged["p"]
        self._arrive([last + 1], before)
        if self.acknowledged["p"] != last:
            self.wrong("a batch under an old id was counted")

    def _wait(self) -> None:
        self.now += self.random.choice((1.0, 4.0, 12.0))
        self._running()
        self._arrive([], self.sender)

    def _ask(self) -> None:
        engine = self._running()
        (release,) = engine.release("asked")
        self.publish(release)
        self._check_sum(release, max(0, engine.last_sequence(engine.producers.position_key(self.sender))))

    def publish(self, release: Release) -> None:
        try:
            self._check_release(release)
        except Wrong as wrong:
            self.caught = wrong
            raise

    def _check_release(self, release: Release) -> None:
        super().publish(release)
        if self.exact and release.query == "windows":
            begin = _seconds(release.record["window"][0])
            inside = [size for (_, number), size in self.sizes.items() if begin <= number * SPACING < begin + 10.0]
            if round(release.record["value"]) != sum(inside):
                self.wrong(f"the window from {begin:g} has {release.record['value']} rows instead of {sum(inside)}")

    def _check_sum(self, release: Release, last: int) -> None:
        count = sum(size for (_, number), size in self.sizes.items() if number <= last)
        if self.exact and round(release.record["value"]) != count:
            self.wrong(f"{release.record['value']} rows were counted of {count}")

    def _check_end(self) -> None:
        """The sender sends what was not acknowledged, and then everything is counted once, in its window."""
        try:
            for _ in range(2):  # what the disk refused after the last commit shows in the first step, not in the second
                self._running()
                self._arrive(self._outstanding(), self.sender)
            engine = self._running()
            engine.release("asked")  # which an earlier process may have drawn
            (release,) = engine.release("asked")
        except PanstreamError as error:
            self.wrong(f"the stream does not go on: {error}")
        else:
            self._check_sum(release, max(0, self.sent["p"]))


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
