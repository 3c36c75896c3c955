"""A pytest plugin that tries mutants without importing anything twice: every mutant is a fork of one process that has
collected all tests; there the code of one function is exchanged, and the tests that call this function are run until
one fails.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from gc import freeze, unfreeze  # tests/conftest.py freezes what was collected, and keeps it so
from pathlib import Path
from typing import Any

import pytest
from changes import Mutant, parsed

__all__ = ["MOST", "Broken", "Forks", "Known", "exchange"]

LONGEST = 10.0  # seconds; tests that take longer are not used
MOST = 60.0  # seconds of tests for one mutant, unless said otherwise; what is not noticed by then counts as not noticed
MEMORY = 8 << 30
FAULT = 77  # how a fork ends whose job, not a test, went wrong
SHARED = ("privacy", "noise")  # what every audited case depends on


class Broken(Exception):
    """Unchanged code was noticed: nothing can be said about mutants."""


@dataclass
class Known:
    """How long every test takes and which functions it calls, as file:name."""

    most: float = MOST
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, list[str]] = field(default_factory=dict)

    def of(self, function: str, near: str) -> list[str]:
        """Return the tests that call the function, those of its own file first, then the quick ones; audited cases
        call their whole package.
        """
        package = str(Path(function).parent) + "/*"
        shared = Path(package).parent.name in SHARED
        chosen = [
            test
            for test, called in self.calls.items()
            if function in called or package in called or (shared and called[:1] and called[0].endswith("/*"))
        ]
        return self._ordered(chosen, near)

    def of_file(self, path: str, near: str) -> list[str]:
        """Return the tests that call anything in the file, those of its own file first, then the quick ones."""
        chosen = [test for test, called in self.calls.items() if any(name.startswith(path + ":") for name in called)]
        return self._ordered(chosen, near)

    def _ordered(self, tests: list[str], near: str) -> list[str]:
        def rank(test: str) -> tuple[bool, float]:
            return not test.startswith(near), self.seconds[test]

        found = []
        total = 0.0
        for test in sorted(tests, key=rank):
            total += self.seconds[test]
            if total > self.most:
                break
            found.append(test)
        return found


class Forks:
    """Runs jobs in forks of the process that has collected the tests."""

    def __init__(
        self,
        source: Path,
        work: Callable[[Forks], None],
        at_once: int,
        usable: Callable[[pytest.Item], bool],
        package: Callable[[pytest.Item], str | None],
        modules: Sequence[str],
    ) -> None:
        self.source = source
        self.usable = usable
        self.package = package  # of an audited case: it is taken to call everything there
        self.work = work
        self.modules = modules  # that have mutants
        self.at_once = at_once
        self.told = os.dup(2)  # forks say nothing on theirs
        self.items: dict[str, pytest.Item] = {}
        self.session: Any = None
        self.functions: dict[tuple[str, int], list[types.FunctionType]] = {}
        self.known = Known()
        self.failure: Exception | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Take the place of the usual loop."""
        self.session = session
        if session.testsfailed:
            self.failure = Broken(f"{session.testsfailed} files of tests could not be collected")
            return True
        self.items = {item.nodeid: item for item in session.items if self.usable(item)}
        warm_up()
        for module in self.modules:  # some are imported only when a function needs them
            importlib.import_module(module)
        unfreeze()
        here = str(self.source)
        for thing in gc.get_objects():
            if isinstance(thing, types.FunctionType) and thing.__code__.co_filename.startswith(here):
                self.functions.setdefault((thing.__code__.co_filename, thing.__code__.co_firstlineno), []).append(thing)
        forget()
        gc.collect()
        freeze()
        try:
            self.work(self)
        except Exception as error:  # pytest would only print it
            self.failure = error
        return True

    # -- what unchanged code does
    # ---------------------------------------------------------------------------------------

    def learn(self, kept: Path | None = None) -> None:
        """Run every test once by itself unless ``kept`` has what was learned about it; raise :class:`Broken` if one
        fails.
        """
        if kept is not None and kept.exists():
            found = Known(**json.loads(kept.read_text()) | {"most": MOST})
            self.known.seconds = {test: taken for test, taken in found.seconds.items() if test in self.items}
            self.known.calls = {test: called for test, called in found.calls.items() if test in self.items}
        with tempfile.TemporaryDirectory() as folder:
            names = [name for name in self.items if name not in self.known.seconds]
            jobs = [functools.partial(self._watch, name, Path(folder, str(at))) for at, name in enumerate(names)]
            failed = []
            for at, noticed, _ in self.forked(jobs, LONGEST * 4):
                learned = Path(folder, str(at))
                if noticed == 1:
                    failed.append(names[at])
                elif noticed == 0 and learned.exists():
                    self.known.seconds[names[at]], self.known.calls[names[at]] = json.loads(learned.read_text())
                else:
                    # Takes too long
                    self.known.seconds[names[at]] = math.inf
                    self.known.calls[names[at]] = []
        if kept is not None:
            kept.write_text(json.dumps(vars(self.known)))
        if failed:
            raise Broken("these tests fail on unchanged code: " + ", ".join(failed[:10]))

    def _watch(self, name: str, found: Path) -> bool:
        seen = dict[int, types.CodeType]()  # by address: hashing a code object reads all of it

        def trace(frame: types.FrameType, event: str, argument: object) -> None:
            code = frame.f_code
            seen[id(code)] = code

        package = self.package(self.items[name])
        if package is None:
            threading.settrace(trace)
            sys.settrace(trace)
        begun = time.process_time()
        failed = self.fails([name])
        sys.settrace(None)
        taken = time.process_time() - begun
        here = str(self.source)
        if package is None:
            called = {
                f"{each.co_filename}:{each.co_qualname}" for each in seen.values() if each.co_filename.startswith(here)
            }
        else:
            called = {f"{here}/{package}/*"}  # much slower if watched
        if taken <= LONGEST:
            found.write_text(json.dumps([taken, sorted(called)]))
        return failed

    # -- what changed code does
    # -----------------------------------------------------------------------------------------

    def tests_of(self, mutant: Mutant, near: str) -> list[str]:
        """Return the tests that call the mutant's function."""
        assert mutant.function is not None
        code = self.functions[str(mutant.path), mutant.function][0].__code__
        return self.known.of(f"{mutant.path}:{code.co_qualname}", near)

    def tried(self, mutant: Mutant, tests: list[str]) -> Callable[[], bool]:
        """Return the job that tells whether one of the tests fails on the mutant."""
        return functools.partial(self._try, mutant, tests)

    def _try(self, mutant: Mutant, tests: list[str]) -> bool:
        exchange(self.functions, mutant)
        return self.fails(tests)

    def fails(self, tests: list[str], *, tell: bool = False) -> bool:
        """Run the tests in this process until one fails; return whether one did, and ``tell`` which."""
        chosen = [self.items[test] for test in tests]
        for item, following in zip(chosen, [*chosen[1:], None][: len(chosen)], strict=True):
            # Processor time, so that a busy machine does not matter; the signal ends the process.
            signal.setitimer(signal.ITIMER_PROF, 10.0 + 10.0 * self.known.seconds.get(item.nodeid, LONGEST))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.testsfailed:
                if tell:
                    os.write(self.told, f"{item.nodeid} fails\n".encode())
                return True
        return False

    def forked(self, jobs: Sequence[Callable[[], bool]], seconds: float) -> Iterator[tuple[int, int, float]]:
        """Yield (number of the job, 0 not noticed / 1 noticed / 2 took too long, processor time) as they come in."""
        waiting = list(enumerate(jobs))[::-1]
        running = dict[int, tuple[int, float]]()
        while waiting or running:
            while waiting and len(running) < self.at_once:
                at, job = waiting.pop()
                running[_fork(job)] = (at, time.monotonic() + seconds)
            for child, (at, end) in list(running.items()):
                done, status, used = os.wait4(child, os.WNOHANG)
                if done or time.monotonic() > end:
                    if not done:
                        os.killpg(child, signal.SIGKILL)
                        os.waitpid(child, 0)
                    del running[child]
                    if done and os.WIFEXITED(status) and os.WEXITSTATUS(status) == FAULT:
                        raise Broken("a job failed by itself, not by a test")
                    late = not done or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF)
                    yield at, 2 if late else int(status != 0), used.ru_utime + used.ru_stime
            time.sleep(0.003)


