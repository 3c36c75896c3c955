"""The federated tables of the documentation are those that were measured, each over 20 splits."""

import csv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_show_what_was_measured() -> None:
    with (ROOT / "benchmarks" / "accuracy" / "federated_results.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["holders"] != "0"]
    assert {row["count"] for row in rows} == {"20"}
    cells: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if not row["method"].endswith("by size"):
            shown = f"{float(row['mean']):.2f} ± {float(row['std']):.2f}"
            cells.setdefault((row["data"], row["holders"], row["epsilon"]), []).append(shown)
    page = (ROOT / "docs" / "explanation" / "federated.md").read_text("utf-8").splitlines()
    assert len(cells) == 24
    for (_, holders, epsilon), shown in cells.items():
        start = f"| {holders} | {float(epsilon):g} |"
        assert any(line.startswith(start) and all(each in line for each in shown) for line in page), (start, shown)
