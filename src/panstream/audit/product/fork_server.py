"""A process that has everything imported and runs the shipped commands, each in a fork: started once, forked often.

It reads one JSON job a line from standard input and answers with one. Before anything is imported, the clock is
replaced by one that stands still until the auditor moves it, so that times of two runs can be compared; estimates lose
their numbers where they become records, so that whatever else is printed, stored or sent can be compared as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import json
import mmap
import os
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
_COMMANDS = (
    "panstream.cli.app",
    "panstream.distributed.sharded.session",
    "panstream.engine.reporting.export",
    "panstream.engine.runtime.ingest",
    "panstream.server.server",
)


def _main() -> None:
    """Serve jobs until standard input ends."""
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
    tree.get_command = functools.cache(tree.get_command)  # every fork would build the same commands
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
                os._exit(_run(job, instrument))
            answer = {"pid": child}
        print(json.dumps(answer), flush=True)


def _warm(directory: str) -> None:
    """Run the command here on the rows of a directory, so that what is loaded on the way need not be loaded in every
    fork.
    """
    for path in sorted(Path(directory).glob("rows.*")):
        sys.argv = ["panstream-audited", "run", f"{directory}/audit.toml", str(path), "--no-hardening"]
        with (
            contextlib.suppress(Exception, SystemExit),
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            importlib.import_module("panstream.cli.main").main()
    gc.collect()
    gc.freeze()  # a collector that looks through all this in a fork would have every page copied


def _count_steps() -> None:
    """Write down how many steps of the clock have passed, so that commits can be compared with them."""
    from panstream.engine.planner.public_facts import CommitTimer

    # Files are also committed every second while they are read: how many seconds that takes depends on the machine.
    run: Any = importlib.import_module("panstream.engine.runtime.ingest")
    run._PULSE = float("inf")
    pace: Any = CommitTimer
    real = pace.next
    passed = 0

    def counting(instance: Any) -> None:
        nonlocal passed
        real(instance)
        passed += 1
        Path("steps").write_text(str(passed))

    pace.next = counting


def _count_looks() -> None:
    """Write down how often a followed file was looked at in vain, so that the auditor knows when it has been read."""
    from panstream.engine.sources import TailSource

    follow: Any = TailSource
    real = follow.batches

    def counting(instance: Any) -> Any:
        looks = 0
        for batch in real(instance):
            yield batch
            if batch is None:
                looks += 1
                Path("looks.new").write_text(str(looks))
                os.replace("looks.new", "looks")

    follow.batches = counting


def _mask_estimates() -> None:
    """Take the numbers out of estimates before anything is made of them; what remains must not depend on any row."""
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

    engine: Any = importlib.import_module("panstream.engine.runtime.engine")
    spelling: Any = importlib.import_module("panstream.engine.runtime.name_decoder")
    real = engine.release_record

    def masked(plan: Any, drawn: Any, *rest: Any) -> Any:
        estimate = drawn.estimate()
        name = estimate.name.partition(" (")[0]  # "(no data)" is said by the released numbers
        constant = Estimate(value=12.0, standard_error=2.0, claim=estimate.claim, name=name)
        if isinstance(estimate, ItemEstimates):
            tables = estimate.held.tables
            shown = replace(tables, levels=np.zeros_like(tables.levels), rows=np.zeros_like(tables.rows))
            ours = {field.name: getattr(constant, field.name) for field in fields(constant)}
            constant = replace(
                estimate, **ours, held=LazyDecodedTables(shown), listing_threshold=shown.listing_threshold
            )
        return real(plan, replace(drawn, estimate=lambda: constant), *rest)

    def one_name(tables: ReleasedTables) -> DecodedAnswer:
        item = CountedName(name="12", count=12.0, standard_error=2.0, interval=(8.0, 16.0))
        rows = CountRows(tables.rows, 1.0)
        options = {"max_item_bytes": tables.max_item_bytes, "step": tables.bits, "seed": int(tables.seed)}
        return DecodedAnswer((item,), PointCounts(rows=rows, law=ErrorQuantiles(()), **options))

    engine.release_record = masked
    spelling.decode_names = one_name
    spelling.ThreadPoolExecutor = _InlineExecutor


class _InlineExecutor(Executor):
    """Reads names in the step that draws them: how long it takes depends on the machine."""

    def __init__(self, *given: Any, **options: Any) -> None:
        pass

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Call the function."""
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
        if job["real_clock"]:  # Dask waits by it; engines were given the other one when they were imported
            time.time, time.time_ns = _REAL
        _count_steps()
        _count_looks()
        if job["plants"]:
            leaked_code = instrument.inject_leaks(job["plants"])
        sys.argv = ["panstream-audited", *job["argv"]]
        code = 0
        try:
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
