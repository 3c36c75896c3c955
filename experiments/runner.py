"""Shared by the scripts of this folder: compute one figure and draw it, or go on with one that was stopped."""

from __future__ import annotations

import argparse
from pathlib import Path

from panstream.cli.figures import make_figures


def main(*keys: str) -> None:
    parser = argparse.ArgumentParser(description="Compute figures of density estimation and draw them.")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="directory for data, manifests and pictures")
    parser.add_argument("--quick", action="store_true", help="fewer points and repetitions")
    parser.add_argument("--seed", type=int, default=1, help="number that fixes all draws")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0 for one a core")
    given = parser.parse_args()
    make_figures(given.out, only=keys, quick=given.quick, seed=given.seed, jobs=given.jobs)
