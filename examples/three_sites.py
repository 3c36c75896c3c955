"""Three data centres that may not exchange ids: merge their noisy bitmaps, and see what that costs against routing.

python examples/three_sites.py
"""

from __future__ import annotations

import numpy as np

from panstream.algorithms import Bitmap

USERS = 60_000
SHARED = 0.3
RUNS = 12


def one_run(epsilon: float, draw: np.random.Generator) -> tuple[float, float]:
    """Return the relative errors of three routed shards and of three merged sites."""
    homes = draw.integers(0, 3, USERS)
    travels = draw.random(USERS) < SHARED
    visits = [np.flatnonzero((homes == site) | (travels & ((homes + 1) % 3 == site))) for site in range(3)]

    routed = Bitmap(epsilon=epsilon, buckets=8192, levels=16, expected=USERS).start()
    for ids in visits:
        routed.update(ids)

    # A user may be at every site, so each site gets a third of the budget for its state.
    sites = [Bitmap(epsilon=epsilon / 3, buckets=8192, levels=16, expected=USERS).start() for _ in range(3)]
    for site, ids in zip(sites, visits, strict=True):
        site.update(ids)
    merged = sites[0].merge(sites[1]).merge(sites[2])
    return routed.release().value / USERS - 1, merged.release().value / USERS - 1


def main() -> None:
    draw = np.random.default_rng(5)
    print(
        f"{USERS:,} users, {SHARED:.0%} of them at two of three sites; root mean squared relative error of {RUNS} "
        "runs\n"
    )
    print(f"{'each site':>10} {'routed claim':>13} {'error':>8}   {'merged claim':>13} {'error':>8}")
    for epsilon in (3.0, 6.0, 9.0):
        errors = np.array([one_run(epsilon, draw) for _ in range(RUNS)])
        routed, merged = np.sqrt((errors**2).mean(axis=0))
        sites = [Bitmap(epsilon=epsilon / 3, buckets=8192, levels=16, expected=USERS).start() for _ in range(3)]
        claim = sites[0].merge(sites[1]).merge(sites[2]).claim()
        print(f"{epsilon / 3:>10g} {epsilon:>13g} {routed:>8.2%}   {claim.epsilon:>13.3g} {merged:>8.2%}")
    print("\nRouting needs ids (or their cells) to travel, and keeps one user's loss in one place.")
    print("Merging needs nothing to travel but noisy bitmaps, and the sites' losses add up.")


if __name__ == "__main__":
    main()
