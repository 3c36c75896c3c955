"""Scans of real processes: what is there is found once and named rightly, what was wiped is not."""

import base64
import itertools
import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from panstream.errors import InvalidParameter, PanstreamError
from panstream.testing.memory import _launcher, make_needles, plant_control, scan
from panstream.testing.memory._launcher import ScanRequest
from panstream.testing.memory._process import Target
from panstream.testing.memory.scanner import _answer
from tests.scanned import Scanned

# Reads the number of bytes, then the bytes themselves.
HOLDER = """
import ctypes, mmap
held = bytearray(int(line()))
fill(held)
"""

Start = Callable[..., Scanned]


@pytest.fixture
def start() -> Iterator[Start]:
    children = []

    def begin(data: bytes, program: str = "answer(); line()") -> Scanned:
        child = Scanned(HOLDER + program)
        children.append(child)
        child.send(b"%d\n" % len(data) + data)
        child.wait_ready()
        return child

    yield begin
    for child in children:
        child.close()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scanner's work be done in this process, to save its start."""

    def run(order: ScanRequest, timeout: float) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(json.dumps(_answer(ScanRequest.from_json(order.to_json()))))
        return result

    monkeypatch.setattr(_launcher, "_run", run)


def encoded(needle: str, integer: int) -> list[tuple[int, str, bytes]]:
    """Return (0 for the text and 1 for the integer, encoding, bytes as other programs write them)."""
    data = needle.encode()
    texts = [
        ("raw", data),
        ("utf-16-le", needle.encode("utf-16-le")),
        ("utf-32-le", needle.encode("utf-32-le")),
        ("base64", base64.b64encode(b"user=" + data + b"&")),
        ("base64", base64.b64encode(b"user: " + data + b",")),
        ("base64", base64.b64encode(b"a user " + data)),
        ("base64url", base64.urlsafe_b64encode(b"\xff\xff\xff" + data).replace(b"_", b"-")),
        ("hex", data.hex().encode()),
        ("hex-upper", data.hex().upper().encode()),
        ("json", json.dumps({"id": needle}).encode()),
        ("json-u", "".join(f"\\u{ord(letter):04x}" for letter in needle).encode()),
        ("json-u", "".join(f"\\u{ord(letter):04X}" for letter in needle).encode()),
        ("percent", quote(needle).encode()),
    ]
    numbers = [
        ("int64-le", np.array([integer], "<i8").tobytes()),
        ("int64-be", np.array([integer], ">i8").tobytes()),
        ("decimal", str(integer).encode()),
        ("float64", np.array([integer], "<f8").tobytes()),
        ("hex", f"{integer:016x}".encode()),
        ("utf-16-le", str(integer).encode("utf-16-le")),
        ("base64", base64.b64encode(b"id=" + str(integer).encode())),
    ]
    return [(0, *text) for text in texts] + [(1, *number) for number in numbers]


@pytest.mark.slow
def test_every_encoding_is_found_at_odd_alignment(start: Start) -> None:
    # The characters make all encodings differ: quote, blank, letters of hex digits, base64's last two digits.
    needle = make_needles(1)[0] + '" ?>~' + "é" + chr(0x3B1)
    (integer,) = make_needles(1, "int")
    pieces = encoded(needle, integer)
    held = bytearray()
    for _, _, piece in pieces:
        held += b"." * (1 + len(held) % 2) + piece  # every piece begins at an odd offset
    expected: dict[tuple[int, str], int] = {}
    for owner, encoding, _ in pieces:
        expected[owner, encoding] = expected.get((owner, encoding), 0) + 1
    report = start(bytes(held)).scan([needle, integer])
    found = {(finding.needle, finding.encoding): finding.count for finding in report.found}
    # Bytes of the URL-safe alphabet that happen to hold neither of its own two digits are plain base64.
    assert expected[0, "base64"] + expected.pop((0, "base64url")) == found.pop((0, "base64")) + found.pop(
        (0, "base64url"), 0
    )
    expected.pop((0, "base64"))
    assert found == expected
    assert report.valid
    assert not report.ok
    assert needle not in str(report)
    assert str(integer) not in str(report)
    assert "2 of 2 needles found" in str(report)


def test_python_objects_are_found(start: Start, here: None) -> None:
    needles: list[Any] = [*make_needles(3), *make_needles(1, "int"), "naïveté" + make_needles(1)[0]]
    program = """
a, b, c, d, e = held.decode().split("|")
kept = a, b + chr(0x3b1), c + chr(0x1f600), int(d), e + "é"
del a, b, c, d, e
held[:] = bytes(len(held))
answer(); line()
"""
    report = start("|".join(map(str, needles)).encode(), program).scan(needles)
    found = {(finding.needle, finding.encoding) for finding in report.found}
    assert {(0, "raw"), (1, "utf-16-le"), (2, "utf-32-le"), (3, "python-int"), (4, "latin-1")} <= found


