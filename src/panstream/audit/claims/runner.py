"""The registry of cases (the library's, its controls and registered ones), and the audit on one or several cores."""

from __future__ import annotations

import contextlib
import difflib
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache

from panstream.audit.claims.case import Case, Finding
from panstream.audit.claims.monte_carlo import lower_bound
from panstream.errors import InvalidParameter

FAILURE = 1e-3  # the probability that any lower bound of an audit is too high


_registered: dict[str, Case] = {}


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Case]:
    """Return the library's cases by name: production first, then the controls."""
    from panstream.audit.claims.cases import GROUPS, cases_in

    cases_by_name: dict[str, Case] = {}
    for case in sorted(
        (case for module_name in GROUPS for case in cases_in(module_name)), key=lambda case: case.kind, reverse=True
    ):
        if case.name in cases_by_name:
            raise InvalidParameter(f"two cases are named {case.name!r}")
        cases_by_name[case.name] = case
    return cases_by_name


def cases() -> list[Case]:
    """Return all cases, registered ones last."""
    return [*_shipped().values(), *_registered.values()]


def register_case(case: Case) -> Case:
    """Add a case to every audit of this process and return it; raise InvalidParameter if its name is taken."""
    if case.name in _shipped() or case.name in _registered:
        raise InvalidParameter(f"a case named {case.name!r} is already registered")
    _registered[case.name] = case
    return case


def unregister_case(name: str) -> None:
    """Remove a registered case, if there is one of this name."""
    _registered.pop(name, None)


def select(names: Iterable[str]) -> list[Case]:
    """Return the cases whose name starts with one of ``names`` or whose kind it is, ignoring case; all by default."""
    wanted = list(names)
    if not wanted:
        return cases()
    selected: dict[str, Case] = {}
    for name in wanted:
        low = name.casefold()
        fits = [case for case in cases() if case.name.casefold().startswith(low) or low == case.kind]
        if not fits:
            available = {case.name.split(",")[0].casefold(): case.name.split(",")[0] for case in cases()}
            near = [available[key] for key in difflib.get_close_matches(low, available, 3)]
            hint = (
                f"; did you mean {' or '.join(map(repr, near))}?" if near else "; without names, all cases are audited"
            )
            raise InvalidParameter(
                f"no case begins with {name!r}{hint} (state, memory and system are audits of their own)"
            )
        selected.update((case.name, case) for case in fits)
    return list(selected.values())


def audit_case(case: Case, *, full: bool = False, failure: float = FAILURE) -> Finding:
    """Return the finding of the exact layer and, for a full audit or a sampled case, of the trial."""
    measured = None if case.exact is None else case.exact()
    trial = case.trial if case.trial is not None else measured.trial if measured is not None else None
    bound = None
    if trial is not None and (full or case.sampled):
        bound = lower_bound(trial, runs=case.runs if full else case.quick_runs, failure=failure)
    return Finding(
        name=case.name,
        kind=case.kind,
        claimed=case.claimed,
        exact=None if measured is None else measured.loss,
        lower_bound=None if bound is None else bound.loss,
        witness=(measured.witness if measured is not None else "") or (trial.event if trial is not None else ""),
        event=trial.event if trial is not None and bound is not None else "",
        advantage=bound.advantage if bound is not None and trial is not None and trial.attack else None,
        runs=0 if bound is None else sum(bound.runs),
        represents=case.represents,
    )


def audit(
    cases: Sequence[Case],
    *,
    full: bool = False,
    jobs: int = 1,
    failure: float = FAILURE,
    on_case_done: Callable[[Finding], None] | None = None,
) -> list[Finding]:
    """Return a finding per case, in order; ``on_case_done`` is called with each as soon as it is ready.

    ``failure`` is split evenly over all cases. With ``jobs`` above 1 the library's cases run in that many new
    processes; registered ones, which need not be picklable, run in this one.
    """
    failure_per_case = failure / max(1, len(cases))
    findings: dict[str, Finding] = {}

    def add(finding: Finding) -> None:
        findings[finding.name] = finding
        if on_case_done is not None:
            on_case_done(finding)

    remote = [case for case in cases if jobs > 1 and _shipped().get(case.name) is case]
    local = [case for case in cases if case not in remote]
    remote.sort(key=lambda case: (not case.sampled, -case.runs))  # longest first, so that all cores end together
    with contextlib.ExitStack() as stack:
        waiting = []
        if remote:
            pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")))
            waiting = [pool.submit(_by_name, case.name, full, failure_per_case) for case in remote]
        for case in local:
            add(audit_case(case, full=full, failure=failure_per_case))
        for future in as_completed(waiting):
            add(future.result())
    return [findings[case.name] for case in cases]


def _by_name(name: str, full: bool, failure: float) -> Finding:
    return audit_case(_shipped()[name], full=full, failure=failure)
