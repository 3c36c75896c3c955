"""A process with all imports done that runs the shipped commands, each in a fork.

It reads one JSON job per line from standard input and answers with one. Before other imports, the clock is replaced by
one that only the audit moves, so that times of two runs are equal. The numbers of estimates are masked where they
become records, so that everything else that is printed, stored or sent can be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import mmap
import os
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from panstream.primitives.fast_import import import_without_gc

_REAL = (time.time, time.time_ns)
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)
_MASKED: list[tuple[Any, str, Any]] = []  # what masks estimates, and what they replaced
_COMMANDS = (
    "panstream.cli.app",
    "panstream.distributed.sharded.session",
    "panstream.engine.reporting.export",
    "panstream.engine.runtime.ingest",
    "panstream.server.server",
)


def _main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("clock", help="a file of eight bytes: the time")
    arguments.add_argument("--instrument", metavar="MODULE", help="its inject_leaks() puts leaks into forks")
    options = arguments.parse_args()
    with open(options.clock, "r+b") as file:
        shown = mmap.mmap(file.fileno(), 8)
    time.time = lambda: struct.unpack("<d", shown[:8])[0]
    time.time_ns = lambda: int(time.time() * 1e9)
    import_without_gc(*_COMMANDS)  # by name: the command line is a layer above this one
    instrument = None if options.instrument is None else importlib.import_module(options.instrument)
    _mask_estimates()
    tree: Any = importlib.import_module("typer.main")
    tree.get_command = functools.cache(tree.get_command)  # built once here instead of in every fork
    for line in sys.stdin:
        job = json.loads(line)
        if "warm" in job:
            _warm(job["warm"])
            answer: dict[str, Any] = {}
        elif "wait" in job:
            _, status = os.waitpid(job["wait"], 0)
            answer = {"code": os.waitstatus_to_exitcode(status)}
        else:
            child = os.fork()
            if child == 0:
                _end_with_parent()
                os._exit(_run(job, instrument))
            answer = {"pid": child}
        print(json.dumps(answer), flush=True)
    gc.unfreeze()  # or DuckDB reports its objects as leaked


def _end_with_parent() -> None:
    """Let the system kill this process with its fork server: an audit that is killed would leave its runs behind."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _warm(directory: str) -> None:
    """Run the command in this process on the rows of a directory, so that forks inherit what it imports lazily."""
    for path in sorted(Path(directory).glob("rows.*")):
        sys.argv = ["panstream-audited", "run", f"{directory}/audit.toml", str(path), "--no-hardening"]
        with (
            contextlib.suppress(Exception, SystemExit),
            open(os.devnull, "w") as null,
            contextlib.redirect_stdout(null),
            contextlib.redirect_stderr(null),
        ):
            importlib.import_module("panstream.cli.main").main()
    gc.collect()
    gc.freeze()  # a collection in a fork would write to all objects and so copy every page


def _count_steps() -> None:
    """Record the number of steps of the clock in a file, so that commits can be compared relative to it."""
    from panstream.engine.planner.public_facts import CommitTimer

    # While a file is read it is also committed every second, and the number of seconds depends on the machine.
    _replace(importlib.import_module("panstream.engine.runtime.ingest"), "_CLOCK_CHECK", float("inf"))
    real = CommitTimer.next
    passed = 0

    def counting(instance: Any) -> None:
        nonlocal passed
        real(instance)
        passed += 1
        Path("steps").write_text(str(passed))

    _replace(CommitTimer, "next", counting)


def _count_looks() -> None:
    """Record the number of reads of a followed file without new data, so that the audit knows when it has been read."""
    from panstream.engine.sources import TailSource

    real: Any = TailSource.batches

    def counting(instance: Any) -> Any:
        looks = 0
        for batch in real(instance):
            yield batch
            if batch is None:
                looks += 1
                Path("looks.new").write_text(str(looks))
                os.replace("looks.new", "looks")

    _replace(TailSource, "batches", counting)


