"""A plugin of pytest that runs tests in forks of one process that has collected them: ``-p tests.forked_workers``.

Workers of pytest-xdist import and collect all tests again, which takes each of them 25 seconds of processor time, and
load every compiled kernel themselves. A fork has both already. A file belongs to one worker because of its fixtures.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import traceback
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run the tests in N forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks if there are any to run and forks are wanted."""
    count = session.config.getoption("--forks")
    if not count or not session.items or session.testsfailed or session.config.option.collectonly:
        return None
    if unsafe := _unsafe_threads():
        raise RuntimeError(f"modules of tests started threads, which a fork does not have: {', '.join(unsafe)}")
    files = deque(list(items) for _, items in itertools.groupby(session.items, lambda item: item.path))
    with contextlib.closing(_Workers(session, files)) as workers:
        workers.run(count)
    return True


def _unsafe_threads() -> list[str]:
    """Return the names of threads that their library does not start again in a fork.

    jemalloc and pyarrow do, polars does before its first expression; threads of pyarrow have no names of their own.
    """
    tasks = Path("/proc/self/task")
    names = sorted((task / "comm").read_text().strip() for task in tasks.iterdir()) if tasks.exists() else []
    own = Path("/proc/self/comm").read_text().strip() if names else ""
    pyarrows = [name for name in names if name == own]
    others = [name for name in names if name not in (own, "jemalloc_bg_thd", "polars-ooc-clea")]
    return others + pyarrows[1 + (os.cpu_count() or 1) :]


@dataclass
class _Worker:
    """The collecting process's view of a worker."""

    process: int
    connection: Connection
    files: deque[list[pytest.Item]] = field(default_factory=deque)  # the one that runs, and one to run next
    running: pytest.Item | None = None


class _Workers:
    def __init__(self, session: pytest.Session, files: deque[list[pytest.Item]]) -> None:
        self._session = session
        self._index = {id(item): number for number, item in enumerate(session.items)}
        self._files = files
        self._workers: list[_Worker] = []
        self._numbers = itertools.count()
        # Each worker has a folder of its own in this one: numbering folders of five processes takes time.
        self._folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def run(self, count: int) -> None:
        """Run all files on ``count`` workers; end early as ``-x`` and ``--maxfail`` ask."""
        for _ in range(min(count, len(self._files))):
            self._start(deque([self._files.popleft()]))
        while self._workers:
            for connection in wait([worker.connection for worker in self._workers]):
                worker = next(worker for worker in self._workers if worker.connection is connection)
                try:
                    message, *details = connection.recv()
                except EOFError:
                    self._ended(worker)
                else:
                    self._handle(worker, message, details)
            if self._session.shouldfail:
                raise self._session.Failed(self._session.shouldfail)
            if self._session.shouldstop:
                raise self._session.Interrupted(self._session.shouldstop)

    def close(self) -> None:
        """Let the workers finish the tests that they run, and wait for them."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            os.waitpid(worker.process, 0)

    def _start(self, files: deque[list[pytest.Item]]) -> None:
        ours, theirs = Pipe()
        number = next(self._numbers)
        process = os.fork()
        if process == 0:
            status = 1
            try:
                for worker in self._workers:  # else the others would not learn that the collecting process has ended
                    worker.connection.close()
                ours.close()
                _serve(self._session, theirs, files[0], self._folder / f"worker-{number}")
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        theirs.close()
        self._workers.append(_Worker(process, ours, files))

    def _handle(self, worker: _Worker, message: str, details: list[Any]) -> None:
        hook = self._session.config.hook
        match message:
            case "start":
                worker.running = worker.files[0].pop(0)
                hook.pytest_runtest_logstart(nodeid=worker.running.nodeid, location=worker.running.location)
            case "report":
                report = hook.pytest_report_from_serializable(config=self._session.config, data=details[0])
                hook.pytest_runtest_logreport(report=report)
            case "finish":
                assert worker.running is not None
                hook.pytest_runtest_logfinish(nodeid=worker.running.nodeid, location=worker.running.location)
                worker.running = None
                if not worker.files[0]:
                    worker.files.popleft()
            case "next file":
                following = self._files.popleft() if self._files else None
                if following is not None:
                    worker.files.append(following)
                # Numbers, not names: schemathesis gives several items the same name.
                worker.connection.send(None if following is None else [self._index[id(item)] for item in following])

    def _ended(self, worker: _Worker) -> None:
        """Report the test that ended its process, and run what is left of its file in a new one."""
        _, status = os.waitpid(worker.process, 0)
        self._workers.remove(worker)
        worker.connection.close()
        if worker.running is not None:
            report = pytest.TestReport(
                nodeid=worker.running.nodeid,
                location=worker.running.location,
                keywords={},
                outcome="failed",
                longrepr=f"the worker's process ended with status {os.waitstatus_to_exitcode(status)}",
                when="call",
            )
            self._session.config.hook.pytest_runtest_logreport(report=report)
        elif worker.files:
            raise RuntimeError(f"a worker ended with status {os.waitstatus_to_exitcode(status)} between two tests")
        for file in filter(None, worker.files):
            self._files.appendleft(file)
        if self._files:
            self._start(deque([self._files.popleft()]))


class _Sender:
    """Hooks of a worker that send what is reported to the collecting process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self) -> None:
        self._connection.send(("start",))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))

    def pytest_runtest_logfinish(self) -> None:
        self._connection.send(("finish",))


def _serve(session: pytest.Session, connection: Connection, items: list[pytest.Item], folder: Path) -> None:
    """Run the items and the files that are sent after them, until there are no more."""
    config: Any = session.config
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(_Sender(config, connection))
    folder.mkdir()
    config._tmp_path_factory._basetemp = folder
    # Output is captured in a file, whose position forks would share.
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
        while items:
            following: list[pytest.Item] = []
            for item, next_item in itertools.zip_longest(items, items[1:]):
                if connection.poll():  # nothing was asked for: the other end is closed
                    return
                if next_item is None:  # fixtures that the next file needs too stay, so it is fetched before this test
                    connection.send(("next file",))
                    following = [session.items[number] for number in connection.recv() or []]
                    next_item = following[0] if following else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            items = following
    session._setupstate.teardown_exact(None)