@pytest.mark.slow
def test_wiped_memory_is_clean(start: Start) -> None:
    needles = make_needles(2000)
    program = "answer(); line(); held[:] = bytes(len(held)); answer(); line()"
    child = start(b"/".join(needle.encode() for needle in needles[:1000]), program)
    before = child.scan(needles)
    assert before.found_needles == 1000
    assert {finding.needle for finding in before.found} == set(range(1000))
    child.send(b"\n")
    child.wait_ready()  # it goes on after the scan
    after = child.scan(needles)
    assert after.ok, after
    assert after.found == ()
    assert after.scanned_bytes > 1_000_000
    assert after.regions > 10
    assert after.control_found
    assert "clean" in str(after)


@pytest.mark.slow
def test_found_once_at_every_border(start: Start, here: None) -> None:
    needles = make_needles(2000, "bytes", 24)
    held = b"".join(needle + bytes(i % 7) for i, needle in enumerate(needles))
    child = start(held)
    for chunk_bytes in (512, 4096, 1 << 24):
        report = child.scan(needles, encodings=["raw"], chunk_bytes=chunk_bytes)
        assert [finding.needle for finding in report.found] == list(range(2000))
        assert {finding.count for finding in report.found} == {1}


def test_unusual_mappings(start: Start, here: None, tmp_path: Path) -> None:
    """Memory that is shared, sparse, split, protected, written in a private file mapping, or beyond a file's end."""
    needles = make_needles(6)
    file = tmp_path / "mapped"
    file.write_bytes(needles[5].encode() + bytes(3 * mmap.PAGESIZE))
    program = f"""
page = mmap.PAGESIZE
def at(area):
    return ctypes.addressof(ctypes.c_char.from_buffer(area))
protect = ctypes.CDLL(None).mprotect
protect.argtypes = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int
parts = [memoryview(held)[i * 32:(i + 1) * 32] for i in range(5)]
shared = mmap.mmap(-1, page)
shared[5:37] = parts[0]
# 0x4000 is MAP_NORESERVE: nothing is set aside for the 16 GB.
sparse = mmap.mmap(-1, 1 << 34, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
sparse[(1 << 33) + 77 : (1 << 33) + 109] = parts[1]
split = mmap.mmap(-1, 2 * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
split[page - 9 : page + 23] = parts[2]
assert protect(at(split) + page, page, 1) == 0
closed = mmap.mmap(-1, page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
closed[1:33] = parts[3]
assert protect(at(closed), page, 0) == 0
with open({str(file)!r}, "r+b") as opened:
    written = mmap.mmap(opened.fileno(), 3 * page, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    written[page + 7 : page + 39] = parts[4]
    assert protect(at(written), 3 * page, 1) == 0
    only_read = mmap.mmap(opened.fileno(), page, mmap.MAP_PRIVATE, mmap.PROT_READ)
    only_read[0]
del parts
held[:] = bytes(len(held))
with open({str(tmp_path / "cut")!r}, "w+b") as opened:
    opened.truncate(2 * page)
    beyond = mmap.mmap(opened.fileno(), 2 * page)
    opened.truncate(1)
answer(); line()
"""
    child = start("".join(needles[:5]).encode(), program)
    report = child.scan(needles)
    assert [(finding.needle, finding.count) for finding in report.found] == [(i, 1) for i in range(5)]
    assert [finding.where for finding in report.found] == ["/dev/zero (deleted)", "anon", "anon", "anon", str(file)]
    assert report.valid, report
    assert report.scanned_bytes < 1 << 28
    whole = child.scan(needles, read_only=True)
    assert [finding.needle for finding in whole.found] == list(range(6))
    assert whole.scanned_bytes > report.scanned_bytes


def test_files_and_directories(here: None, tmp_path: Path) -> None:
    needles = make_needles(4)
    inner = tmp_path / "store" / "inner"
    inner.mkdir(parents=True)
    (inner / "log").write_bytes(b"x" + needles[0].encode() * 70_000)
    (tmp_path / "store" / "link").symlink_to("/")
    (tmp_path / "alone").write_bytes(needles[1].encode("utf-16-le"))
    (tmp_path / "unasked").write_bytes(needles[2].encode())
    os.mkfifo(tmp_path / "store" / "pipe")
    files = [tmp_path / "store", tmp_path / "alone"]
    report = scan(None, needles, decoys=[], control=None, files=files)
    assert [(f.needle, f.encoding, f.where, f.count, f.first) for f in report.found] == [
        (0, "raw", f"file:{inner / 'log'}", 70_000, 1),
        (1, "utf-16-le", f"file:{tmp_path / 'alone'}", 1, 0),
    ]
    assert (report.files, report.scanned_bytes, report.regions) == (2, 1 + 70_000 * 32 + 64, 0)
    assert "files only" in str(report)
    with pytest.raises(InvalidParameter, match="files must exist"):
        scan(None, needles, decoys=[], control=None, files=[tmp_path / "missing"])


