"""What an intruder can learn, in one place: claims, closed forms of losses, optimal budgets, composition, ledgers."""

from panstream.privacy.claim import Adjacency, Claim, Intrusions, Unit
from panstream.privacy.composition import group, parallel, per_holder, repeated, sequential
from panstream.privacy.ledger import Ledger

__all__ = [
    "Adjacency",
    "Claim",
    "Intrusions",
    "Ledger",
    "Unit",
    "group",
    "parallel",
    "per_holder",
    "repeated",
    "sequential",
]
