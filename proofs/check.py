"""Check the machine-checked proofs: `python proofs/check.py`, or `make proofs`, which installs Coq first.

Compiles every file, requires that no theorem rests on an axiom, and then requires that each of the wrong statements
below is refused.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
FILES = ("Bit.v", "Laplace.v", "Release.v", "Windows.v", "TwoParty.v", "All.v")

# A file, what stands in it, and what is wrong instead. Each must make its file, or one that follows, fail.
WRONG = (
    ("Bit.v", "rate * mix p (pow K (ups (view world) + downs (view world)))", "rate * pow K (ups (view world))"),
    ("Bit.v", "lo <= 1 - r <= rate * lo ->", "lo <= 1 - r <= rate * rate * lo ->"),
    (
        "Bit.v",
        "(world world' : list step) :\n  1 <= K -> 0 <= p <= 1 ->",
        "(world world' : list step) :\n  0 < K -> 0 <= p <= 1 ->",
    ),
    ("Bit.v", "(pow (5 # 4) 1) == 57 # 16", "(pow (5 # 4) 1) == 56 # 16"),
    ("Laplace.v", "pow (/ q) (distances ms ms') * weight q v ms'.", "pow (/ q) (length ms) * weight q v ms'."),
    ("Release.v", "else p0) (if b then 1 - p1 else p1) (map", "else p0) (if b then 1 - p0 else p0) (map"),
    ("Windows.v", "mix (p1 rate) K / mix (p0 rate) K", "mix (p1 rate) K / mix (p1 rate) K"),
    ("Windows.v", "| _ => rate * mix (p1 rate) K end.", "| _ => mix (p1 rate) K end."),
    ("Windows.v", "(has_copy i events <= 1)%nat) ->\n  view_chance", "(has_copy i events <= 2)%nat) ->\n  view_chance"),
    ("TwoParty.v", "(opened s m && h_b s m)", "(opened s m && h_a m)"),
    ("TwoParty.v", "(a m, u_a m, h_a m, w_a m, r m, xorb (b s m) (u_b m))", "(a m, u_a m, h_a m, w_a m, r m, b s m)"),
)


def compile_proofs(folder: Path) -> str:
    """Compile all files; return what Coq prints, or raise CalledProcessError."""
    output = ""
    for name in FILES:
        command = ["coqc", "-q", "-Q", ".", "Panstream", name]
        output += subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    return output


def refused(name: str, right: str, wrong: str) -> bool:
    """Return whether Coq refuses the files with one statement changed."""
    with tempfile.TemporaryDirectory() as folder:
        for file in FILES:
            shutil.copy(HERE / file, folder)
        changed = Path(folder, name)
        text = changed.read_text()
        if text.count(right) != 1:
            raise SystemExit(f"{name}: {right!r} must occur once, occurs {text.count(right)} times")
        changed.write_text(text.replace(right, wrong))
        try:
            compile_proofs(Path(folder))
        except subprocess.CalledProcessError:
            return True
        return False


def main() -> int:
    """Check proofs, assumptions and controls; return the exit code."""
    started = time.perf_counter()
    theorems = re.findall(r"^Print Assumptions (\w+)", (HERE / "All.v").read_text(), re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        for file in FILES:
            shutil.copy(HERE / file, folder)
        try:
            output = compile_proofs(Path(folder))
        except subprocess.CalledProcessError as error:
            print(error.stderr, file=sys.stderr)
            return 1
    results = [line for line in output.splitlines() if line.strip()]
    for theorem, result in zip(theorems, results, strict=False):
        print(f"{theorem}: {result}")
    if results != ["Closed under the global context"] * len(theorems):
        print("a theorem rests on an axiom or an unfinished proof", file=sys.stderr)
        return 1
    lines = sum(len((HERE / file).read_text().splitlines()) for file in FILES)
    print(f"{len(theorems)} theorems, {lines:,} lines, no axioms, {time.perf_counter() - started:.0f} s")
    accepted = [(name, wrong) for name, right, wrong in WRONG if not refused(name, right, wrong)]
    for name, wrong in accepted:
        print(f"{name}: the wrong statement was accepted: {wrong}", file=sys.stderr)
    print(f"{len(WRONG) - len(accepted)} of {len(WRONG)} wrong statements refused")
    return 1 if accepted else 0


if __name__ == "__main__":
    sys.exit(main())
