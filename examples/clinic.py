"""How many of a clinic's 50,000 patients opened its self-assessment page this month? And how many with symptoms?

Two private counts over the bundled stream of 200,000 simulated visits, with the true answers beside them, and what
someone who copied this process's memory would have learned.
"""

import csv
import gzip
import math
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from panstream import OptBern

PATIENTS, EPSILON = 50_000, 1.0


def main() -> None:
    console = Console()
    with gzip.open(Path(__file__).parent / "data" / "clinic.csv.gz", "rt") as file:
        rows = [(int(row["patient"]), row["symptom"] == "YES") for row in csv.DictReader(file)]
    patients, sick = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])

    questions = {"visited": np.ones(len(rows), bool), "visited with symptoms": sick}
    monitors = {name: OptBern(universe=PATIENTS, epsilon=EPSILON).start() for name in questions}
    for start in track(range(0, len(rows), 10_000), "reading 200,000 visits", console=console, transient=True):
        batch = slice(start, start + 10_000)
        for name, mask in questions.items():
            monitors[name].update(patients[batch][mask[batch]])

    table = Table(title="Patients who opened the page, counted privately", title_justify="left")
    for column in ("question", "estimate", "95% interval", "truth", "epsilon", "protects"):
        table.add_column(column, justify="right" if column in ("estimate", "truth", "epsilon") else "left")
    for name, mask in questions.items():
        estimate = monitors[name].release().scaled(PATIENTS, "patients")
        low, high = estimate.interval()
        truth = np.unique(patients[mask]).size
        claim = estimate.claim
        table.add_row(
            name,
            f"{estimate.value:,.0f}",
            f"{low:,.0f} to {high:,.0f}",
            f"{truth:,}",
            f"{claim.epsilon:.3g}",
            claim.unit,
        )
    console.print(table)

    monitor = monitors["visited"]
    loss = monitor.algorithm.law.epsilon_state
    advantage = math.tanh(loss / 2)
    seen = Table(title="What an intruder who copied the memory saw", title_justify="left", show_header=False)
    seen.add_row(
        "state of one question", f"{len(monitor.to_bytes()):,} bytes: one noisy bit per patient, no ids, no counts"
    )
    seen.add_row("a patient who visited", f"has bit 1 with probability {monitor.algorithm.law.p1:.3f}")
    seen.add_row("a patient who did not", f"has bit 1 with probability {monitor.algorithm.law.p0:.3f}")
    seen.add_row(
        "best guess 'was she there?'", f"right at most {0.5 + advantage / 2:.1%} of the time, coin tossing 50%"
    )
    seen.add_row(
        "with both answers as well",
        f"odds change by at most a factor e^{EPSILON:g} = {math.exp(EPSILON):.2f} per question",
    )
    console.print(seen)


if __name__ == "__main__":
    main()
