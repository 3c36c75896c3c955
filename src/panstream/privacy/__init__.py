"""Claims, closed forms of losses, optimal budgets, composition, ledgers. No other package computes losses.

``joint_loss`` has the losses of stored bits, ``change_tree_loss`` those of counting them at every tick;
``bitmap_loss``, ``turnstile_loss``, ``continual_loss``, ``heavy_hitter_loss``, ``table_loss`` and ``holder_loss`` are
each for one family; ``budget_split`` divides an epsilon; ``rounding`` rounds floats so that no loss is understated.
Every form has a proof in docs/proofs and is checked against the shipped code.
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
