"""Four walks of somebody new without a server, in an empty home: analyst, researcher, hospital, three hospitals.

``python -m benchmarks.release.reader_walks [SOURCE] [--walk NAME] [--transcript FOLDER]``: SOURCE is what to clone,
this repository by default. Each command is timed and written down, as in `first_steps`; at the end stands how long it
took until the first private answer, with and without the installation. It ends with 1 if a command fails or prints a
traceback. ``--installed`` uses this environment instead of installing one. Else it needs the package index.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.release.first_steps import ROOT, Walk

ORDERS = 30_000
FEDERATION = "examples/hospitals.toml"


class ReaderWalk(Walk):
    """A walk that knows when it was installed, and when its first private answer came."""

    installed = 0.0
    answered: float | None = None

    def install(self, source: str, *, is_installed: bool) -> None:
        """Clone and install, as the README says; or use the environment of this process."""
        if is_installed:
            programs = Path(sys.executable).parent
            self.clone = ROOT
        else:
            self.do(f"git clone --quiet {source} panstream")
            self.clone = self.here = self.home / "panstream"
            self.do("make run")
            programs = self.clone / ".venv" / "bin"
        self.environment["PATH"] = f"{programs}:{self.environment['PATH']}"
        self.installed = time.monotonic() - self.began

    def extras(self, names: str) -> None:
        """Install extras into the walk's own environment."""
        if self.clone != ROOT:
            self.do(f"python -m pip install --quiet -e '{self.clone}[{names}]'")

    def expect(self, text: str, pattern: str, what: str) -> None:
        """Note a failure if a text does not match, and otherwise the time of the first private answer."""
        if re.search(pattern, text) is None:
            self.failures.append(f"{what}: no {pattern!r}")
        elif self.answered is None:
            self.answered = time.monotonic() - self.began

    def type_page(self, page: str) -> str:
        """Run the Python blocks of a page of the documentation, one after the other, as its reader would."""
        blocks = re.findall(
            r"^```python\n(.*?)^```$", (self.clone / "docs" / page).read_text(), re.MULTILINE | re.DOTALL
        )
        script = self.here / f"{Path(page).stem}.py"
        script.write_text("\n".join(blocks))
        return self.do(f"python {script.name}")


def walk_analyst(steps: ReaderWalk) -> None:
    """Revenue by month from a CSV file, per customer and country; the same in a notebook's language."""
    orders = steps.here / "orders.csv"
    customers = steps.here / "customers.csv"
    with orders.open("w") as file:
        file.write("order_id,ordered_at,customer,price\n")
        for number in range(ORDERS):
            day = f"2025-{number % 12 + 1:02d}-{number % 28 + 1:02d}T{number % 24:02d}:30:00Z"
            file.write(f"{number},{day},c{number * 7919 % 3_000},{number * 31 % 10_000 / 100}\n")
    countries = ("DE", "FR", "IT")
    customers.write_text("customer,country\n" + "".join(f"c{n},{countries[n % 3]}\n" for n in range(3_000)))
    asked = "--epsilon 1 --lower 0 --upper 100"
    monthly = steps.do(
        f"panstream query \"SELECT SUM(price) FROM 'orders.csv'\" {asked} --window month --time-zone Europe/Berlin"
    )
    steps.expect(monthly, r"2025-06-01T00:00:00\+02:00", "revenue by month")
    per_customer = steps.do(
        "panstream query \"SELECT country, SUM(price) / COUNT(DISTINCT customer) AS per_customer FROM 'orders.csv' "
        f"JOIN 'customers.csv' USING (customer) GROUP BY country\" {asked} --user customer --contributions 10 "
        "--expected 3000 --groups country=DE,FR,IT --public customers.csv"
    )
    steps.expect(per_customer, r"(?m)^DE +\d", "revenue per customer")
    (steps.here / "notebook.py").write_text(
        "import panstream\n"
        "answer = panstream.query('orders.csv', \"SELECT AVG(price) FROM orders\", epsilon=1, lower=0, upper=100)\n"
        "print(answer.to_pandas() if __import__('importlib.util').util.find_spec('pandas') else answer)\n"
        "print(answer._repr_html_()[:60])\n"
    )
    steps.expect(steps.do("python notebook.py"), r"<table>", "the answer in a notebook")
    steps.do("panstream init orders.csv --expected 30000 && panstream check panstream.toml")