def _mask_estimates() -> None:
    """Replace the numbers of estimates by constants before they are used; the rest must not depend on any row."""
    from panstream.algorithms.heavy_hitters.count_rows import CountRows, ErrorQuantiles
    from panstream.algorithms.heavy_hitters.estimates import (
        CountedName,
        DecodedAnswer,
        ItemEstimates,
        LazyDecodedTables,
    )
    from panstream.algorithms.heavy_hitters.point_counts import PointCounts
    from panstream.algorithms.heavy_hitters.released_tables import ReleasedTables
    from panstream.core.estimate import Estimate

    engine = importlib.import_module("panstream.engine.runtime.engine")
    decoder = importlib.import_module("panstream.engine.runtime.name_decoder")
    real = engine.release_record

    def masked(plan: Any, drawn: Any, *rest: Any) -> Any:
        estimate = drawn.estimate()
        name = estimate.name.partition(" (")[0]  # the suffix "(no data)" follows from released numbers
        constant = Estimate(value=12.0, standard_error=2.0, claim=estimate.claim, name=name)
        if isinstance(estimate, ItemEstimates):
            tables = estimate.held.tables
            shown = replace(tables, levels=np.zeros_like(tables.levels), rows=np.zeros_like(tables.rows))
            masked_fields = {field.name: getattr(constant, field.name) for field in fields(constant)}
            constant = replace(
                estimate, **masked_fields, held=LazyDecodedTables(shown), listing_threshold=shown.listing_threshold
            )
        return real(plan, replace(drawn, estimate=lambda: constant), *rest)

    def one_name(tables: ReleasedTables) -> DecodedAnswer:
        item = CountedName(name="12", count=12.0, standard_error=2.0, interval=(8.0, 16.0))
        rows = CountRows(tables.rows, 1.0)
        options = {"max_item_bytes": tables.max_item_bytes, "step": tables.bits, "seed": int(tables.seed)}
        options["repeats"] = tables.repeats
        return DecodedAnswer((item,), PointCounts(rows=rows, law=ErrorQuantiles(()), **options))

    _MASKED.extend([(engine, "release_record", real), (decoder, "decode_names", decoder.decode_names)])
    _replace(engine, "release_record", masked)
    _replace(decoder, "decode_names", one_name)
    _replace(decoder, "ThreadPoolExecutor", _InlineExecutor)


def _without_noise() -> None:
    """Show answers and states without masks and without noise: what must not count must not change them either."""
    from panstream.engine.runtime.engine import Engine

    for owner, name, real in _MASKED:
        _replace(owner, name, real)
    shards = importlib.import_module("panstream.distributed.sharded.session")
    for kind in (Engine, shards.ClusterEngine, shards.ReadPlan):
        _replace(kind, "__init__", functools.partialmethod(kind.__init__, zero_noise=True))


def _replace(owner: Any, name: str, value: Any) -> None:
    """Replace an attribute; raise AttributeError if there is none, since the audit would then compare two machines."""
    getattr(owner, name)
    setattr(owner, name, value)


class _InlineExecutor(Executor):
    """Decodes names in the step that draws them, since the time that a thread takes depends on the machine."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Call the function and return a finished future."""
        future: Future[Any] = Future()
        future.set_result(function(*args, **options))
        return future


def _run(job: dict[str, Any], instrument: Any) -> int:
    code = 70
    leaked_code: Callable[[int], int] = int
    try:
        os.chdir(job["directory"])
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            opened = os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(opened, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        if job["real_clock"]:  # Dask's timeouts need it; engines bound the replaced clock when they were imported
            time.time, time.time_ns = _REAL
        _count_steps()
        _count_looks()
        if job["exact"]:
            _without_noise()
        if job["plants"]:
            leaked_code = instrument.inject_leaks(job["plants"])
        sys.argv = ["panstream-audited", *job["argv"]]
        code = 0
        try:
            if job["client"] is not None:
                from panstream.audit.product._sending_client import send

                send(*job["client"])
            else:
                importlib.import_module("panstream.cli.main").main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return leaked_code(code)


if __name__ == "__main__":
    _main()
