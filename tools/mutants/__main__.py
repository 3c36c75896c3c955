"""Mutants of the lines that privacy depends on: how many do the audit and the tests notice?

One operator, comparison, condition, small constant or statement is changed at a time, in memory only, in privacy/,
primitives/noise/, the two files that draw stored bits for several packages, and the noise lines of the algorithms.
One process collects the tests; each mutant is a fork of it in which the code of one function is exchanged and the
tests that call the function run until one fails. What cannot be exchanged (changes at import time) is tried in a
fresh process that imports the changed file. Unchanged functions and files are mixed in and must not be noticed, or
the script stops with an error. Needs [audit,dev].

    python tools/mutants [--limit N | --each N] [--seed S] [--save results.jsonl] [FILE ...]

With ``--save`` each outcome is written as it comes in, and a later run goes on from there: what was noticed is not
tried again as long as its file is the same, what survived is tried again with the tests of today.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # forks and threads do not mix
os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

import pytest  # noqa: E402
from changes import Mutant, mutants, parsed  # noqa: E402
from forking import MOST, Broken, Forks, exchange  # noqa: E402

SOURCE = ROOT / "src" / "panstream"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")  # changes that change nothing, and why
TARGET = 0.95
PACKAGES = (
    "privacy",
    "primitives/noise",
    "algorithms/density",
    "algorithms/distinct",
    "algorithms/turnstile",
    "algorithms/continual",
    "models/networks",
)
SHARED = ("primitives/packed_bits.py", "algorithms/randomized_bits.py")  # used by several packages
TESTS = (
    *(f"tests/{package}" for package in PACKAGES),
    *(f"tests/models/federated/test_{name}.py" for name in ("privacy", "holder", "questions", "methods")),
    "tests/algorithms/continual_users",  # has the tests of privacy/change_tree_loss.py
    "tests/algorithms/heavy_hitters",  # and this those of privacy/heavy_hitter_loss.py
    "tests/papers",
    "tests/algorithms/planning",
    "tests/primitives/test_packed_bits.py",
    "tests/algorithms/test_auto.py",
    "tests/audit/claims/test_cases.py",
    "tests/audit/claims/test_layers.py",
)
# Tests that start processes or many threads do not see what is exchanged in a fork.
ELSEWHERE = ("tests/primitives/noise/test_wiping.py",)
QUIET = ["-q", "-s", "-p", "no:cacheprovider", "--no-header", "--no-summary", "-p", "no:xdist"]
CONTROLS = 12  # functions that are exchanged for themselves
PROCESSES = 1  # files that are imported unchanged by a fresh process

CHILD = """
import importlib.machinery, importlib.util, pathlib, pickle, resource, sys, pytest
resource.setrlimit(resource.RLIMIT_CPU, (240, 240))  # processor time, so that a busy machine does not matter
name, path, text, source, *arguments = sys.argv[1:]
sys.path.insert(0, source)

