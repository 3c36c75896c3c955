"""What an intruder can learn, in one place: claims, closed forms of losses, optimal budgets, composition, ledgers.

``joint`` has the losses of stored bits, ``changes`` those of counting them at every tick; ``bitmap``, ``turnstile``,
``continual``, ``frequent``, ``tables`` and ``holders`` are for their rooms; ``split`` divides an epsilon;
``rounding`` keeps them on the safe side in floats. Every form has a proof in docs/proofs and is checked against the
shipped code. No other room computes a loss.
"""

from panstream.privacy.claim import Adjacency, Claim, Intrusions, Unit
from panstream.privacy.composition import (
    compose_parallel,
    compose_per_holder,
    compose_repeated,
    compose_sequential,
    group_privacy,
)
from panstream.privacy.joint_loss import pair_loss
from panstream.privacy.ledger import Ledger

__all__ = [
    "Adjacency",
    "Claim",
    "Intrusions",
    "Ledger",
    "Unit",
    "compose_parallel",
    "compose_per_holder",
    "compose_repeated",
    "compose_sequential",
    "group_privacy",
    "pair_loss",
]
