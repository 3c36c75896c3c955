"""Run cases, one after the other or on several cores, and say what was found."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from panstream.audit.case import Case, Finding, judge
from panstream.audit.montecarlo import lower_bound
from panstream.audit.registry import shipped

__all__ = ["FAILURE", "audit", "examine"]

FAILURE = 1e-3  # the chance that any lower bound of a whole audit is too high


def examine(case: Case, *, full: bool = False, failure: float = FAILURE) -> Finding:
    """Return what the exact layer and, if asked for, the trial say about one case."""
    measured = None if case.exact is None else case.exact()
    trial = case.trial if case.trial is not None else measured.trial if measured is not None else None
    bound = None
    if trial is not None and (full or case.sampled):
        bound = lower_bound(trial, runs=case.runs if full else case.quick_runs, failure=failure)
    exact, shown = (None if measured is None else measured.loss), (None if bound is None else bound.loss)
    return Finding(
        name=case.name,
        kind=case.kind,
        claimed=case.claimed,
        exact=exact,
        lower_bound=shown,
        verdict=judge(case.kind, case.claimed, exact, shown),
        witness=(measured.witness if measured is not None else "") or (trial.event if trial is not None else ""),
        event=trial.event if trial is not None and bound is not None else "",
        advantage=bound.advantage if bound is not None and trial is not None and trial.attack else None,
        runs=0 if bound is None else sum(bound.runs),
        stands_for=case.stands_for,
    )


def audit(
    chosen: Sequence[Case],
    *,
    full: bool = False,
    jobs: int = 1,
    failure: float = FAILURE,
    done: Callable[[Finding], None] | None = None,
) -> list[Finding]:
    """Return a finding per case, in order. ``failure`` is shared evenly by all cases; ``done`` is called as they come in.

    With ``jobs`` above 1 shipped cases are run by so many fresh processes; your own stay in this one.
    """
    each = failure / max(1, len(chosen))
    found: dict[str, Finding] = {}

    def keep(finding: Finding) -> None:
        found[finding.name] = finding
        if done is not None:
            done(finding)

    outside = [case for case in chosen if jobs > 1 and shipped().get(case.name) is case]
    inside = [case for case in chosen if case not in outside]
    outside.sort(key=lambda case: (not case.sampled, -case.runs))  # so that no core ends with the longest
    with contextlib.ExitStack() as stack:
        waiting = []
        if outside:
            pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")))
            waiting = [pool.submit(_by_name, case.name, full, each) for case in outside]
        for case in inside:
            keep(examine(case, full=full, failure=each))
        for future in as_completed(waiting):
            keep(future.result())
    return [found[case.name] for case in chosen]


def _by_name(name: str, full: bool, failure: float) -> Finding:
    return examine(shipped()[name], full=full, failure=failure)