def walk_researcher(steps: ReaderWalk) -> None:
    """An algorithm of one's own, with its claim checked by enumeration (docs/tutorial/own-algorithm.md)."""
    steps.extras("audit,plots")  # as the page says
    steps.expect(
        steps.type_page("tutorial/own-algorithm.md"), r"claimed 1, exact 1; half of the noise: 2", "the tutorial"
    )
    steps.expect(steps.do("panstream plan distinct --epsilon 1 --expected 10000"), r"(?i)error", "plan")


def walk_hospital(steps: ReaderWalk) -> None:
    """A synthetic table: a domain from a header, a model, rows, a report."""
    table = steps.here / "patients.csv"
    wards = ("medicine", "surgery", "heart")
    with table.open("w") as file:
        file.write("age,ward,sex,stay,smoker\n")
        for number in range(8_000):
            age = number * 37 % 100
            ward = wards[number * number % 7 % 3]
            file.write(f"{age},{ward},{'fm'[number % 2]},{1 + number % (3 + age // 10)},{number % 5 == 0}\n")
    steps.do("panstream synth init patients.csv --guess-types")
    domain = steps.here / "domain.toml"
    text = domain.read_text()
    text = re.sub(r"^ward = .*$", f"ward = {list(wards)}".replace("'", '"'), text, flags=re.MULTILINE)
    text = re.sub(r"^sex = .*$", 'sex = ["f", "m"]', text, flags=re.MULTILINE)
    domain.write_text(text)
    steps.say("\n(domain.toml filled in: wards and sexes; the ranges of age and stay were proposed)")
    fitted = steps.do("panstream synth fit patients.csv --domain domain.toml --epsilon 1 --out model.json")
    steps.expect(fitted, r"model\.json holds the model", "fit")
    drawn = steps.do("panstream synth sample model.json --out synthetic.csv && head -3 synthetic.csv")
    steps.expect(drawn, r"5 columns", "sample")
    steps.do("panstream synth evaluate model.json synthetic.csv --html report.html")


def walk_three_hospitals(steps: ReaderWalk) -> None:
    """Three holders with ledgers of their own and one analyst, over HTTPS on one machine."""
    steps.expect(steps.type_page("tutorial/three-hospitals.md"), r"epsilon \d\.\d+ of 1 spent", "the tutorial")
    learned = steps.do(f"panstream federate {steps.clone / FEDERATION} --quiet --out network.json --ledgers ledgers")
    steps.expect(learned, r"(?i)epsilon", "federate")


WALKS: dict[str, Callable[[ReaderWalk], None]] = {
    "analyst": walk_analyst,
    "hospital": walk_hospital,
    "researcher": walk_researcher,
    "three-hospitals": walk_three_hospitals,
}


def main() -> None:
    """Take the walks, and print what was typed and answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=str(ROOT), help="what to clone")
    parser.add_argument("--walk", choices=sorted(WALKS), action="append", help="which; all by default")
    parser.add_argument("--transcript", type=Path, help="folder for transcripts")
    parser.add_argument("--installed", action="store_true", help="use this environment")
    given = parser.parse_args()
    failures = list[str]()
    with tempfile.TemporaryDirectory(prefix="walks-") as home:
        steps = ReaderWalk(Path(home))
        steps.install(given.source, is_installed=given.installed)
        for name in given.walk or sorted(WALKS):
            steps.here = steps.home / name
            steps.here.mkdir()
            steps.lines = []
            steps.failures = []
            steps.answered = None
            steps.began = time.monotonic()
            before = os.times()
            WALKS[name](steps)
            used = os.times()
            first = "never" if steps.answered is None else f"after {steps.answered:.0f} s"
            processor = used.children_user + used.children_system - before.children_user - before.children_system
            steps.say(
                f"\n{name}: first private answer {first}, installed in {steps.installed:.0f} s; {processor:.0f} s of "
                f"processor time in all; failed: {'; '.join(steps.failures) or 'nothing'}"
            )
            failures += steps.failures
            if given.transcript is not None:
                given.transcript.mkdir(parents=True, exist_ok=True)
                (given.transcript / f"{name}.txt").write_text("\n".join(steps.lines) + "\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
