"""Make clinic.csv.gz: 200,000 simulated visits to a clinic's self-assessment page. No real person is in it.

Patients are numbered 0..49,999; a fifth of them have symptoms; busy patients come more often.
"""

import gzip
from pathlib import Path

import numpy as np

VISITS = 200_000
PATIENTS = 50_000
DAYS = 30


def main() -> None:
    rng = np.random.default_rng(20)
    appetite = rng.pareto(1.5, PATIENTS)
    appetite[rng.random(PATIENTS) < 0.4] = 0.0  # never visit
    patient = rng.choice(PATIENTS, VISITS, p=appetite / appetite.sum())
    sick = rng.random(PATIENTS) < 0.2
    minute = np.sort(rng.integers(0, DAYS * 24 * 60, VISITS))
    start = np.datetime64("2026-03-01T00:00")
    stamps = np.datetime_as_string(start + minute.astype("timedelta64[m]"), unit="m")
    rows = [f"{t},{p},{'YES' if sick[p] else 'NO'}" for t, p in zip(stamps, patient, strict=True)]
    text = "\n".join(["time,patient,symptom", *rows]) + "\n"
    target = Path(__file__).with_name("clinic.csv.gz")
    with open(target, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=9, mtime=0) as out:
        out.write(text.encode())
    print(target.name, target.stat().st_size, "bytes,", np.unique(patient).size, "patients")


if __name__ == "__main__":
    main()
