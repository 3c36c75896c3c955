"""Sketch: the published cells of one window as an immutable value; whatever is computed from it costs nothing more."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.distinct.likelihood import Likelihood
from panstream.algorithms.distinct.pair_fit import PairFit, PairModel, bounded_interval, upper_end
from panstream.algorithms.distinct.sketch_bitmap import SketchBitmap, published_moments
from panstream.core.estimate import Estimate
from panstream.core.monitor import Monitor
from panstream.errors import InvalidBytes, InvalidParameter, MergeError, NotSupported
from panstream.primitives import container
from panstream.primitives.hashing import MAX_LEVELS, StringHash
from panstream.primitives.packed_bits import unpack_bits
from panstream.privacy.bitmap_loss import Decoder, LevelMoments, level_rates
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.rounding import sum_rounded_up

MAGIC = b"PANSKCH1"
_MAX_CELLS = 1 << 31
_MAX_HEADER = 1 << 16
_MAX_NAME = 1_000
_REACH = 1.96  # of a 95% interval, in standard errors
_FIELDS = {
    "name": str,
    "buckets": int,
    "levels": int,
    "hash": str,
    "key": str,
    "pi0": float,
    "pi1": float,
    "epsilon": float,
    "joint": float,
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sketch:
    """The published cells of one window.

    Counts, unions, overlaps and retention are computed from published numbers only, so any number of them may be asked,
    by anybody, at no further loss. Every claim states what all sketches involved and one copy of the states that were
    open at one moment lose together.

    Attributes:
        bits: The published cells, packed, the lowest cell in the lowest bit.
        buckets: Columns of the bitmap.
        levels: Rows of the bitmap.
        hash: Hash function of strings.
        key: Fingerprint of the hash key. Whoever holds the sketch needs no key.
        pi0: Probability of a published 1 for an untouched cell.
        pi1: Probability of a published 1 for a touched cell.
        epsilon: Loss of the published cells alone.
        joint: Loss with one copy of the state while the window was open.
        name: What was counted.
        start: Beginning of the window in seconds since 1970, if it is known.
        end: End of the window.
    """

    bits: bytes
    buckets: int
    levels: int
    hash: StringHash
    key: str
    pi0: float
    pi1: float
    epsilon: float
    joint: float
    name: str = ""
    start: float | None = None
    end: float | None = None

    def __post_init__(self) -> None:
        cells = self.buckets * self.levels
        if not (self.buckets >= 1 and 1 <= self.levels <= MAX_LEVELS and cells < _MAX_CELLS):
            raise InvalidParameter(f"a sketch cannot have {self.buckets} buckets and {self.levels} levels")
        if len(self.bits) != (cells + 7) // 8 or (cells % 8 and self.bits[-1] >> cells % 8):
            raise InvalidParameter(f"a sketch of {cells:,} cells needs {(cells + 7) // 8:,} bytes")
        if not 0 <= self.pi0 < self.pi1 <= 1:
            raise InvalidParameter(f"pi0 and pi1 must be probabilities, pi0 the smaller, got {self.pi0}, {self.pi1}")
        if not 0 < self.epsilon <= self.joint:
            raise InvalidParameter(f"epsilon must be in (0, joint], got {self.epsilon} and joint={self.joint}")
        if self.hash not in ("fold", "siphash") or len(self.name) > _MAX_NAME:
            raise InvalidParameter("hash must be fold or siphash, and name at most 1,000 characters long")
        if self.start is not None and self.end is not None and not self.start < self.end:
            raise InvalidParameter("start must be before end")

    @classmethod
    def of(cls, monitor: Monitor[Any], name: str = "", start: float | None = None, end: float | None = None) -> Sketch:
        """Return what a closed window has published.

        Args:
            monitor: A monitor of a `SketchBitmap` whose ``release`` was called.
            name: What was counted, such as the site and the condition. Sketches of other names are not compared.
            start: Beginning of the window, in seconds since 1970.
            end: End of the window.
        """
        algorithm = monitor.algorithm
        if not isinstance(algorithm, SketchBitmap):
            raise NotSupported("a sketch is made from the monitor of a SketchBitmap that owns all its cells")
        if not monitor.state.released:
            raise NotSupported("this window is open: call release() to close it; its cells are not published yet")
        return cls.published(algorithm, monitor.state.bits.tobytes(), name, start, end)

    @classmethod
    def published(
        cls, algorithm: SketchBitmap, bits: bytes, name: str = "", start: float | None = None, end: float | None = None
    ) -> Sketch:
        """Return the sketch of cells that were published.

        Args:
            algorithm: What published them.
            bits: The published cells, packed, as in the ``released`` numbers of the estimate.
            name: What was counted.
            start: Beginning of the window, in seconds since 1970.
            end: End of the window.
        """
        if not algorithm.table.owns_all:
            raise NotSupported("a sketch is made from the monitor of a SketchBitmap that owns all its cells")
        coins = algorithm.coins
        pi0, pi1 = coins.published
        return cls(
            bits=bits,
            buckets=algorithm.buckets,
            levels=algorithm.levels,
            hash=algorithm.hash,
            key=hashlib.sha256(b"panstream sketch key %d" % algorithm.key).hexdigest()[:32],
            pi0=float(pi0),
            pi1=float(pi1),
            epsilon=coins.published_loss,
            joint=coins.joint_loss,
            name=name,
            start=start,
            end=end,
        )

    @property
    def id(self) -> str:
        """Return a name of the published cells: two windows have different ones."""
        return hashlib.sha256(self.bits).hexdigest()[:32]

    @property
    def decoder(self) -> Decoder:
        """Return what published bits count as."""
        return Decoder.redrawn(self.pi1, self.pi0)

    def count(self) -> Estimate:
        """Return how many distinct users came in the window."""
        return self._union([self])

    def union(self, *others: Sketch) -> Estimate:
        """Return how many distinct users came in any of the windows.

        Where the cells say less than the counts of the windows, it has no value: its interval reaches from the largest
        count to the sum of all.

        Args:
            others: Sketches of other windows with the same parameters.
        """
        return self._union([self, *others])

    def intersection(self, other: Sketch) -> Estimate:
        """Return how many users came in both windows.

        Args:
            other: A sketch of another window with the same parameters.
        """
        fit = self._fit(other)
        return self._of_pair(other, fit, (1.0, 1.0, -1.0), "users of both")

    def difference(self, other: Sketch) -> Estimate:
        """Return how many users came in this window and not in the other.

        Args:
            other: A sketch of another window with the same parameters.
        """
        fit = self._fit(other)
        return self._of_pair(other, fit, (0.0, -1.0, 1.0), "users of the first only")

    @staticmethod
    def retention(sketches: Sequence[Sketch], lags: int = 4) -> list[list[Estimate]]:
        """Return for every window how many of its users came again 1, 2, … windows later, as far as there are windows.

        Args:
            sketches: One per window, in order.
            lags: How many later windows each is compared with, at most.
        """
        return [
            [first.intersection(second) for second in sketches[index + 1 : index + 1 + lags]]
            for index, first in enumerate(sketches)
        ]

    def to_bytes(self) -> bytes:
        """Serialise the sketch, with a checksum."""
        header = {field: getattr(self, field) for field in (*_FIELDS, "start", "end")}
        text = json.dumps(header, separators=(",", ":")).encode()
        return b"".join(bytes(piece) for piece in container.to_pieces(MAGIC, text, [self.bits]))

    @classmethod
    def from_bytes(cls, data: bytes) -> Sketch:
        """Read what `to_bytes` wrote.

        Args:
            data: The bytes.

        Raises:
            InvalidBytes: The bytes are damaged, or are not a sketch.
        """
        header, body = container.read_container(data, MAGIC, max_header=_MAX_HEADER)
        if set(header) != {*_FIELDS, "start", "end"}:
            raise InvalidBytes("the header of the sketch has other fields")
        for field, kind in _FIELDS.items():
            if type(header[field]) is not kind:
                raise InvalidBytes(f"{field} of the sketch must be {kind.__name__}")
        for field in ("start", "end"):
            if type(header[field]) not in (int, float, type(None)):
                raise InvalidBytes(f"{field} of the sketch must be a number of seconds or null")
        try:
            return cls(bits=bytes(body), **header)
        except InvalidParameter as error:
            raise InvalidBytes(str(error)) from None

    def _require_comparable(self, others: Sequence[Sketch]) -> None:
        for other in others:
            for field, what in (("buckets", "buckets"), ("levels", "levels"), ("hash", "hash"), ("key", "hash key")):
                if getattr(self, field) != getattr(other, field):
                    raise MergeError(f"sketches of different tables cannot be compared: they differ in {what}")
            if self.name != other.name:
                raise MergeError(f"sketches of different questions cannot be compared: {self.name!r}, {other.name!r}")
        if len({sketch.id for sketch in (self, *others)}) < 1 + len(others):
            raise MergeError("a window cannot be compared with itself: its noise is the same, not independent")

    def _claim(self, others: Sequence[Sketch]) -> Claim:
        """Return what the sketches and one copy of open states lose together [sketches.md, Theorem 2]."""
        sketches = [self, *others]
        extras = [sketch.joint - sketch.epsilon for sketch in sketches]
        disjoint = _are_disjoint(sketches)
        epsilon = sum_rounded_up([*(sketch.epsilon for sketch in sketches), *([max(extras)] if disjoint else extras)])
        return Claim(
            epsilon=epsilon,
            unit="user",
            intrusions=Intrusions(unannounced=1),
            inputs="adaptive",
            releases=len(sketches),
            public=("the hash function and its key",),
            note="computed from published sketches, at no further loss",
        )

    def _union(self, sketches: Sequence[Sketch]) -> Estimate:
        others = sketches[1:]
        self._require_comparable(others)
        moments, empty = _decoded_product(sketches)
        claim = self._claim(others)
        estimate = Likelihood(moments, empty).estimate(claim, ())
        if not others:
            return estimate
        parts = [sketch.count() for sketch in sketches]
        lowest = max(part.interval(0.99)[0] for part in parts)
        highest = sum(part.interval(0.99)[1] for part in parts)
        highest = max(highest, lowest)
        if not _REACH * estimate.standard_error <= (highest - lowest) / 2:  # the parts alone say as much
            return Estimate(
                value=math.nan,
                standard_error=math.nan,
                claim=claim,
                name=estimate.name,
                support=(0.0, highest),
                interval_rule=lambda level: (lowest, highest),
            )
        return estimate.within(lowest, highest)

    def _fit(self, other: Sketch) -> PairFit:
        self._require_comparable([other])
        cells = self.buckets * self.levels
        first, second = (
            unpack_bits(np.frombuffer(sketch.bits, np.uint8), cells).reshape(self.levels, self.buckets)
            for sketch in (self, other)
        )
        both = 2 * first + second
        patterns = np.stack([np.bincount(level, minlength=4) for level in both])
        return PairModel(self.buckets, self.levels, self.decoder, other.decoder).fit(patterns)

    def _of_pair(self, other: Sketch, fit: PairFit, weights: tuple[float, float, float], name: str) -> Estimate:
        value, error = fit.of(weights)
        of_first = upper_end(*fit.of((1.0, 0.0, 0.0)))
        highest = min(of_first, upper_end(*fit.of((0.0, 1.0, 0.0)))) if weights[0] else of_first
        return Estimate.clipped(
            value,
            (0.0, highest),
            standard_error=error,
            claim=self._claim([other]),
            name=name,
            interval_rule=lambda level: bounded_interval(value, error, highest, level),
        )


def _are_disjoint(sketches: Sequence[Sketch]) -> bool:
    """Return whether the windows are known and do not overlap: then one copy sees at most one of them open."""
    if any(sketch.start is None or sketch.end is None for sketch in sketches):
        return False
    spans = sorted((cast(float, sketch.start), cast(float, sketch.end)) for sketch in sketches)
    return all(before[1] <= after[0] for before, after in pairwise(spans))


def _decoded_product(sketches: Sequence[Sketch]) -> tuple[LevelMoments, NDArray[np.float64]]:
    """Return the sum over cells of the product of decoded bits on every level, and its moments.

    The product has mean 1 for a cell that was empty in all windows, and 0 for others. Its mean square depends on how
    many windows an occupied cell was occupied in, which is fitted to the mean squares that were published.
    """
    first = sketches[0]
    if len(sketches) == 1:
        moments = published_moments(first.decoder, first.buckets, first.levels)
    product = np.ones(first.buckets * first.levels)
    for sketch in sketches:
        bits = unpack_bits(np.frombuffer(sketch.bits, np.uint8), product.size)
        product *= np.where(bits, sketch.decoder.one, sketch.decoder.zero)
    values = product.reshape(first.levels, first.buckets)
    empty: NDArray[np.float64] = values.sum(axis=1)
    if len(sketches) == 1:
        return moments, empty
    squares = [sketch.decoder.second_moments(0) for sketch in sketches]
    of_empty = math.prod(square[0] for square in squares)
    least = math.prod(square[1] for square in squares)  # occupied in all windows
    most = max(of_empty / square[0] * square[1] for square in squares)  # in one window only
    seen = (values**2).mean(axis=1)
    of_occupied = most
    rates = level_rates(first.buckets, first.levels)
    for _ in range(2):
        moments = LevelMoments(
            cells=first.buckets, rates=rates, second_empty=of_empty, second_occupied=of_occupied, noise=0.0
        )
        users = Likelihood(moments, empty).fit().users
        occupied = -np.expm1(-rates * users)
        if not occupied.any():
            break
        fitted = float((seen - of_empty * (1 - occupied)) @ occupied / (occupied @ occupied))
        of_occupied = min(max(fitted, least), most)
    return moments, empty
