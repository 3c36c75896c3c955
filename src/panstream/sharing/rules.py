"""How one state is kept as shares: what rows do to it, and what an answer opens of it.

A rule has public parameters only. The front end deals with it, both machines act on it, and none of its verbs looks at
anything but arrays of public sizes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from panstream._kernels.shares import pack_columns
from panstream.errors import InvalidParameter
from panstream.randomness import DiscreteLaplace, Source
from panstream.scratch import wipe
from panstream.sharing.arithmetic import (
    COUNTS,
    Bits,
    Expander,
    Hand,
    Numbers,
    Ring,
    combine_move,
    combine_overwrite,
    convert,
    deal_conversion,
    deal_hand,
    deal_move,
    deal_overwrite,
    exchange,
)

Dealt = tuple[NDArray[Any], ...]
"""What the front end sends the second machine besides its seed."""


@dataclass(slots=True)
class Opening:
    """What a machine holds while an answer is opened: its mask or words, its own noise, and the number of answers
    before.
    """

    hand: Dealt
    noise: NDArray[np.int64]
    before: int


class Rule(Protocol):
    """The verbs of a kind of cells. A share is an array of bytes of a public size."""

    ring: Ring
    noise: DiscreteLaplace
    releases: int

    @property
    @abstractmethod
    def size(self) -> int:
        """Return how many bytes a share has."""

    @property
    @abstractmethod
    def opened(self) -> int:
        """Return how many numbers an answer opens."""

    @abstractmethod
    def start(self, source: Source) -> Bits:
        """Return a machine's share before the first row; the step's blinding makes it uniform."""

    @abstractmethod
    def blind(self, share: Bits, common: Expander, *, first: bool) -> None:
        """Add the same uniform numbers to one share and take them from the other."""

    @abstractmethod
    def nothing(self) -> Dealt:
        """Return the change of a step whose rows do nothing to this state."""

    @abstractmethod
    def deal(self, change: Dealt, first: Expander, second: Expander) -> Dealt:
        """Turn what rows do into what both machines are dealt."""

    @abstractmethod
    def dealt(self, data: Bits) -> Dealt:
        """Return the arrays that :meth:`deal` made, from their bytes."""

    @abstractmethod
    def dealt_size(self, *, answers: bool) -> int:
        """Return how many bytes the second machine is dealt for rows, or for an answer."""

    @abstractmethod
    def hold(self, own: Expander, dealt: Dealt | None) -> Any:
        """Return what a machine holds during a step with rows; the second one was dealt some of it."""

    @abstractmethod
    def send(self, share: Bits, held: Any) -> Bits:
        """Return what goes to the other machine."""

    @abstractmethod
    def take(self, share: Bits, sent: Bits, received: Bits, held: Any) -> None:
        """Let rows change a share, in place."""

    @abstractmethod
    def deal_answer(self, first: Expander, second: Expander) -> Dealt:
        """Return what the second machine needs to open an answer."""

    @abstractmethod
    def dealt_answer(self, data: Bits) -> Dealt:
        """Return the arrays that :meth:`deal_answer` made, from their bytes."""

    @abstractmethod
    def hold_answer(self, own: Expander, dealt: Dealt | None, before: int, source: Source) -> Opening:
        """Return what a machine holds while an answer is opened: its noise is drawn here, before anything is sent."""

    @abstractmethod
    def send_answer(self, share: Bits, held: Opening) -> Bits:
        """Return what goes to the other machine."""

    @abstractmethod
    def answer(self, share: Bits, sent: Bits, received: Bits, held: Opening, *, first: bool) -> Numbers:
        """Return a machine's part of the numbers that are opened, with its own noise."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Return public parameters that rebuild the rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwritten(Rule):
    """Bits that rows overwrite; an answer opens the number of ones in each of ``rows`` equal rows of cells.

    ``change`` is which cells are touched and what they become, packed.
    """

    cells: int
    rows: int = 1
    noise: DiscreteLaplace
    releases: int = 1
    ring: Ring = COUNTS

    @property
    def size(self) -> int:
        """Return the bytes of all cells, packed."""
        return (self.cells + 7) // 8

    @property
    def opened(self) -> int:
        """Return the number of rows."""
        return self.rows

    @property
    def counted(self) -> int:
        """Return how many cells an answer counts."""
        return self.cells

    def parameters(self) -> dict[str, Any]:
        """Return cells, rows, noise and releases."""
        return {"cells": self.cells, "rows": self.rows, "noise": self.noise.numerator, "releases": self.releases}

    def start(self, source: Source) -> Bits:
        """Return zeros."""
        return np.zeros(self.size, np.uint8)

    def blind(self, share: Bits, common: Expander, *, first: bool) -> None:
        """Flip the same bits of both shares."""
        share ^= common.bits(share.size)

    def nothing(self) -> Dealt:
        """Return that no cell is touched."""
        return np.zeros(self.size, np.uint8), np.zeros(self.size, np.uint8)

    def deal(self, change: Dealt, first: Expander, second: Expander) -> Dealt:
        """Deal an overwrite."""
        touched, values = change
        return deal_overwrite(touched, values, first, second)

    def dealt(self, data: Bits) -> Dealt:
        """Return factor and term."""
        return data[: self.size], data[self.size :]

    def dealt_size(self, *, answers: bool) -> int:
        """Return the bytes of factor and term, or of a word for every cell that is counted."""
        return 4 * self.counted if answers else 2 * self.size

    def hold(self, own: Expander, dealt: Dealt | None) -> Hand:
        """Return mask, factor and term."""
        return deal_hand(own, self.size, None if dealt is None else (dealt[0], dealt[1]))

    def send(self, share: Bits, held: Hand) -> Bits:
        """Return the masked share."""
        return exchange(share, held.mask)

    def take(self, share: Bits, sent: Bits, received: Bits, held: Hand) -> None:
        """Overwrite what is touched."""
        combine_overwrite(share, sent, received, held)

    def deal_answer(self, first: Expander, second: Expander) -> Dealt:
        """Deal a random bit for every cell that is counted."""
        return (deal_conversion(self.counted, first, second, self.ring),)

    def dealt_answer(self, data: Bits) -> Dealt:
        """Return the second machine's shares of the random bits."""
        return (data.view(np.uint32 if self.ring == COUNTS else np.uint64),)

    def hold_answer(self, own: Expander, dealt: Dealt | None, before: int, source: Source) -> Opening:
        """Return the random bits, as bits and as integers, and draw the noise."""
        rho = own.bits((self.counted + 7) // 8)
        words = own.words(self.counted, self.ring) if dealt is None else dealt[0]
        return Opening((rho, words), draw_noise(self.rows, self.noise, source), before)

    def send_answer(self, share: Bits, held: Opening) -> Bits:
        """Return the share masked by the random bits."""
        return exchange(share, held.hand[0])

    def answer(self, share: Bits, sent: Bits, received: Bits, held: Opening, *, first: bool) -> Numbers:
        """Return a share of the number of ones in each row."""
        found = convert(sent, received, held.hand[1], self.rows, first=first, ring=self.ring)
        noise = self.ring.of(held.noise)
        self.ring.add(found, noise)
        wipe(noise)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(Overwritten):
    """A thermometer for every user: of ``tau`` bits the first min(rows so far, tau) are 1.

    ``change`` is the number of rows of every user, at most tau. An answer opens the number of ones among the bits from
    ``low`` up to ``tau``: with low = 0 the sum of min(rows, tau), with low = tau - 1 the users with tau rows or more.
    ``cells`` is the number of users.
    """

    tau: int
    low: int = 0

    def __post_init__(self) -> None:
        if not (1 <= self.tau <= 64 and 0 <= self.low < self.tau and self.rows == 1):
            raise InvalidParameter(f"tau must be in 1..64 and low below it, got tau={self.tau} and low={self.low}")

    @property
    def word(self) -> Any:
        """Return the type of a user's bits."""
        return next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if self.tau <= 8 * kind().itemsize)

    @property
    def size(self) -> int:
        """Return the bytes of all users' words."""
        return self.cells * int(np.dtype(self.word).itemsize)

    @property
    def counted(self) -> int:
        """Return how many bits an answer counts."""
        return self.cells * (self.tau - self.low)

    def parameters(self) -> dict[str, Any]:
        """Return those of all bits, and the thermometer's."""
        return {**Overwritten.parameters(self), "tau": self.tau, "low": self.low}

    def nothing(self) -> Dealt:
        """Return that no user came."""
        return (np.zeros(self.cells, np.uint8),)

    def deal(self, change: Dealt, first: Expander, second: Expander) -> Dealt:
        """Deal a move."""
        return deal_move(change[0], self.tau, self.word, first, second)

    def take(self, share: Bits, sent: Bits, received: Bits, held: Hand) -> None:
        """Move every user's bits up."""
        combine_move(share, sent, received, held, self.tau, self.word)

    def send_answer(self, share: Bits, held: Opening) -> Bits:
        """Return the share of the bits that are counted, packed and masked."""
        counted = np.empty((self.counted + 7) // 8, np.uint8)
        pack_columns(share.view(self.word), self.low, self.tau, counted)
        sent = exchange(counted, held.hand[0])
        wipe(counted)
        return sent


def draw_noise(count: int, law: DiscreteLaplace, source: Source) -> NDArray[np.int64]:
    """Return so many draws of a law."""
    found: NDArray[np.int64] = source.scratch.array(count, np.int64)
    found.fill(0)
    source.add_discrete_laplace(found, law)
    return found
