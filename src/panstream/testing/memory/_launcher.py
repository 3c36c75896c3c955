"""Start the scanner process, send it the needles through a pipe, read its result, and check whether it is valid."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import panstream
from panstream.errors import InvalidParameter, NotSupported, PanstreamError
from panstream.testing.memory._encodings import ENCODINGS
from panstream.testing.memory._needles import LONGEST, Needle
from panstream.testing.memory._process import Target

_MIN_BITS = 48  # of a needle: the chance of a random match is then 4e-6 per GB, needle and encoding
_ERRORS: dict[str, type[PanstreamError]] = {
    "InvalidParameter": InvalidParameter,
    "NotSupported": NotSupported,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """The occurrences of a needle (by its index, never its value) in one encoding and one mapping or file."""

    needle: int
    encoding: str
    where: str
    """``"[heap]"``, ``"[stack]"``, ``"anon"``, the path of a mapped file, or ``"file:"`` and a scanned file's path."""
    count: int
    first: int
    """The lowest address, or offset in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The result of one scan; ``str`` of it is a table."""

    pid: int | None
    stopped: bool
    """Whether the process was stopped during the scan."""
    scanned_bytes: int
    regions: int
    files: int
    unread_bytes: int
    """Memory or files that exist and could not be read."""
    secret_bytes: int
    """Memory that the kernel hides from all other processes, so from this scan too."""
    needles: int
    decoys: int
    found: tuple[Occurrence, ...]
    found_needles: int
    decoys_found: int
    control_found: bool | None
    """None if no control was given."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the reasons why the scan is invalid; empty if it is valid."""
        faults = []
        if self.decoys_found:
            faults.append(f"{self.decoys_found} decoys that were never sent were found")
        if self.control_found is False:
            faults.append("the control was not found")
        if self.unread_bytes and self.stopped:
            faults.append(f"{self.unread_bytes} bytes could not be read")
        return tuple(faults)

    @property
    def valid(self) -> bool:
        """Return whether no decoy was found, the control was found, and all memory was read."""
        return not self.faults

    @property
    def ok(self) -> bool:
        """Return whether the scan is valid and found no needle."""
        return self.valid and not self.found

    def __str__(self) -> str:
        control = {True: "found", False: "NOT FOUND", None: "none given"}[self.control_found]
        running = "" if self.stopped or self.pid is None else " (not stopped)"
        target = "files only" if self.pid is None else f"process {self.pid}{running}"
        verdict = "clean" if self.ok else "needles found" if self.valid else "INVALID: " + "; ".join(self.faults)
        lines = [
            f"memory scan of {target}: {self.found_needles:,} of {self.needles:,} needles found",
            f"  scanned  {self.scanned_bytes / 1e6:,.1f} MB in {self.regions:,} mappings and {self.files:,} files; "
            f"{self.unread_bytes:,} bytes not readable, {self.secret_bytes:,} in secret memory",
            f"  decoys   {self.decoys_found:,} of {self.decoys:,} found",
            f"  control  {control}",
            f"  verdict  {verdict}",
        ]
        if self.found:
            lines += ["", f"  {'encoding':<10}  {'needles':>9}  {'copies':>9}  where"]
            copy_counts: dict[tuple[str, str], list[int]] = defaultdict(list)
            for occurrence in self.found:
                copy_counts[occurrence.encoding, occurrence.where].append(occurrence.count)
            lines += [
                f"  {encoding:<10}  {len(counts):>9,}  {sum(counts):>9,}  {where}"
                for (encoding, where), counts in sorted(copy_counts.items())
            ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """One scan: the process and files to read, the needles to search for, and the options."""

    pid: int | None
    stop: bool
    read_only: bool
    chunk_bytes: int
    files: Sequence[str]
    encodings: Sequence[str]
    needles: Sequence[Needle]
    decoys: Sequence[Needle]
    control: bytes | None

    def to_json(self) -> str:
        """Return the request as JSON; bytes are objects with their hexadecimal digits."""
        return json.dumps(
            {name: getattr(self, name) for name in self.__slots__}, default=lambda value: {"hex": value.hex()}
        )

    @classmethod
    def from_json(cls, text: str) -> ScanRequest:
        """Read the request that `to_json` wrote."""
        return cls(
            **json.loads(
                text, object_hook=lambda mapping: bytes.fromhex(mapping["hex"]) if "hex" in mapping else mapping
            )
        )


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
) -> ScanReport:
    """Search the memory of process ``pid`` and ``files`` for ``needles``, and report all occurrences.

    ``decoys`` are needles of the same shape that were never sent; ``control`` is a value that the target planted (None:
    no control). A directory among ``files`` means all files below it; ``pid=None`` scans files only. ``stop`` stops the
    process while it is read and resumes it afterwards. All memory that the process may write, or once wrote, is read,
    and with ``read_only`` mapped files and code too.

    Raises NotSupported unless the reader has permission: root, or the same user with Yama's ``ptrace_scope`` 0, or a
    target that called `allow_scan`.
    """
    if sys.platform != "linux":
        raise NotSupported(f"a memory scan reads /proc, which only Linux has; this platform is {sys.platform}")
    if pid is not None and pid < 1:
        raise InvalidParameter(f"pid must be positive or None, got pid={pid}")
    if pid == os.getpid():
        raise InvalidParameter("pid must not be the calling process, which holds the needles itself")
    if chunk_bytes < 1:
        raise InvalidParameter(f"chunk_bytes must be positive, got chunk_bytes={chunk_bytes}")
    request = ScanRequest(
        pid=pid,
        stop=stop,
        read_only=read_only,
        chunk_bytes=chunk_bytes,
        files=_checked_files(files),
        encodings=_checked_encodings(encodings),
        needles=_checked_needles(needles, "needles"),
        decoys=_checked_needles(decoys, "decoys"),
        control=None if control is None else bytes(control),
    )
    _checked_needles([] if control is None else [control], "control")
    if not request.needles:
        raise InvalidParameter("needles must not be empty")
    if common := set(request.needles) & {*request.decoys, request.control}:
        raise InvalidParameter(f"decoys and control must differ from all needles, got {len(common)} in common")
    result = _run(request, timeout)
    if "error" in result:
        raise _ERRORS.get(result["error"], PanstreamError)(result["message"])
    occurrences = tuple(
        Occurrence(needle=needle, encoding=request.encodings[encoding], where=where, count=count, first=first)
        for needle, encoding, where, count, first in result.pop("found")
    )
    return ScanReport(
        pid=pid,
        stopped=stop and pid is not None,
        needles=len(request.needles),
        decoys=len(request.decoys),
        found=occurrences,
        found_needles=len({occurrence.needle for occurrence in occurrences}),
        **result,
    )


