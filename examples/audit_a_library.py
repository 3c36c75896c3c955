"""Audit somebody else's counter: PyDP, the Python form of Google's differential privacy library.

Its answers keep the promise they make. Its saved state is another matter: ``serialize()`` writes the exact count, so
whoever copies the file knows whether you came. That is no error of PyDP, which promises nothing about its state; it is
what pan-privacy adds.

Needs python-dp: pip install python-dp
"""

from functools import partial

from pydp.algorithms.laplacian import Count

from panstream import ContinualCount
from panstream.audit import Case, Trial, audit, linear_case, register_case
from panstream.testing.enumeration import tick, update

EPSILON = 1.0
OTHERS = 7


def counter(you_came: bool) -> Count:
    """Return PyDP's counter after seven people, and perhaps you."""
    count = Count(epsilon=EPSILON, dtype="int")
    count.add_entries([1] * (OTHERS + you_came))
    return count


def answer_is_high(you_came: bool) -> bool:
    """What the public sees: one noisy answer."""
    return counter(you_came).result() > OTHERS


def file_says_eight(you_came: bool) -> bool:
    """What a thief sees: the bytes of the saved state. The count is the last number in them."""
    return counter(you_came).serialize().to_bytes()[-1] > OTHERS


register = partial(Case, kind="production", claimed=EPSILON, sampled=True, quick_runs=2_000)
WORLD = [update([0]), tick(), update([0]), tick()]
NEIGHBOURS = [[update([1]), *WORLD[1:]], [*WORLD[:2], update([1]), tick()]]

if __name__ == "__main__":
    print(f"the last byte of PyDP's saved state: {counter(False).serialize().to_bytes()[-1]} without you,", end=" ")
    print(f"{counter(True).serialize().to_bytes()[-1]} with you")
    chosen = [
        register_case(register(name="PyDP, its answer", trial=Trial("the answer is above 7", answer_is_high))),
        register_case(register(name="PyDP, its saved state", trial=Trial("the file says 8", file_says_eight, True))),
        register_case(
            linear_case(
                ContinualCount(epsilon=EPSILON, horizon=2), WORLD, NEIGHBOURS, name="panstream, saved and answered"
            )
        ),
    ]
    for found in audit(chosen):
        measured = found.lower_bound if found.exact is None else found.exact
        print(f"{found.name}: promises {found.claimed:g}, loses at least {measured:.3g} ({found.verdict})")
