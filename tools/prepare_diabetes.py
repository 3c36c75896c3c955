"""Write the Diabetes table of the thesis and its domain, from UCI's public file.

    python tools/prepare_diabetes.py diabetic_data.csv --out data
    panstream figures --out figures --only 002-3.8 --diabetes data

The file is part of "Diabetes 130-US hospitals for years 1999-2008" (doi:10.24432/C5230J, CC BY 4.0); it may be
compressed by gzip.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from panstream.papers.diabetes_table import prepare, write_table


def main() -> None:
    parser = argparse.ArgumentParser(description="Prepare the Diabetes table of the thesis.")
    parser.add_argument("file", type=Path, help="diabetic_data.csv or diabetic_data.csv.gz")
    parser.add_argument("--out", type=Path, required=True, help="folder for diabetes43.csv.gz and its domain")
    parser.add_argument("--sample", type=int, help="keep so many patients, drawn at random (always the same)")
    given = parser.parse_args()
    records = prepare(given.file)
    if given.sample:
        records = records.take(np.sort(np.random.default_rng(43).permutation(len(records))[: given.sample]))
    write_table(records, given.out)
    print(f"Wrote {len(records):,} records of {len(records.domain)} attributes to {given.out}.")


if __name__ == "__main__":
    main()
