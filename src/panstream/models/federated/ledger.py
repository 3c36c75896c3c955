"""A holder's ledger of answers and their losses: SQLite, one row per question, never changed.

The charge and the answer are committed together, before the answer is sent. So after a crash the stored answer is sent
again: no question is charged twice, and none is answered by a second draw.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from panstream.errors import BudgetExhausted, InvalidParameter, StoreDamaged, StoreError
from panstream.primitives import validation as checks
from panstream.privacy.holder_loss import Loss

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
    number INTEGER PRIMARY KEY,
    question TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    run TEXT NOT NULL,
    epsilon REAL NOT NULL,
    rho REAL NOT NULL,
    collusion_rho REAL NOT NULL,
    assumption TEXT NOT NULL,
    answer BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS openings (question TEXT PRIMARY KEY, secret BLOB, answer BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS readings (closed TEXT PRIMARY KEY, opened TEXT NOT NULL, parts TEXT NOT NULL, answer BLOB)
    WITHOUT ROWID;
"""
_MAX_OPEN_SUMS = 1000


class HolderLedger:
    """The ledger of one holder's table, with the holder's budget (``epsilon``, ``delta``).

    At ``delta = 0`` pure epsilons add up; otherwise pure epsilons or rho, whichever stays within the budget, see
    `panstream.privacy.holder_loss`. ``path`` may be ":memory:" for experiments. ``total`` is the loss of all answers.

    Args:
        path: The file, or ":memory:".
        epsilon: Budget of every record for all answers.
        delta: The budget's delta.
        domain: The table's domain, as text: a ledger belongs to one table.
        records: Number of records of the table.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, epsilon: float, delta: float, domain: str, records: int
    ) -> None:
        checks.require_positive(epsilon=epsilon)
        if not 0 <= delta < 1:
            raise InvalidParameter(f"delta must be in [0, 1), got delta={delta}")
        self.limit = epsilon
        self.delta = delta
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        problem: str | None = None
        try:
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("PRAGMA secure_delete=ON")  # one-time keys are overwritten, not only unlinked
            self._connection.executescript(_SCHEMA)
            problem = self._describe({"version": str(_VERSION), "domain": domain, "records": str(records)})
            self.total = self._sum()
        except sqlite3.DatabaseError as error:
            problem = f"the ledger cannot be used: {error}"
        if problem is not None:
            self._connection.close()
            raise StoreDamaged(problem)

    def _describe(self, facts: dict[str, str]) -> str | None:
        for name, value in facts.items():
            self._connection.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, value))
            stored = self._connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()[0]
            if stored != value:
                return f"the ledger was made for another table: its {name} differs"
        return None

    def _sum(self) -> Loss:
        sums = "SELECT TOTAL(epsilon), TOTAL(rho), TOTAL(collusion_rho) FROM answers"
        epsilon, rho, collusion_rho = self._connection.execute(sums).fetchone()
        return Loss(epsilon=epsilon, rho=rho, collusion_rho=collusion_rho)

    @property
    def epsilon(self) -> float:
        """Return the loss of all answers as epsilon at the ledger's delta."""
        return self.total.at(self.delta)

    def rows(self) -> list[tuple[str, str, Loss]]:
        """Return all charges, oldest first: the kind of question, its run, and its loss."""
        charges = self._connection.execute("SELECT kind, run, epsilon, rho, collusion_rho FROM answers ORDER BY number")
        return [
            (kind, run, Loss(epsilon=epsilon, rho=rho, collusion_rho=collusion_rho))
            for kind, run, epsilon, rho, collusion_rho in charges
        ]

    def assumptions(self) -> list[str]:
        """Return the distinct assumptions that the charges rest on, oldest first."""
        stored = self._connection.execute(
            "SELECT assumption FROM answers WHERE assumption <> '' GROUP BY assumption ORDER BY MIN(number)"
        )
        return [assumption for (assumption,) in stored]

    def answer_once(
        self, question: str, kind: str, run: str, loss: Loss, draw: Callable[[], bytes], assumption: str = ""
    ) -> bytes:
        """Return the stored answer, or charge ``loss``, draw an answer and store both in one commit.

        ``assumption`` is what ``loss`` rests on; it is stored with the charge.

        Args:
            question: Digest of the question.
            kind: Type of the question.
            run: Label of the run.
            loss: What the answer costs.
            draw: Draws the answer.
            assumption: What the loss rests on.

        Raises:
            BudgetExhausted: the charge would exceed the budget; nothing is stored.
            StoreError: the commit failed; nothing was answered.
        """
        with self._transaction():
            stored = self._connection.execute("SELECT answer FROM answers WHERE question = ?", (question,)).fetchone()
            if stored is not None:
                answer = bytes(stored[0])
            else:
                next_total = self._sum() + loss
                if not next_total.is_within(self.limit, self.delta):
                    raise BudgetExhausted(
                        f"the question would bring epsilon to {next_total.at(self.delta):.6g} "
                        f"of {self.limit:g} at delta={self.delta:g}"
                    )
                answer = draw()
                self._connection.execute(
                    "INSERT INTO answers (question, kind, run, epsilon, rho, collusion_rho, assumption, answer) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (question, kind, run, loss.epsilon, loss.rho, loss.collusion_rho, assumption, answer),
                )
        self.total = self._sum()
        return answer

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit what is done inside, or nothing of it; only after the commit may an answer be sent."""
        # Take the write lock before the first lookup, so that two processes with one ledger cannot both draw.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._roll_back()
            raise StoreError(f"the ledger could not be written, nothing was answered: {error}") from None
        except BaseException:
            self._roll_back()
            raise

    def open(self, question: str, make: Callable[[], tuple[bytes, bytes]]) -> bytes:
        """Return the stored key announcement of a secure sum, or make a one-time secret with one and store both.

        Args:
            question: Digest of the question.
            make: Makes the one-time secret and its announcement.

        Raises:
            InvalidParameter: 1,000 sums are open already.
            StoreError: the row could not be written.
        """
        row = self._connection.execute("SELECT answer FROM openings WHERE question = ?", (question,)).fetchone()
        if row is not None:
            return bytes(row[0])
        open_sums = self._connection.execute("SELECT COUNT(*) FROM openings WHERE secret IS NOT NULL").fetchone()[0]
        if open_sums >= _MAX_OPEN_SUMS:
            raise InvalidParameter(f"{_MAX_OPEN_SUMS} sums are open and none of them was closed")
        secret, answer = make()
        try:
            self._connection.execute("INSERT INTO openings VALUES (?, ?, ?)", (question, secret, answer))
        except sqlite3.DatabaseError as error:
            raise StoreError(f"the ledger could not be written, nothing was answered: {error}") from None
        return answer

    def take_secret(self, question: str) -> bytes:
        """Return the one-time secret of an open sum and delete it; call it inside the transaction of `answer_once`.

        Args:
            question: Digest of the question that opened the sum.
        """
        secret = self._secret(question)
        self._connection.execute("UPDATE openings SET secret = NULL WHERE question = ?", (question,))
        return secret

    def _secret(self, question: str) -> bytes:
        row = self._connection.execute("SELECT secret FROM openings WHERE question = ?", (question,)).fetchone()
        if row is None or row[0] is None:
            raise InvalidParameter("this sum was never opened here, or it is already closed")
        return bytes(row[0])

    def start_reading(self, opened: str, closed: str, members: Sequence[str]) -> bytes:
        """Return the one-time secret of an open sum, which stays until the sum is read.

        Call it inside the transaction of `answer_once`: it closes the sum.

        Args:
            opened: Digest of the question that opened the sum.
            closed: Digest of the question that closes it.
            members: Its members.
        """
        if self._connection.execute("SELECT 1 FROM readings WHERE opened = ?", (opened,)).fetchone() is not None:
            raise InvalidParameter("this sum was never opened here, or it is already closed")
        secret = self._secret(opened)
        row = (closed, opened, json.dumps(list(members)))
        self._connection.execute("INSERT INTO readings VALUES (?, ?, ?, NULL)", row)
        return secret

    def confirm(self, closed: str, parts: Sequence[str]) -> tuple[str, ...]:
        """Store ``parts`` as those of a closed sum if they are fewer than before and nothing was revealed yet.

        Args:
            closed: Digest of the question that closed the sum.
            parts: Names of members.

        Returns:
            The parts that count: these, or those confirmed before.
        """
        with self._transaction():
            _, stored, answer = self._reading(closed)
            if answer is not None or not set(parts) < set(stored):
                return stored
            update = "UPDATE readings SET parts = ? WHERE closed = ?"
            self._connection.execute(update, (json.dumps(list(parts)), closed))
            return tuple(parts)

    def reveal_once(self, closed: str, parts: Sequence[str], make: Callable[[bytes], bytes]) -> bytes:
        """Return the stored answer for these parts, or make it, store it and delete the one-time secret.

        Args:
            closed: Digest of the question that closed the sum.
            parts: The parts that are to be read.
            make: Makes the answer from the secret.

        Raises:
            InvalidParameter: The parts are not those that were confirmed last.
        """
        with self._transaction():
            opened, stored, answer = self._reading(closed)
            if tuple(parts) != stored:
                raise InvalidParameter("this holder has confirmed other parts of the sum")
            if answer is None:
                answer = make(self.take_secret(opened))
                self._connection.execute("UPDATE readings SET answer = ? WHERE closed = ?", (answer, closed))
        self.empty_wal()
        return answer

    def _reading(self, closed: str) -> tuple[str, tuple[str, ...], bytes | None]:
        select = "SELECT opened, parts, answer FROM readings WHERE closed = ?"
        row = self._connection.execute(select, (closed,)).fetchone()
        if row is None:
            raise InvalidParameter("this holder has sent no part of the sum, or the sum tolerates no dropouts")
        opened, parts, answer = row
        return opened, tuple(json.loads(parts)), answer

    def empty_wal(self) -> None:
        """Truncate the write-ahead log, which may still contain a one-time secret after its row was overwritten."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the database connection."""
        self._connection.close()