class Mutant(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        return compile(pickle.loads(pathlib.Path(text).read_bytes()), path, "exec")

class Finder:
    @staticmethod
    def find_spec(fullname, _path=None, _target=None):
        if fullname == name:
            return importlib.util.spec_from_file_location(name, path, loader=Mutant(name, path))

sys.meta_path.insert(0, Finder)
sys.exit(pytest.main(arguments))
"""


@dataclass
class Score:
    """What became of the mutants."""

    save: Path | None = None
    outcomes: dict[Mutant, str] = field(default_factory=dict)
    unchanged: int = 0  # controls that passed

    def recall(self, found: list[Mutant]) -> list[Mutant]:
        """Take what an earlier run noticed from the file, and return the others."""
        if self.save is None or not self.save.exists():
            return found
        before = dict[str, str]()
        for line in self.save.read_text().splitlines():
            row = json.loads(line)
            before[row["key"]] = row["outcome"]
        self.outcomes = {one: before[key(one)] for one in found if before.get(key(one), "survives") != "survives"}
        left = [one for one in found if one not in self.outcomes]
        known = equivalent()
        return sorted(left, key=lambda one: (key(one) in before, place(one) in known))  # new ones first

    def put(self, mutant: Mutant, outcome: str, seconds: float) -> None:
        """Remember one, and show it if nobody noticed."""
        self.outcomes[mutant] = outcome
        if self.save is not None:
            row = {"key": key(mutant), "outcome": outcome, "mutant": told(mutant), "seconds": round(seconds, 2)}
            with self.save.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if outcome == "survives":
            print(f"survives {told(mutant)}", flush=True)

    def survivors(self) -> list[Mutant]:
        """Return those that nobody noticed, in order, less those that are known to change nothing."""
        found = [mutant for mutant, outcome in self.outcomes.items() if outcome == "survives"]
        return sorted(set(found) - set(self.alike()), key=lambda mutant: (str(mutant.path), mutant.line))

    def alike(self) -> list[Mutant]:
        """Return those that nobody noticed because they change nothing that can be seen."""
        known = equivalent()
        found = [mutant for mutant, outcome in self.outcomes.items() if outcome == "survives"]
        return [mutant for mutant in found if place(mutant) in known]


@functools.cache
def equivalent() -> frozenset[tuple[str, str, str]]:
    """Return the file, the line as it is and the change of all mutants that are known to change nothing."""
    listed = tomllib.loads(EQUIVALENT.read_text())["mutant"] if EQUIVALENT.exists() else []
    return frozenset((one["file"], one["line"], change) for one in listed for change in one["changes"])


def place(mutant: Mutant) -> tuple[str, str, str]:
    """Return how a mutant is listed: its file, the line as it is, and the change."""
    line = mutant.path.read_text().splitlines()[mutant.line - 1].strip()
    return str(mutant.path.relative_to(SOURCE)), line, mutant.change


@functools.cache
def digest(path: Path) -> str:
    """Return what changes when the file does."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def key(mutant: Mutant) -> str:
    """Return what tells this mutant of this version of the file from all others."""
    return f"{mutant.path.relative_to(SOURCE)}@{digest(mutant.path)}:{mutant.node}:{mutant.change}"


def package_of(path: Path) -> str:
    """Return the package that a file is in, or the file itself if it is one of SHARED."""
    file = path.relative_to(SOURCE)
    return file.as_posix() if file.as_posix() in SHARED else file.parent.as_posix()


def package_name(mutant: Mutant) -> str:
    """Return the package that the mutant is in."""
    return package_of(mutant.path)


def told(mutant: Mutant) -> str:
    """Return where the mutant is, what was changed, and the line as it was."""
    file, line, change = place(mutant)
    return f"{file}:{mutant.line}: {change}   in: {line}"


def usable(item: pytest.Item) -> bool:
    """Return whether a test can be used; of those, the ones that take too long are left out later."""
    return not item.nodeid.startswith(ELSEWHERE)


def audited_package(item: pytest.Item) -> str | None:
    """Return the package of the algorithm if the test is one of the audit's cases, and the case is about one."""
    if "test_cases.py::test_every_claim" not in item.nodeid:
        return None
    algorithm = item.callspec.params["case"].algorithm  # type: ignore[attr-defined]
    root, *names = str(type(algorithm).__module__).split(".")
    return "/".join(names[:-1]) if root == "panstream" else None


def near(path: Path) -> str:
    """Return where the tests of a file are."""
    return f"tests/{path.relative_to(SOURCE).parent.as_posix()}/test_{path.stem.lstrip('_')}"


def module_of(path: Path) -> str:
    """Return the name of the module in a file."""
    return ".".join(("panstream", *path.relative_to(SOURCE).with_suffix("").parts))


def imported(path: Path, tree: ast.Module, tests: list[str]) -> bool:
    """Return whether a test fails in a fresh process that imports this instead of the file."""
    import pickle

    if not tests:  # pytest would take all
        return False
    module = module_of(path)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "tree")
        chosen = Path(folder, "tests")
        text.write_bytes(pickle.dumps(tree))
        # Whole functions: names of their cases may be made of what is changed, and would not be found.
        chosen.write_text("\n".join(dict.fromkeys(test.partition("[")[0] for test in tests)))
        command = [
            sys.executable,
            "-c",
            CHILD,
            module,
            str(path),
            str(text),
            str(ROOT / "src"),
            *QUIET,
            "-x",
            f"@{chosen}",
        ]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
        except subprocess.TimeoutExpired:
            return True
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):  # it does not end
        return True
    if done.returncode not in (0, 1, 2, 3):  # 2 and 3: the changed file cannot be imported
        raise Broken(f"pytest ended with {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}")
    return done.returncode != 0


def controls(forks: Forks, chosen: list[Mutant]) -> list[tuple[str, Callable[[], bool]]]:
    """Return jobs that put unchanged code through everything that mutants go through."""
    by_function = {(mutant.path, mutant.function): mutant for mutant in chosen if mutant.function is not None}
    some = random.Random(0).sample(list(by_function.values()), min(CONTROLS, len(by_function)))

    def same(mutant: Mutant) -> bool:
        exchange(forks.functions, mutant, unchanged=True)
        return forks.fails(forks.tests_of(mutant, near(mutant.path)), tell=True)

    files = sorted({mutant.path for mutant in chosen})
    whole = random.Random(0).sample(files, min(PROCESSES, len(files)))
    return [
        *((f"{one.path}:{one.function}", functools.partial(same, one)) for one in some),
        *(
            (str(file), functools.partial(imported, file, parsed(file), forks.known.of_file(str(file), near(file))))
            for file in whole
        ),
    ]