def _fork(job: Callable[[], bool]) -> int:
    child = os.fork()
    if child:
        with contextlib.suppress(OSError):  # the child was faster
            os.setpgid(child, child)
        return child
    outcome = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        nothing = os.open(os.devnull, os.O_RDWR)
        told = os.dup(2)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        outcome = int(job())
    except Exception:
        os.write(told, traceback.format_exc().encode())
        outcome = FAULT
    finally:
        os._exit(outcome)
    return 0


def exchange(
    functions: dict[tuple[str, int], list[types.FunctionType]], mutant: Mutant, unchanged: bool = False
) -> None:
    """Give every live copy of the mutant's function the changed code."""
    assert mutant.function is not None
    path = str(mutant.path)
    tree = parsed(mutant.path) if unchanged else mutant.tree()
    code = next(
        one
        for one in _codes(compile(tree, path, "exec"))
        if one.co_firstlineno == mutant.function and one.co_name[0] != "<"
    )
    for function in functions[path, mutant.function]:
        if function.__code__.co_name == code.co_name:
            function.__code__ = (
                code.replace(co_freevars=function.__code__.co_freevars) if not code.co_freevars else code
            )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield inner
            yield from _codes(inner)


def warm_up() -> None:
    """Load the compiled kernels once, so that no fork has to."""
    from panstream.audit import cases

    known: set[type] = set()
    for case in cases():
        if case.kind == "production" and case.exact is not None and type(case.algorithm) not in known:
            known.add(type(case.algorithm))
            trial = case.exact().trial
            if trial is not None:
                trial.happens(True)


def forget() -> None:
    """Empty every cache that collecting the tests has filled, so that changed code is asked again."""
    for thing in gc.get_objects():
        if isinstance(thing, functools._lru_cache_wrapper) and str(thing.__module__).startswith("panstream"):
            thing.cache_clear()
            continue
        kind = type(thing)
        if str(kind.__module__).startswith("panstream") and hasattr(thing, "__dict__"):
            for name in list(vars(thing)):
                if isinstance(getattr(kind, name, None), functools.cached_property):
                    del vars(thing)[name]
