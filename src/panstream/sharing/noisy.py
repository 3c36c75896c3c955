"""Cells that are noisy under their shares too (``cells = "noisy"``): whoever sees both machines in one epoch, once,
sees what one look at one machine shows.

The front end draws what touched cells become, and once what all of them are at the start. Looks at one machine at a
time stay free. docs/proofs/two-machines.md.
"""

from __future__ import annotations

from panstream.noisy_bits import BitLaw
from panstream.packed import toss
from panstream.randomness import Source
from panstream.scratch import wipe
from panstream.sharing.arithmetic import Bits


def draw_cells(
    touched: Bits, there: Bits, cells: int, law: BitLaw, source: Source, *, fresh: bool
) -> tuple[Bits, Bits]:
    """Return which cells are touched and what they become, packed: a toss of ``law.present`` where somebody is
    ``there``, of ``law.absent`` elsewhere. In the step that starts a state (``fresh``) all cells are touched.
    """
    present, values = toss(law.present, cells, source), toss(law.absent, cells, source)
    present ^= values
    present &= there
    values ^= present
    wipe(present)
    if fresh:
        touched.fill(255)
    return touched, values
