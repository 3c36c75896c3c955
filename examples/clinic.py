"""A clinic's self-assessment page: who came, who had symptoms, how many visits, counted by the stream engine: numbers
of patients protect a patient, numbers of visits one visit.

Runs the queries of clinic.toml over the bundled 200,000 simulated visits, prints the true answers next to them
(computed here, apart from the engine), and what someone who copied this process's memory would have learned.
"""

import csv
import gzip
import math
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from panstream.engine import Engine, answers, ingest, load_config

HERE = Path(__file__).parent
VISITS = HERE / "data" / "clinic.csv.gz"


def true_answers() -> dict[str, int]:
    with gzip.open(VISITS, "rt") as file:
        rows = list(csv.DictReader(file))
    patients = np.array([int(row["patient"]) for row in rows])
    sick = np.array([row["symptom"] == "YES" for row in rows])
    day = np.array([row["time"][:10] for row in rows])
    return {
        "patients": np.unique(patients).size,
        "patients with symptoms": np.unique(patients[sick]).size,
        "visits so far": len(rows),
        "visits by symptom [symptom=YES]": int(sick.sum()),
        "visits by symptom [symptom=NO]": int((~sick).sum()),
        "patients of the day": np.unique(patients[day == day[-1]]).size,
    }


def main() -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    bar = Progress(TextColumn("{task.fields[rows]:,} visits"), BarColumn(), TimeRemainingColumn(), transient=True)
    with Engine(load_config(HERE / "clinic.toml")) as engine, bar:
        task = bar.add_task("visits", total=1.0, rows=0)
        ingest(engine, [str(VISITS)], on_batch=lambda rows, share: bar.update(task, completed=share or 0.0, rows=rows))
        engine.finish()
        found = list(answers(engine))
        plans = {plan.config.name: plan for plan in engine.plans}

    table = Table(title="The last answers to the questions of clinic.toml", title_justify="left")
    for column in ("question", "estimate", "95% interval", "truth", "epsilon", "protects one"):
        table.add_column(column, justify="right" if column in ("estimate", "truth", "epsilon") else "left")
    truth = true_answers()
    for answer in found:
        low, high = answer["interval"]
        figures = (f"{answer['value']:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{truth[answer['name']]:,}")
        table.add_row(escape(answer["name"]), *figures, f"{answer['epsilon']:.3g}", answer["claim"]["unit"])
    console.print(table)

    law = plans["patients"].algorithm.law
    guess = 0.5 + math.tanh(law.epsilon_state / 2) / 2
    seen = Table(title="What an intruder who copied the memory saw", title_justify="left", show_header=False)
    size = plans["patients"].state_bytes
    seen.add_row("state of the first question", f"{size:,} bytes: one noisy bit per patient, no ids, no counts")
    seen.add_row("a patient who visited", f"has bit 1 with probability {law.p1:.3f}")
    seen.add_row("a patient who did not", f"has bit 1 with probability {law.p0:.3f}")
    seen.add_row("best guess 'was she there?'", f"right at most {guess:.1%} of the time, coin tossing 50%")
    console.print(seen)


if __name__ == "__main__":
    main()
