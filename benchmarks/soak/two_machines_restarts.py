"""What a front end that dies and starts again costs somebody who watches machine a: a likelihood test.

    python -m benchmarks.soak.two_machines_restarts [restarts] [runs]

One answer at epsilon 1 is declared. The front end dies before the step with it is decided, 200 times, and is started
again each time. The lower bound for the loss (99.9% confidence) must not exceed the claim. If a step that was given up
showed an answer, every restart would add one: with machines that did, the bound was 1.9 (200 restarts, 60 runs).
"""

from __future__ import annotations

import sys

from benchmarks.verdicts import verdict


def main(restarts: int, runs: int) -> int:
    from panstream.audit.claims.monte_carlo import lower_bound
    from tests.distributed.two_party.restarts import STATISTIC, likelihood_trial

    bound = lower_bound(likelihood_trial(restarts), runs=runs, failure=1e-3)
    claimed = STATISTIC.claim().epsilon
    there, absent = bound.happened
    print(f"{restarts} restarts, {runs} runs of each stream: guessed present {there} and {absent} times")
    sound = bound.loss <= claimed
    verdict("two machines, restarts: loss is at least", f"{bound.loss:.3f}", f"<= {claimed:g}", sound)
    return int(not sound)


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    sys.exit(main(given[0] if given else 200, given[1] if len(given) > 1 else 400))