def test_a_value_that_ends_in_an_untouched_page(start: Start, here: None) -> None:
    """The last bytes of UTF-32 text are zeros, so the page that holds them may never have been written."""
    (needle,) = make_needles(1)
    program = """
pages = mmap.mmap(-1, 4 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
pages[2 * mmap.PAGESIZE - 125 : 2 * mmap.PAGESIZE] = memoryview(held)[:125]
held[:] = bytes(len(held))
answer(); line()
"""
    report = start(needle.encode("utf-32-le"), program).scan([needle])
    assert [(finding.encoding, finding.count) for finding in report.found] == [("utf-32-le", 1)]


def test_a_found_decoy_or_a_missing_control_makes_the_report_invalid(start: Start, here: None) -> None:
    needles = make_needles(2)
    decoys = make_needles(2)
    child = start(decoys[1].encode())
    report = child.scan(needles, decoys=decoys)
    assert (report.found_needles, report.decoys_found, report.valid, report.ok) == (0, 1, False, False)
    assert "INVALID: 1 decoys that were never sent were found" in str(report)
    report = child.scan(needles, control=make_needles(1, "bytes")[0])
    assert (report.control_found, report.valid, report.ok) == (False, False, False)
    assert "INVALID: the control was not found" in str(report)
    report = child.scan(needles, control=None)
    assert (report.control_found, report.ok) == (None, True)
    assert "none given" in str(report)


def test_memory_that_cannot_be_read_makes_the_report_invalid(
    start: Start, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(b"")
    calls = itertools.count()
    read = os.preadv

    def now_and_then(*arguments: Any) -> int:
        if next(calls) % 50 == 20:
            raise OSError(5, "Input/output error")
        return read(*arguments)

    monkeypatch.setattr(os, "preadv", now_and_then)
    report = child.scan(make_needles(1), chunk_bytes=mmap.PAGESIZE)
    assert report.unread_bytes > 0
    assert not report.valid
    assert f"{report.unread_bytes} bytes could not be read" in str(report)
    assert child.scan(make_needles(1), stop=False, chunk_bytes=mmap.PAGESIZE, control=None).valid


def test_plant_control_keeps_its_own_copy() -> None:
    marker = b"0123456789"
    planted = plant_control(marker)
    assert planted == marker
    assert planted is not marker


def test_the_process_stands_still_and_goes_on(start: Start, here: None) -> None:
    child = start(b"", "answer()\nwhile line() != b'end': answer()")
    with Target(child.pid) as target:
        target.stop()
        assert Target.is_stopped(child.pid)
    child.send(b"\n")
    child.wait_ready()
    assert child.scan(make_needles(1), stop=False).ok
    # A process that was stopped before stays so.
    child.process.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert child.scan(make_needles(1)).ok
    assert Target.is_stopped(child.pid)


def test_a_scan_cut_short_lets_the_process_go_on(start: Start) -> None:
    child = start(b"", "answer()\nwhile True: line(); answer()")
    with pytest.raises(PanstreamError, match=r"timeout must suffice for the scan, got timeout=0\.01"):
        child.scan(make_needles(1), timeout=0.01)
    child.send(b"\n")
    child.wait_ready()


def test_a_scanner_that_fails_is_reported(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child = start(b"", "answer()\nwhile True: line(); answer()")
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho 'no module named panstream' >&2\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(failing))
    with pytest.raises(PanstreamError, match="the scanner ended with status 3: no module named panstream"):
        child.scan(make_needles(1))
    child.send(b"\n")
    child.wait_ready()


def test_a_process_that_has_ended_is_named(start: Start, here: None) -> None:
    child = start(b"")
    child.process.kill()
    # Dead but not yet waited for: the process still has an entry, and no memory.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    for _ in range(2):
        with pytest.raises(InvalidParameter, match=rf"pid must name a process that runs .* got pid={child.pid}"):
            child.scan(make_needles(1))
        child.process.wait()


@pytest.mark.slow
def test_a_forbidden_process_is_named(start: Start) -> None:
    """A process that forbids core dumps may be read only with a capability, which is taken from this scanner."""
    child = start(b"", "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); answer(); line()")
    program = f"""
import ctypes
from panstream.errors import NotSupported
from panstream.testing.memory import scan
ctypes.CDLL(None).prctl(24, 19, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_PTRACE: needed and possible as root only
try:
    scan({child.pid}, ["abcdefgh"], decoys=[], control=None)
except NotSupported as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"the memory of process {child.pid} may not be read by this user" in done.stdout
    assert "allow_scan" in done.stdout
