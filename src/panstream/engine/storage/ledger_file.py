"""Ledger files next to data files: one line for each charge.

Lines are only appended, and are on disk before the answer they pay for is drawn. A last line that a crash cut off paid
for no answer, and is overwritten. After every ``_CHECKPOINT_EVERY`` charges a line sums up all previous ones, and
reading starts there. A charge for several files is in the ledger of each, with the same key at its end. ::

    {"panstream-ledger": 1}
    {"budget": 3.0}
    ["SELECT COUNT(*) FROM visits", 1.0, 0.0, "event", "add-remove", null, null]
    ["SELECT COUNT(DISTINCT id) FROM '*.csv'", 1.0, 0.0, "user", "add-remove", null, null, "9f86d081884c7d65"]
    {"checkpoint": [["earlier answers", 1.0, 0.0, "event", "add-remove", null, null]], "budget": 3.0}

A row is in one file, so its total loss is that of the file's ledger. A user may have rows in several files, so a
user's total counts every charge to any of them once.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from panstream.engine.storage.disk import Disk, wrap_os_errors
from panstream.errors import InvalidBytes, InvalidParameter, StoreDamaged, StoreError
from panstream.primitives import validation as checks
from panstream.privacy.claim import Adjacency, Claim, Unit
from panstream.privacy.composition import compose_sequential
from panstream.privacy.ledger import Kind, Ledger, LedgerTotal, say_totals

LEDGER = ".ledger"  # file name suffix
_HEADER = b'{"panstream-ledger": 1}\n'
_CHECKPOINT = b'\n{"checkpoint": '
_CHECKPOINT_EVERY = 1000  # charges
_FIELDS = 7  # of a charge, without the key of several files
_EVENT: Kind = ("event", "add-remove")
_IN_ONE_FILE: tuple[Unit, ...] = ("event", "record")  # all other units may have rows in several files
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True)
class Spent:
    """The charges for all answers about some files, one ledger per file.

    Attributes:
        files: The ledger of every file.
        joint: All charges to any of them, those for several files once.
    """

    files: tuple[Ledger, ...]
    joint: Ledger

    def total(
        self, unit: Unit, adjacency: Adjacency = "add-remove", window: float | None = None
    ) -> tuple[float, float]:
        """Return the (epsilon, delta) that one unit can have lost; epsilon is inf if it is unbounded."""
        if unit not in _IN_ONE_FILE:
            return self.joint.total(unit, adjacency, window)
        totals = [ledger.total(unit, adjacency, window) for ledger in self.files]
        return max(epsilon for epsilon, _ in totals), max(delta for _, delta in totals)

    def totals(self) -> tuple[LedgerTotal, ...]:
        """Return the total of every unit with a charge or a limit; for rows, the largest of any file."""
        largest: dict[Kind, LedgerTotal] = {}
        for ledger in self.files:
            for total in ledger.totals():
                kind = (total.unit, total.adjacency)
                if total.unit in _IN_ONE_FILE:
                    other = largest.get(kind, total)
                    larger = max(other, total, key=lambda candidate: candidate.epsilon)
                    largest[kind] = replace(larger, delta=max(other.delta, total.delta))
        joint = [total for total in self.joint.totals() if total.unit not in _IN_ONE_FILE]
        return (*largest.values(), *joint)

    def __str__(self) -> str:
        return say_totals(self.totals())


@dataclass(frozen=True, slots=True)
class _Entry:
    """A charge; ``key`` names the files that were charged together, if there were several."""

    name: str
    claim: Claim
    key: str | None

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> _Entry:
        key = row[_FIELDS] if len(row) > _FIELDS else None
        if len(row) > _FIELDS + 1 or not (key is None or isinstance(key, str)):
            raise TypeError
        return cls(str(row[0]), _claim_of(*row[1:_FIELDS]), key)

    def to_json(self) -> list[Any]:
        (row,) = Ledger(entries=[(self.name, self.claim)]).to_json()["entries"]
        return row if self.key is None else [*row, self.key]


@functools.lru_cache(maxsize=1024)  # most charges of a ledger are equal but for their names
def _claim_of(*paid: Any) -> Claim:
    """Return the claim of a charge from its fields after the name."""
    ((_, claim),) = Ledger.from_json({"limits": [], "entries": [["", *paid]]})
    return claim


def ledger_path_for(path: Path) -> Path:
    """Return the path of a file's ledger: next to the file itself, after resolving symbolic links.

    All names of a file (hard links) share one ledger, next to one of them.

    Raises:
        StoreError: A name is in another directory, where its ledger cannot be found, or two names have a ledger each.
    """
    with wrap_os_errors(lambda why: f"{path.name} cannot be read: {why}"):
        real = path.resolve()
        names = _hard_links(real)
    ledgers = [name.with_name(name.name + LEDGER) for name in names]
    existing = [ledger for ledger in ledgers if os.path.lexists(ledger)]
    if len(existing) > 1:
        raise StoreError(
            f"{' and '.join(ledger.name for ledger in existing)} are ledgers of one file that has several names (hard "
            "links): name the one that counts with --ledger (ledger= in Python)"
        )
    return (existing or ledgers)[0]


def _hard_links(path: Path) -> list[Path]:
    """Return all names of a file, sorted; raise StoreError if one is in another directory."""
    status = path.stat()
    if status.st_nlink <= 1:
        return [path]
    with os.scandir(path.parent) as directory:
        names = [entry.name for entry in directory if os.path.samestat(entry.stat(follow_symlinks=False), status)]
    if len(names) < status.st_nlink:
        raise StoreError(
            f"{path.name} has {status.st_nlink} names (hard links), {status.st_nlink - len(names)} of them in other "
            "directories, so that its ledger cannot be found from each: name one ledger for all with --ledger "
            "(ledger= in Python)"
        )
    return [path.with_name(name) for name in sorted(names)]


def charge_ledgers(paths: Iterable[Path], claims: Mapping[str, Claim], *, budget: float | None = None) -> Spent | None:
    """Charge claims, by name, to all of these ledgers, or to none.

    Args:
        paths: The ledger files; created if missing.
        claims: What to charge.
        budget: Limit that is stored in the files and holds until another one is given: for every unit that an answer
            protects, and for one event unless all published results are models of the table's records. Units that may
            have rows in several files are limited by the smallest budget of these.

    Returns:
        All charges so far; None without a file.

    Raises:
        BudgetExhausted: A budget would be exceeded; nothing was charged.
    """
    if budget is not None:
        checks.require_positive(budget=budget)
    in_order = sorted(set(paths))  # all processes lock in the same order, so there is no deadlock
    key = _key_of(in_order)
    entries = [_Entry(name, claim, key) for name, claim in claims.items()]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(_opened(path)) for path in in_order]
        if not files:
            return None
        limits = [file.budget if budget is None else budget for file in files]
        strictest = min((limit for limit in limits if limit is not None), default=None)
        joint = _charged(_united([file.entries for file in files]), entries, strictest, joint=True)
        ledgers = []
        for file, limit in zip(files, limits, strict=True):
            ledgers.append(_charged(file.entries, entries, limit, joint=False))
        for file in files:
            file.add(entries, budget)
    return Spent(tuple(ledgers), joint)


def _key_of(paths: Sequence[Path]) -> str | None:
    if len(paths) < 2:
        return None
    names = "\0".join(os.path.abspath(path) for path in paths)
    return hashlib.sha256(os.fsencode(names)).hexdigest()[:16]


def _charged(entries: Sequence[_Entry], added: Sequence[_Entry], limit: float | None, *, joint: bool) -> Ledger:
    """Return a ledger of ``entries`` with ``added`` charged; ``limit`` applies to units in several files if ``joint``,
    else to units in one file.
    """
    kinds = {(entry.claim.unit, entry.claim.adjacency) for entry in (*entries, *added)}
    if any(unit != "record" for unit, _ in kinds):
        kinds.add(_EVENT)
    limited = {kind for kind in kinds if (kind[0] not in _IN_ONE_FILE) == joint}
    limits = {} if limit is None else dict.fromkeys(limited, limit)
    ledger = Ledger(limits, [(entry.name, entry.claim) for entry in entries])
    for entry in added:
        ledger.charge(entry.name, entry.claim)
    return ledger


def _united(ledgers: Sequence[Sequence[_Entry]]) -> list[_Entry]:
    """Return all charges, counting those for several files once.

    The charges of one key are equal in every ledger, unless a crash came before the last ones were written to some of
    them: then the larger sum counts.
    """
    united = [entry for entries in ledgers for entry in entries if entry.key is None]
    shared: dict[str, list[_Entry]] = {}
    for entries in ledgers:
        by_key: dict[str, list[_Entry]] = {}
        for entry in entries:
            if entry.key is not None:
                by_key.setdefault(entry.key, []).append(entry)
        for key, key_entries in by_key.items():
            shared[key] = max(shared.get(key, []), key_entries, key=_epsilon_sum)
    return [*united, *(entry for entries in shared.values() for entry in entries)]


def _epsilon_sum(entries: Sequence[_Entry]) -> float:
    return sum(entry.claim.epsilon for entry in entries)


def _summed_up(entries: Sequence[_Entry]) -> list[_Entry]:
    """Compose all charges of the same unit and files into one."""
    alike: dict[tuple[Any, ...], list[Claim]] = {}
    for entry in entries:
        claim = entry.claim
        alike.setdefault((entry.key, claim.unit, claim.adjacency, claim.window), []).append(claim)
    return [_Entry("earlier answers", compose_sequential(claims), key[0]) for key, claims in alike.items()]


def _written(name: str) -> contextlib.AbstractContextManager[None]:
    return wrap_os_errors(lambda why: f"the ledger {name} cannot be written: {why or 'the disk is full'}")


class _LedgerFile:
    """An open ledger: its charges and budget, and the offset behind its last complete line."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name
        self.budget: float | None = None
        self.entries: list[_Entry] = []
        self._since_checkpoint = 0
        with _written(name):
            data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        self._end = data.rfind(b"\n") + 1
        if not data:
            raise StoreDamaged(
                f"{name} is empty, so what was spent is not known: restore it, or remove it if nothing was answered yet"
            )
        try:
            if not data.startswith(_HEADER):
                raise ValueError
            start = data.rfind(_CHECKPOINT, 0, self._end) + 1
            for line in data[start or len(_HEADER) : self._end].split(b"\n")[:-1]:
                self._read(json.loads(line))
        except (ValueError, KeyError, TypeError, InvalidBytes, InvalidParameter):
            damaged = f"{name} is not a ledger, or is damaged, so what was spent is not known"
        else:
            return
        raise StoreDamaged(damaged)

    def _read(self, line: Any) -> None:
        if isinstance(line, list):
            self.entries.append(_Entry.from_json(line))
            self._since_checkpoint += 1
            if self._since_checkpoint % _CHECKPOINT_EVERY == 0:
                self.entries = _summed_up(self.entries)
            return
        if "checkpoint" in line:
            self.entries = [_Entry.from_json(row) for row in line["checkpoint"]]
            self._since_checkpoint = 0
        self.budget = None if line["budget"] is None else float(line["budget"])
        if self.budget is not None:
            checks.require_positive(budget=self.budget)

    def add(self, entries: Sequence[_Entry], budget: float | None) -> None:
        """Append charges, and the budget if it changed, after the last complete line; return once they are on disk."""
        lines: list[Any] = []
        if budget not in (None, self.budget):
            self.budget = budget
            lines.append({"budget": budget})
        lines += [entry.to_json() for entry in entries]
        if self._since_checkpoint + len(entries) >= _CHECKPOINT_EVERY:
            summary = _summed_up([*self.entries, *entries])
            lines.append({"checkpoint": [entry.to_json() for entry in summary], "budget": self.budget})
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        with _written(self._name):
            os.ftruncate(self._descriptor, self._end)
            if os.pwrite(self._descriptor, data, self._end) != len(data):
                raise OSError
            os.fsync(self._descriptor)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_LedgerFile]:
    """Open and lock a ledger, creating it if there is none."""
    with _written(path.name):
        try:
            descriptor = os.open(path, _FLAGS)
        except FileNotFoundError:
            _create(path)
            descriptor = os.open(path, _FLAGS)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "it is a symbolic link; name the file itself") from None
            raise
    try:
        with _written(path.name):
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield _LedgerFile(descriptor, path.name)
    finally:
        os.close(descriptor)


def _create(path: Path) -> None:
    """Create a ledger without charges, unless another process does so first.

    The file is linked to its name once its header is on disk, so a ledger without a header was emptied from outside.
    """
    draft = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}{LEDGER}")
    draft.unlink(missing_ok=True)  # left by a crashed process
    descriptor = os.open(draft, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(descriptor, _HEADER)
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        Disk().sync_directory(path.parent)
    finally:
        os.close(descriptor)
        draft.unlink()
