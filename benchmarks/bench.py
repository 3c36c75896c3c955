"""Every measured figure in one table: ratios to peers side by side, and every target with pass or fail.

``python -m benchmarks.bench`` runs everything (about half an hour); names of parts (``speed``, ``accuracy``,
``intruder``, or a script such as ``density``) run only those and keep the other parts as they were
measured before. Results go to docs/benchmarks.json, the page docs/benchmarks.md and its pictures. Peers that are not
installed are left out and said so.
"""

from __future__ import annotations

import importlib
import json
import platform
import re
import subprocess
import sys
import textwrap
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.peers.anchors import described, machine

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
RESULTS = DOCS / "benchmarks.json"
PAGE = DOCS / "benchmarks.md"
COMPARISONS = ("speed", "accuracy", "intruder")
LEFT_OUT = {"soak", "histories", "release"}  # make soak and make release run these
SCRIPTS = {
    path.stem: path
    for folder in ("speed", "accuracy", "soak", "release")
    for path in sorted((HERE / folder).glob("*.py"))
    if path.stem not in LEFT_OUT
}
VERDICT = re.compile(r"^(?P<name>.+?)\s{2,}(?P<figure>.*?\S)\s{2,}(?P<target>\S.*?)\s{2,}(?P<verdict>pass|FAIL)\s*$")
LIBRARIES = (
    "numpy",
    "numba",
    "duckdb",
    "polars",
    "datafusion",
    "chdb",
    "datasketches",
    "opendp",
    "python-dp",
    "redis",
    "pyarrow",
    "distributed",
)

TITLES = {
    "speed": "Speed compared with peers",
    "accuracy": "Accuracy compared with peers",
    "intruder": "What an intruder reads",
}
INTRODUCTIONS = {
    "speed": "Events per second, one thread each, on the same array in the same run, in alternating rounds: the "
    "median, and the lowest and highest ratio of a round. Distinct counts beside databases are CPU time, the rest wall "
    "time. Ours includes drawing every coin and wiping what was used. A ratio above 1 means that we are faster.",
    "accuracy": "Root mean squared errors (relative ones for distinct counts). The ratio is that of the mean squared "
    "errors with its 95% interval; above 1 means that ours is smaller. Peers marked as unprotected or not pan-private "
    "show the price of surviving a break-in.",
    "intruder": "An intruder knows everybody but one member and copies the state. For how many of 10,000 members is "
    "she at least 99% sure that they were there, from even odds? With ours at epsilon 1 she never gets past 73% (odds "
    "of e).",
}


def run_script(name: str) -> list[dict[str, Any]]:
    """Run one script and read its verdicts off its lines."""
    print(f"\n== {name}", flush=True)
    found = []
    command = [sys.executable, "-m", f"benchmarks.{SCRIPTS[name].parent.name}.{name}"]
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if match := VERDICT.match(line):
                row = match.groupdict()
                found.append({**row, "passed": row.pop("verdict") == "pass"})
    if process.returncode and all(row["passed"] for row in found):
        found.append({"name": f"{name}.py ended with an error", "figure": "", "target": "", "passed": False})
    return found


def measure(part: str) -> dict[str, Any]:
    """Run one part of the table."""
    if part in COMPARISONS:
        rows = [row.to_json() for row in importlib.import_module(f"benchmarks.peers.{part}").rows()]
    else:
        rows = run_script(part)
    return {"measured": date.today().isoformat(), "rows": rows}


def versions() -> dict[str, str]:
    """Return what was compared with what."""
    found = {"Python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "not installed"
    return found


def mark(passed: bool | None) -> str:
    """Return a verdict in words."""
    return {None: "", True: "pass", False: "**FAIL**"}[passed]


def comparison_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a table of comparisons."""
    lines = [
        "| what | peer | ours | theirs | ratio | spread | target | |",
        "| --- | --- | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for row in rows:
        spread = f"{row['low']:.3g} to {row['high']:.3g}" if row["low"] != row["high"] else ""
        target = "" if row["target"] is None else f"≥ {row['target']:g}"
        lines.append(
            f"| {row['name']} | {row['peer']} | {row['ours']} | {row['theirs']} | {shown(row['ratio'])} | {spread} | "
            f"{target} | {mark(row['passed'])} |"
        )
    return lines


def shown(ratio: float) -> str:
    """Write a ratio so that it can be read."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def filled(text: str) -> str:
    """Wrap a paragraph."""
    return textwrap.fill(text, 115, break_long_words=False, break_on_hyphens=False)


def page(results: dict[str, Any]) -> str:
    """Return the page as Markdown."""
    parts = results["parts"]
    targets = [row["passed"] for part in parts.values() for row in part["rows"] if row["passed"] is not None]
    lines = [
        "# Benchmarks",
        "",
        filled(
            f"Written by `make bench`: {sum(targets)} of {len(targets)} targets met. Machines differ, and the one that "
            "measured this was shared: compare ratios, not speeds."
        ),
        "",
        filled(
            f"Measured on {described(results['machine'])} at the last part, with "
            + ", ".join(f"{name} {found}" for name, found in results["versions"].items())
            + "."
        ),
        "",
    ]
    for part in COMPARISONS:
        if part not in parts:
            continue
        lines += [f"## {TITLES[part]}", "", filled(INTRODUCTIONS[part]), ""]
        if (DOCS / "pictures" / f"bench-{part}-light.svg").exists():
            for theme in ("light", "dark"):
                lines += [f"![{TITLES[part]}](pictures/bench-{part}-{theme}.svg#only-{theme})"]
            lines += [""]
        lines += [*comparison_table(parts[part]["rows"]), ""]
    lines += [
        "## Every other target",
        "",
        "Each line is printed by the script named; run it alone to see it again.",
        "",
    ]
    for part in sorted(set(parts) - set(COMPARISONS)):
        rows = parts[part]["rows"]
        if not rows:
            continue
        lines += [
            f"### {SCRIPTS[part].relative_to(HERE.parent)}",
            "",
            "| what | figure | target | |",
            "| --- | --- | --- | --- |",
        ]
        lines += [
            f"| {row['name']} | {row['figure']} | {row['target']} | {mark(row['passed'])} |".replace("|m|", "")
            for row in rows
        ]
        lines += [""]
    return "\n".join(lines)


def main(wanted: list[str]) -> int:
    """Measure the parts that are wanted, or all, and write page, numbers and pictures."""
    known = [*COMPARISONS, *sorted(SCRIPTS)]
    if unknown := sorted(set(wanted) - set(known)):
        print(f"unknown part {unknown[0]}; known are {', '.join(known)}")
        return 2
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"parts": {}}
    for part in wanted or known:
        results["parts"][part] = measure(part)
        results |= {"versions": versions(), "machine": machine()}
        results["parts"] = {name: found for name, found in results["parts"].items() if name in known}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    from benchmarks.peers.pictures import draw

    draw(results["parts"], DOCS / "pictures")
    PAGE.write_text(page(results))
    failed = [row["name"] for part in results["parts"].values() for row in part["rows"] if row["passed"] is False]
    print(
        f"\n{PAGE.relative_to(HERE.parent)} written; {len(failed)} targets missed"
        + "".join(f"\n  {name}" for name in failed)
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
