"""Compile most kernels into the cache, so that tests and the processes that they start only load them.

Without this, test workers that need the same kernel at the same time would each compile it, and a busy machine would
compile while a test waits for an answer. ``make`` runs this beside the installation of what the tests need: it needs no
more than ``make run`` installs.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kernel_digests import TARGETS, digests


def parsers_and_queries() -> None:
    """Feed rows in every format to queries of every kind, as posted bodies and as files."""
    from panstream.audit.product import fork_server
    from panstream.audit.product._driver import IngestPath
    from panstream.audit.product._neighbouring_inputs import Neighbour, generate_rows, is_logged
    from panstream.audit.product.audit import bundled
    from panstream.engine.config.config import load_config
    from panstream.server.server import _warm_up

    for path in bundled():
        config = load_config(path)
        _warm_up(config)
        rows = Neighbour(name="the original", rows=generate_rows(config, now=1_800_000_000.0))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "audit.toml").write_text(path.read_text())
            for format in ("csv", "json", "parquet", "arrow", *(["log"] if is_logged(config) else [])):
                file = IngestPath(command="run", format=format).file
                Path(folder, file).write_bytes(rows.encode(config.stream.columns, format))
            fork_server._warm(folder)


def algorithms_and_scanner() -> None:
    """Update, merge and release every algorithm once, and search a file as the memory scanner does."""
    from panstream.testing.conformance import CHECKS
    from panstream.testing.memory import scanner
    from tests.conformance.specimens import specimens
    from tests.warm_scanner import BEFORE

    scanner._answer(BEFORE)
    for specimen in specimens():
        for check in CHECKS:
            if check.__name__ != "_error_bound_covers":  # its many draws compile nothing new
                check(specimen)


WORK: dict[str, Callable[[], None]] = {work.__name__: work for work in (parsers_and_queries, algorithms_and_scanner)}


def compile_in_turn(target: dict[str, str], work: str) -> None:
    """Compile what the digests need for one processor, then what ``work`` needs for this one.

    While one process compiles for another processor, the other compiles the kernels that both works share.
    """
    digests(target)
    subprocess.run([sys.executable, "-m", "tests.compile_kernels", work], check=False)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        WORK[sys.argv[1]]()
    else:
        with ThreadPoolExecutor(2) as cores:
            list(cores.map(compile_in_turn, ({}, *TARGETS.values()), WORK))
