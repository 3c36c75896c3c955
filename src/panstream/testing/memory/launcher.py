"""Start the scanner process, give it the needles by a pipe, and read its answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import panstream
from panstream.errors import InvalidParameter, NotSupported, PanstreamError
from panstream.testing.memory.encodings import ENCODINGS
from panstream.testing.memory.needles import Needle, checked
from panstream.testing.memory.report import Finding, Report
from panstream.testing.memory.request import Request, write_request
from panstream.testing.memory.target import is_stopped

__all__ = ["scan"]

_ERRORS: dict[str, type[PanstreamError]] = {
    "InvalidParameter": InvalidParameter,
    "NotSupported": NotSupported,
}


def scan(
    pid: int | None,
    needles: Sequence[Needle],
    *,
    decoys: Sequence[Needle],
    control: bytes | None,
    encodings: Sequence[str] = ENCODINGS,
    files: Sequence[str | os.PathLike[str]] = (),
    stop: bool = True,
    read_only: bool = False,
    timeout: float = 600.0,
    chunk_bytes: int = 1 << 24,
) -> Report:
    """Look for ``needles`` in the memory of process ``pid`` and in ``files``, and report what was found where.

    ``decoys`` are needles of the same shape that nobody ever sent; ``control`` is a value known to be in the target's
    memory (None: do without). A directory among ``files`` stands for all files below it; ``pid=None`` scans files only.
    ``stop`` stops the process while it is read and lets it go on afterwards. All memory that the process may write, or
    once wrote, is read, and with ``read_only`` mapped files and code too.

    The reader must be allowed to: root, or the same user with Yama's ``ptrace_scope`` 0, or a target that called
    :func:`permit_scan`.
    """
    if sys.platform != "linux":
        raise NotSupported(f"a memory scan reads /proc, which only Linux has; this platform is {sys.platform}")
    request = Request(
        pid=_checked_pid(pid),
        stop=stop,
        read_only=read_only,
        chunk_bytes=_checked_chunk(chunk_bytes),
        files=_checked_files(files),
        encodings=_checked_encodings(encodings),
        needles=checked(needles, "needles"),
        decoys=checked(decoys, "decoys"),
        control=None if control is None else bytes(control),
    )
    checked([] if control is None else [control], "control")
    if not request.needles:
        raise InvalidParameter("needles must not be empty")
    if common := set(request.needles) & {*request.decoys, request.control}:
        raise InvalidParameter(f"decoys and control must differ from all needles, got {len(common)} in common")
    result = _run(request, timeout)
    if "error" in result:
        raise _ERRORS.get(result["error"], PanstreamError)(result["message"])
    found = tuple(
        Finding(needle=needle, encoding=request.encodings[encoding], where=where, count=count, first=first)
        for needle, encoding, where, count, first in result.pop("found")
    )
    return Report(
        pid=pid,
        stopped=stop and pid is not None,
        needles=len(request.needles),
        decoys=len(request.decoys),
        found=found,
        found_needles=len({finding.needle for finding in found}),
        **result,
    )


def _run(request: Request, timeout: float) -> dict[str, Any]:
    environment = dict(os.environ)
    root = str(Path(panstream.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    resume = request.pid is not None and request.stop and not is_stopped(request.pid)
    scanner = subprocess.Popen(
        [sys.executable, "-P", "-m", "panstream.testing.memory"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        output, errors = scanner.communicate(write_request(request), timeout=timeout)
        failed = scanner.returncode != 0
    except subprocess.TimeoutExpired:
        raise PanstreamError(f"timeout must suffice for the scan, got timeout={timeout}") from None
    finally:
        if scanner.poll() is None:
            scanner.kill()
            scanner.communicate()
        if resume and scanner.returncode != 0 and request.pid is not None:
            _let_go(request.pid)
    if failed:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise PanstreamError(f"the scanner ended with status {scanner.returncode}: {''.join(last)}")
    result: dict[str, Any] = json.loads(output)
    return result


def _let_go(pid: int) -> None:
    """Undo the stop that a scanner which was cut short may have left."""
    try:
        os.kill(pid, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        return


def _checked_pid(pid: int | None) -> int | None:
    if pid is not None and pid < 1:
        raise InvalidParameter(f"pid must be positive or None, got pid={pid}")
    if pid == os.getpid():
        raise InvalidParameter("pid must not be the calling process, which holds the needles itself")
    return pid


def _checked_chunk(chunk_bytes: int) -> int:
    if chunk_bytes < 1:
        raise InvalidParameter(f"chunk_bytes must be positive, got chunk_bytes={chunk_bytes}")
    return chunk_bytes


def _checked_files(files: Sequence[str | os.PathLike[str]]) -> list[str]:
    paths = [os.fspath(file) for file in files]
    for path in paths:
        if not os.path.exists(path):
            raise InvalidParameter(f"files must exist, got {path}")
    return paths


def _checked_encodings(encodings: Sequence[str]) -> list[str]:
    unknown = sorted(set(encodings) - set(ENCODINGS))
    if unknown or not encodings:
        raise InvalidParameter(f"encodings must be some of {', '.join(ENCODINGS)}; got {', '.join(unknown) or 'none'}")
    return [encoding for encoding in ENCODINGS if encoding in encodings]