def _run(request: ScanRequest, timeout: float) -> dict[str, Any]:
    environment = dict(os.environ)
    root = str(Path(panstream.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    resume = request.pid is not None and request.stop and not Target.is_stopped(request.pid)
    scanner = subprocess.Popen(
        [sys.executable, "-P", "-m", "panstream.testing.memory.scanner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        output, errors = scanner.communicate(request.to_json().encode(), timeout=timeout)
        failed = scanner.returncode != 0
    except subprocess.TimeoutExpired:
        raise PanstreamError(f"timeout must suffice for the scan, got timeout={timeout}") from None
    finally:
        if scanner.poll() is None:
            scanner.kill()
            scanner.communicate()
        if resume and scanner.returncode != 0 and request.pid is not None:
            # A scanner that was killed may have left the target stopped.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(request.pid, signal.SIGCONT)
    if failed:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise PanstreamError(f"the scanner ended with status {scanner.returncode}: {''.join(last)}")
    result: dict[str, Any] = json.loads(output)
    return result


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


def _checked_needles(needles: Iterable[object], name: str) -> list[Needle]:
    """Return ``needles`` as plain values; raise InvalidParameter for one that is too short, too long or repeated."""
    result = [_checked_needle(needle, name, position) for position, needle in enumerate(needles)]
    if len(set(result)) != len(result):
        raise InvalidParameter(f"{name} must be distinct, got {len(result) - len(set(result))} repeated")
    return result


def _checked_needle(needle: object, name: str, position: int) -> Needle:
    if isinstance(needle, bool) or not isinstance(needle, str | bytes | bytearray | int | np.integer):
        raise InvalidParameter(f"{name} must be str, bytes or int, got {type(needle).__name__} at {name}[{position}]")
    if isinstance(needle, int | np.integer):
        value = int(needle)
        if not -(1 << 63) <= value < 1 << 64 or abs(value).bit_length() < _MIN_BITS:
            raise InvalidParameter(
                f"integer {name} must have at least {_MIN_BITS} bits and fit in 64, "
                f"got {abs(value).bit_length()} bits at {name}[{position}]"
            )
        return value
    try:
        plain = str(needle) if isinstance(needle, str) else bytes(needle)
        size = len(plain.encode() if isinstance(plain, str) else plain)
    except UnicodeEncodeError:
        raise InvalidParameter(f"{name} must be valid Unicode, {name}[{position}] is not") from None
    if len(plain) * 8 < _MIN_BITS or size > LONGEST:
        raise InvalidParameter(
            f"{name} must have at least {_MIN_BITS} bits ({_MIN_BITS // 8} bytes or characters) "
            f"and at most {LONGEST} bytes, got {len(plain)} at {name}[{position}]"
        )
    return plain
