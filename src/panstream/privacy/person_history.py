"""The worst period of a person while queries come and go: which of them were asked when, and what each took.

A query that is removed leaves its open states in the store, where a copy still shows them; a state that was lost was
replaced by another one. Proof: docs/proofs/person-period.md, Theorem 1 and Lemma 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes
from panstream.privacy.person_loss import PersonShare, PersonTotal, WindowLoss, windows_open
from panstream.privacy.person_renyi import conversion, order_grid, share_divergences

_WorstOf = Callable[[Sequence["AskedQuery"], NDArray[np.int64], PersonTotal], PersonTotal]

_MOST_CANDIDATES = 1 << 20  # periods that are looked at one by one around a change
_LOSSES = ("joint", "answers", "unused", "delta", "rho_joint", "rho_answers", "later", "states")
_ORDERS = order_grid(200)  # of the divergences by which periods are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuery:
    """A query from its start to its end, in the stream's time.

    Attributes:
        share: What it takes of a period during which it is asked throughout.
        window: Seconds after which it starts afresh, at least; None if it never does.
        is_regular: Whether all windows have this length, the first from 1970; those of a calendar do not.
        lateness: Seconds that windows wait for late rows.
        overlap: Whether a copy can show windows that are over together with those that follow them.
        begin: Since when its rows can have been read; None if since ever.
        end: Until when; None while it is asked.
        start: Number of the process whose end was that of its states too; None if they are stored, and so may still be
            copied after the query was removed.
    """

    share: PersonShare
    window: float | None
    is_regular: bool = True
    lateness: float = 0.0
    overlap: bool = False
    begin: float | None = None
    end: float | None = None
    start: int | None = None

    def windows_met(self, starts: NDArray[np.float64], period: float) -> NDArray[np.int64]:
        """Return for every period that begins at one of ``starts`` how many windows can have rows of it."""
        begin = np.maximum(starts, -math.inf if self.begin is None else self.begin)
        end = np.minimum(starts + period, math.inf if self.end is None else self.end)
        meets = end > begin
        if self.window is None:
            return meets.astype(np.int64)
        if not self.is_regular:
            most = self.most_windows((float(starts.min()), float(starts.max())), period) if starts.size else 0
            return np.where(meets, most, 0).astype(np.int64)
        length = self.window
        first = np.floor(np.where(meets, begin, 0.0) / length)
        last = np.ceil(np.where(meets, end, 1.0) / length) - 1.0  # the end is not part of the period
        return np.where(meets, last - first + 1.0, 0.0).astype(np.int64)

    def most_windows(self, starts: tuple[float, float], period: float) -> int:
        """Return how many windows a period can meet that begins anywhere between two times, at most."""
        low, high = starts
        begin = -math.inf if self.begin is None else self.begin
        end = math.inf if self.end is None else self.end
        overlap = min(high + period, end) - max(low, begin)
        if not overlap > 0:
            return 0
        if self.window is None:
            return 1
        is_endless = math.isinf(begin) or math.isinf(end)
        total = math.inf if is_endless or not self.is_regular else math.ceil(end / self.window) - begin // self.window
        return int(min(math.ceil(min(overlap, period) / self.window) + 1, total))

    def shortened(self, windows: int) -> PersonShare:
        """Return the share of a period that meets only so many windows."""
        most_open = 1 if self.window is None else windows_open(self.window, self.lateness)
        open_ = min(most_open, windows)
        opening = min(most_open, windows - open_) if self.overlap else 0
        retained = min(self.share.retained, windows - open_ - opening)
        return replace(self.share, windows=windows, open=open_, opening=opening, retained=retained)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        share = self.share
        loss = share.loss
        retained = {} if loss is None or loss.closed is None else {"retained": share.retained, "closed": loss.closed}
        return {
            "query": share.name,
            "begin": self.begin,
            "end": self.end,
            "start": self.start,
            "window": self.window,
            **({} if self.is_regular else {"is_regular": False}),
            "lateness": self.lateness,
            "overlap": self.overlap,
            "windows": share.windows,
            "open": share.open,
            "opening": share.opening,
            "loss": None if loss is None else [getattr(loss, name) for name in _LOSSES],
            **retained,
            "contributions": share.contributions,
            "bounded_by": share.bounded_by,
            "reason": share.reason,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> AskedQuery:
        """Read what `to_json` wrote."""
        try:
            closed = {"closed": data["closed"]} if "closed" in data else {}
            losses = data["loss"]
            loss = None if losses is None else WindowLoss(**dict(zip(_LOSSES, losses, strict=True)), **closed)
            share = PersonShare(
                name=data["query"],
                loss=loss,
                retained=data.get("retained", 0),
                **{key: data[key] for key in ("windows", "open", "opening", "contributions", "bounded_by", "reason")},
            )
            return cls(
                share=share,
                is_regular=bool(data.get("is_regular", True)),
                **{key: data[key] for key in ("window", "lateness", "overlap", "begin", "end", "start")},
            )
        except (KeyError, TypeError, ValueError):
            raise InvalidBytes("this is not the history of a query") from None


def worst_total(
    queries: Sequence[AskedQuery], period: float, limit: float | None = None, delta: float = 0.0, announced: int = 0
) -> PersonTotal:
    """Return the total of the period in which a person can lose the most.

    Args:
        queries: All queries, those that are over too.
        period: Seconds of the period.
        limit: The declared budget, if there is one.
        delta: The declared delta.
        announced: How many copies were announced.
    """
    empty = PersonTotal(period=period, shares=(), limit=limit, delta=delta, copies=1 + announced)
    bounded = [query for query in queries if math.isfinite(query.share.epsilon)]
    unbounded = tuple(query.share for query in queries if math.isinf(query.share.epsilon))
    pure = None if any(query.share.delta for query in bounded) else _worst(bounded, empty, _worst_pure)
    worst = pure
    if pure is None or delta:
        at_delta = _worst(bounded, empty, _worst_at_delta)
        worst = at_delta if pure is None or at_delta.epsilon < pure.epsilon else pure
    assert worst is not None
    return replace(worst, shares=(*worst.shares, *unbounded))


def _worst(queries: Sequence[AskedQuery], empty: PersonTotal, worst_of: _WorstOf) -> PersonTotal:
    """Return the worst total of all periods, by the rule for those whose numbers of windows are given as columns.

    Periods that begin between two changes of what is asked, and end before the next, are bounded by the most windows
    that they can meet; those around a change are looked at one by one, at every moment at which a window enters or
    leaves.
    """
    period = empty.period
    changes = sorted({time for query in queries for time in (query.begin, query.end) if time is not None})
    edges = sorted({edge for change in changes for edge in (change - period, change)})
    segments = list(zip([-math.inf, *edges], [*edges, math.inf], strict=True))
    best = empty
    for low, high in segments:
        whole = any(low <= change - period < high or low < change <= high for change in changes)
        starts = _candidates(queries, period, low, high) if whole and math.isfinite(high - low) else None
        if starts is None:
            counts = np.array([[query.most_windows((low, high), period)] for query in queries]).reshape(len(queries), 1)
        else:
            counts = np.stack([query.windows_met(starts, period) for query in queries])
        total = worst_of(queries, counts, empty)
        best = max(best, total, key=lambda candidate: (candidate.epsilon, candidate.stated_delta))
    return best


def _candidates(queries: Iterable[AskedQuery], period: float, low: float, high: float) -> NDArray[np.float64] | None:
    """Return where periods begin that differ in the windows that they meet; None if they are too many."""
    lengths = {query.window for query in queries if query.window is not None}
    if sum(2 * (high - low) / length for length in lengths) > _MOST_CANDIDATES:
        return None
    edges = [np.array([low, high])]
    for length in lengths:
        for shift in (0.0, period):  # a window is left, or is reached by the end of the period
            first = math.floor((low + shift) / length)
            last = math.ceil((high + shift) / length)
            edges.append(np.arange(first, last + 1) * length - shift)
    every = np.concatenate(edges)
    ordered = np.unique(every[(every >= low) & (every <= high)])
    between = (ordered[1:] + ordered[:-1]) / 2.0  # nothing changes between two edges
    return np.concatenate([ordered, between])


def _worst_pure(queries: Sequence[AskedQuery], counts: NDArray[np.int64], empty: PersonTotal) -> PersonTotal:
    """Return the worst total by Theorem 1, which adds up; of states that were lost, one start's are copied."""
    size = counts.shape[1]
    answers = np.zeros(size)
    copies: dict[int | None, NDArray[np.float64]] = {}
    for query, met in zip(queries, counts, strict=True):
        shares = {int(n): query.shortened(int(n)) for n in np.unique(met) if n}
        of_answers = {n: share.of_answers for n, share in shares.items()}
        of_copy = {n: float(share.of_copy) for n, share in shares.items()}
        answers += [of_answers.get(n, 0.0) for n in met.tolist()]
        copies.setdefault(query.start, np.zeros(size))
        copies[query.start] += [of_copy.get(n, 0.0) for n in met.tolist()]
    stored = copies.pop(None, np.zeros(size))
    losses = answers + stored + np.max([*copies.values(), np.zeros(size)], axis=0)
    worst = [int(n) for n in counts[:, int(np.argmax(losses))]]
    return replace(empty, shares=_shares(queries, worst), delta=0.0)


