"""What it costs to bring a batch into canonical form: small batches by the call, large ones by the row.

python -m benchmarks.speed.batch [rows]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from panstream.primitives.inputs import integers, items

REPEATS = 9
SMALL_TARGET_US = 10.0


def median_seconds(call: Callable[[], Any], loops: int) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(loops):
            call()
        times.append((time.process_time() - start) / loops)
    return statistics.median(times)


def inputs(rows: int) -> dict[str, Any]:
    names = [f"user-{i:011d}" for i in range(rows)]
    return {
        "list of int": list(range(rows)),
        "int64 array": np.arange(rows),
        "int32 array": np.arange(rows, dtype=np.int32),
        "list of str": names,
        "list of bytes": [name.encode() for name in names],
        "S array": np.array([name.encode() for name in names]),
        "U array": np.array(names),
        "Arrow int64": pa.array(range(rows)),
        "Arrow string": pa.array(names),
        "Arrow dictionary": pa.array(names).dictionary_encode(),
        "pandas int64": pd.Series(range(rows)),
        "pandas str": pd.Series(names, dtype="str"),
        "pandas category": pd.Series(names, dtype="category"),
        "polars String": pl.Series(names),
    }


def line(name: str, figure: str, target: str = "-", passed: bool | None = None) -> None:
    print(f"{name:<34}{figure:>16}{target:>12}  {'' if passed is None else 'pass' if passed else 'FAIL'}")


def small() -> bool:
    """Ten ids: the fixed cost of a call."""
    good = True
    for name, data in inputs(10).items():
        cost = 1e6 * median_seconds(lambda data=data: items(data), 1000)  # type: ignore[misc]
        if name in ("list of int", "int64 array"):
            good &= cost < SMALL_TARGET_US
            line(f"10 ids, {name}", f"{cost:.1f} us", f"< {SMALL_TARGET_US:.0f} us", cost < SMALL_TARGET_US)
        else:
            line(f"10 ids, {name}", f"{cost:.1f} us")
    for name, data in (("list of int", list(range(10))), ("int64 array", np.arange(10))):
        cost = 1e6 * median_seconds(lambda data=data: integers(data, name="w", lower=0, upper=9), 1000)  # type: ignore[misc]
        line(f"10 integers in a range, {name}", f"{cost:.1f} us")
    return good


def large(rows: int) -> None:
    """Many ids: the cost of a row, with the nearest thing NumPy or pyarrow do beside it."""
    forms = inputs(rows)
    for name, data in forms.items():
        cost = 1e9 * median_seconds(lambda data=data: items(data), 1) / rows  # type: ignore[misc]
        line(f"{rows:,} ids, {name}", f"{cost:.2f} ns/row")
    peers: dict[str, tuple[str, Callable[[], Any]]] = {
        "list of int": ("np.array", lambda: np.array(forms["list of int"])),
        "list of str": ("pa.array", lambda: pa.array(forms["list of str"])),
        "list of bytes": ("pa.array", lambda: pa.array(forms["list of bytes"])),
        "U array": ("pa.array", lambda: pa.array(forms["U array"])),
        "polars String": ("to_arrow", lambda: forms["polars String"].to_arrow()),
    }
    for name, (peer, call) in peers.items():
        ours = median_seconds(lambda name=name: items(forms[name]), 1)  # type: ignore[misc]
        line(f"{name}: time / {peer}", f"{ours / median_seconds(call, 1):.2f} x")


def main() -> int:
    line("name", "figure", "target")
    good = small()
    large(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