def trials(forks: Forks, chosen: list[Mutant], score: Score) -> None:
    """Try every mutant: exchanged in a fork, or imported by a fresh process. Unchanged code is mixed in and must
    pass.
    """
    jobs: list[tuple[Mutant | str, Callable[[], bool]]] = []
    for mutant in chosen:
        where = near(mutant.path)
        if mutant.function is not None:
            jobs.append((mutant, forks.tried(mutant, forks.tests_of(mutant, where))))
        else:
            tests = forks.known.of_file(str(mutant.path), where)
            jobs.append((mutant, functools.partial(imported, mutant.path, mutant.tree(), tests)))
    unchanged = controls(forks, chosen)
    step = max(1, len(jobs) // max(1, len(unchanged)))
    for number, (name, job) in enumerate(unchanged):
        jobs.insert(number * (step + 1), (name, job))
    begun = time.monotonic()
    for number, (at, outcome, seconds) in enumerate(forks.forked([job for _, job in jobs], 1800), start=1):
        what = jobs[at][0]
        if isinstance(what, Mutant):
            score.put(what, ("survives", "noticed", "too long")[outcome], seconds)
        elif outcome:
            raise Broken(f"{what} is noticed although nothing was changed")
        else:
            score.unchanged += 1
        if number % 20 == 0:
            print(f"{number} of {len(jobs)}, {len(score.survivors())} survive", end=", ")
            print(f"{score.unchanged} unchanged not noticed, {time.monotonic() - begun:.0f} s", flush=True)


def main() -> int:
    """Draw mutants, try them, list the survivors."""
    options = argparse.ArgumentParser()
    options.add_argument("files", nargs="*", type=Path)
    options.add_argument("--limit", type=int, default=0, help="mutants drawn at random; 0, the default, for all")
    options.add_argument("--each", type=int, default=0, help="mutants drawn at random from every package")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--save", type=Path, help="write the outcome of each as a line of JSON, and go on from there")
    options.add_argument(
        "--known", type=Path, help="keep here what was learned about the tests; for code that has not changed"
    )
    options.add_argument(
        "--most", type=float, default=MOST, help="seconds of tests for a mutant; few first, then the rest with more"
    )
    options.add_argument("--list", action="store_true", help="only say how many there are")
    given = options.parse_args()
    files = [file.resolve() for file in given.files] or [
        *(file for name in PACKAGES for file in sorted((SOURCE / name).glob("*.py")) if file.name != "__init__.py"),
        *(SOURCE / name for name in SHARED),
    ]
    found = [mutant for file in files for mutant in mutants(file, package_of(file))]
    print(f"{len(found)} mutants in {len(files)} files", flush=True)
    if given.list:
        for file, count in Counter(mutant.path for mutant in found).items():
            print(f"{count:5} {file.relative_to(SOURCE)}")
        return 0
    found = random.Random(given.seed).sample(found, len(found))  # what is tried so far is a fair sample of all
    if given.each:
        found = [
            mutant
            for package in PACKAGES
            for mutant in [mutant for mutant in found if package_name(mutant) == package][: given.each]
        ]
    if given.limit:
        found = found[: given.limit]
    score = Score(given.save)
    left = score.recall(found)

    def work(forks: Forks) -> None:
        begun = time.monotonic()
        forks.known.most = given.most
        forks.learn(given.known)
        tests = len(forks.known.seconds)
        print(f"{tests} of {len(forks.items)} tests can be used, {time.monotonic() - begun:.0f} s", flush=True)
        trials(forks, left, score)

    forks = Forks(SOURCE, work, os.cpu_count() or 1, usable, audited_package, [module_of(file) for file in files])
    existing = [name for name in TESTS if (ROOT / name).exists()]
    os.chdir(ROOT)
    pytest.main([*QUIET, *existing], plugins=[forks])
    if forks.failure is not None or not score.outcomes:
        print(f"nothing can be said: {forks.failure!r}")
        return 2
    return summary(score)


def summary(score: Score) -> int:
    """Print the share that was noticed; return 1 if it is too small."""
    left = score.survivors()
    alike = len(score.alike())
    total = len(score.outcomes)
    noticed = total - len(left) - alike
    share = noticed / (total - alike)
    for mutant in left:
        print("survivor", told(mutant))
    packages = Counter(map(package_name, score.outcomes))
    missed = Counter(map(package_name, left))
    listed = Counter(map(package_name, score.alike()))
    for name, count in packages.items():
        print(f"{name:<30} {count - listed[name] - missed[name]} of {count - listed[name]}, {listed[name]} alike")
    verdict = "pass" if share >= TARGET else "fail"
    print(f"{'unchanged, noticed':<20} 0 of {score.unchanged}")
    print(f"{'change nothing':<20} {alike} of {total}, listed in {EQUIVALENT.resolve().relative_to(ROOT)}")
    print(f"{'noticed of all':<20} {noticed} of {total} = {noticed / total:.1%}")
    print(f"{'mutants noticed':<20} {noticed} of {total - alike} = {share:.1%}  target {TARGET:.0%}  {verdict}")
    return int(share < TARGET)


if __name__ == "__main__":
    sys.exit(main())