def _worst_at_delta(queries: Sequence[AskedQuery], counts: NDArray[np.int64], empty: PersonTotal) -> PersonTotal:
    """Return the worst total at a delta; all starts' states are taken for copied.

    Totals at a few orders are upper bounds of the true ones, which are computed from the largest bound down until no
    other can be larger.
    """
    different = np.unique(counts, axis=1)
    size = different.shape[1]
    divergences = np.zeros((size, _ORDERS.size))
    added, deltas, fixed = (np.zeros(size) for _ in range(3))
    for query, met in zip(queries, different, strict=True):
        numbers, index = np.unique(met, return_inverse=True)
        shares = [query.shortened(int(n)) for n in numbers if n]
        zeros = int(numbers[0] == 0) if numbers.size else 0
        by_number = np.zeros((numbers.size, _ORDERS.size))
        by_number[zeros:] = share_divergences(shares, _ORDERS, empty.copies)
        divergences += by_number[index]
        of_number = np.array([*[(0.0, 0.0, 0.0)] * zeros, *((s.epsilon, s.delta, s.own_delta) for s in shares)])
        for sums, column in zip((added, deltas, fixed), of_number.reshape(-1, 3).T, strict=True):
            sums += column[index]
    allowed = np.full(size, empty.delta) if empty.delta else deltas
    remaining = np.maximum(allowed - fixed, 0.0)
    with np.errstate(divide="ignore"):
        bounds = (divergences + conversion(_ORDERS, remaining[:, np.newaxis])).min(axis=1)
    bounds = np.where(deltas <= allowed, np.minimum(bounds, added), bounds) * (1.0 + 1e-9) + 1e-9
    best = empty
    for index in np.argsort(-bounds, kind="stable"):
        if bounds[index] < best.epsilon:
            break
        met = [(query, int(n)) for query, n in zip(queries, different[:, index], strict=True) if n]
        total = replace(empty, shares=tuple(query.shortened(n) for query, n in met))
        best = max(best, total, key=lambda candidate: (candidate.epsilon, candidate.stated_delta))
    return best


def _shares(queries: Sequence[AskedQuery], counts: Sequence[int]) -> tuple[PersonShare, ...]:
    """Return what each query takes if it meets so many windows; of states that were lost, one start's are copied."""
    met = [(query, query.shortened(count)) for query, count in zip(queries, counts, strict=True) if count]
    lost = {query.start for query, _ in met if query.start is not None}
    copied = max(
        lost, key=lambda start: sum(share.of_copy for query, share in met if query.start == start), default=None
    )
    return tuple(
        share if query.start in (None, copied) else replace(share, open=0, opening=0, retained=0)
        for query, share in met
    )
