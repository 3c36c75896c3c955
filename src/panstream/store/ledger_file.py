"""A ledger in a file of its own, beside the data it is about: what answers have cost, one line each.

Lines are only ever added, and are on disk before the answer they pay for is drawn. A last line that a crash cut off
paid for no answer, and is written over. ::

    {"panstream-ledger": 1}
    {"budget": 3.0}
    ["SELECT COUNT(*) FROM visits", 1.0, 0.0, "event", "add-remove", null, null]
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from panstream import checks
from panstream.errors import InvalidBytes, StoreDamaged
from panstream.privacy.claim import Adjacency, Claim, Unit
from panstream.privacy.ledger import Ledger
from panstream.store.disk import told

LEDGER = ".ledger"  # the ending of such a file
_VERSION = 1
_EVENT: tuple[Unit, Adjacency] = ("event", "add-remove")


def beside(path: Path) -> Path:
    """Return where the ledger of a file lies: beside the file itself, whatever link it was reached by."""
    real = path.resolve()
    return real.with_name(real.name + LEDGER)


def charge(paths: Iterable[Path], claims: Mapping[str, Claim], *, budget: float | None = None) -> list[Ledger]:
    """Charge claims, by name, to the ledgers in all of these files; or raise BudgetExhausted, and charge none.

    ``budget`` is kept in the file and holds from then on, until another one is given: for every unit that an answer
    protects, and for one event unless all that was published are models of the table's records. Return the ledgers with
    the charges.
    """
    if budget is not None:
        checks.positive(budget=budget)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_opened(path)) for path in sorted(set(paths))]  # in one order: they are locked
        charged = []
        for file in opened:
            limit = file.budget if budget is None else budget
            known = [claim for _, claim in file.ledger]
            kinds = {(claim.unit, claim.adjacency) for claim in (*known, *claims.values())}
            if any(unit != "record" for unit, _ in kinds):
                kinds.add(_EVENT)
            limits = {} if limit is None else dict.fromkeys(kinds, limit)
            charged.append(Ledger(limits, file.ledger))
            for name, claim in claims.items():
                charged[-1].charge(name, claim)
        for file, ledger in zip(opened, charged, strict=True):
            notes = [] if budget in (None, file.budget) else [{"budget": budget}]
            file.add([*notes, *ledger.to_json()["entries"][-len(claims) :]])
    return charged


def _written(name: str) -> contextlib.AbstractContextManager[None]:
    return told(lambda why: f"the ledger {name} cannot be written: {why or 'the disk is full'}")


class _File:
    """An open ledger: what it says, and where its whole lines end."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self._name = descriptor, name
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        self._end = data.rfind(b"\n") + 1
        self.budget: float | None = None
        entries: list[Any] = []
        try:
            head, *lines = [json.loads(line) for line in data[: self._end].splitlines()] or [None]
            if head is not None and head["panstream-ledger"] != _VERSION:
                raise ValueError
            for line in lines:
                if isinstance(line, dict):
                    self.budget = float(line["budget"])
                else:
                    entries.append(line)
            self.ledger = Ledger.from_json({"limits": [], "entries": entries})
        except (ValueError, KeyError, TypeError, InvalidBytes):
            damaged = f"{name} is not a ledger, or is damaged, so what was spent is not known"
        else:
            return
        raise StoreDamaged(damaged)

    def add(self, lines: list[Any]) -> None:
        """Add lines behind the last whole one, and wait until they are on disk."""
        head = [] if self._end else [{"panstream-ledger": _VERSION}]
        data = b"".join(json.dumps(line).encode() + b"\n" for line in [*head, *lines])
        with _written(self._name):
            os.ftruncate(self._descriptor, self._end)
            if os.pwrite(self._descriptor, data, self._end) != len(data):
                raise OSError
            os.fsync(self._descriptor)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_File]:
    with _written(path.name):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield _File(descriptor, path.name)
    finally:
        os.close(descriptor)
