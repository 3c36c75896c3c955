"""One line for one target, in the form that ``bench.py`` reads: what, figure, target, verdict, with two spaces
between.
"""

from __future__ import annotations

__all__ = ["verdict"]


def verdict(name: str, figure: str, target: str, met: bool) -> bool:
    """Print whether a target is met, and return it."""
    print(f"{name:<64}  {figure:>18}  {target:>12}  {'pass' if met else 'FAIL'}", flush=True)
    return met
