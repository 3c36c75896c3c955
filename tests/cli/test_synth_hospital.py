"""What tables of hospitals have, row by row of the table in docs/howto/synthetic-table.md."""

from __future__ import annotations

import functools
import json
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from panstream.cli.commands._synth_rows import records_of_persons
from panstream.cli.commands.synth import _read_model
from panstream.errors import InvalidBatch
from panstream.models.networks import Domain, Records
from tests.cli.running import run as run_command

run = functools.partial(run_command, "synth")
GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "synthetic-table.md"


@pytest.fixture
def fitted(tmp_path: Path) -> Callable[..., tuple[Path, str]]:
    """Fit a tree to rows over a domain; return the synthetic table and what was printed."""

    def fit(header: str, rows: Iterable[str], domain: str, *options: object) -> tuple[Path, str]:
        (tmp_path / "rows.csv").write_text("\n".join([header, *rows]) + "\n")
        (tmp_path / "domain.toml").write_text(domain)
        model = tmp_path / "model.json"
        words = ("--epsilon", 4, "--method", "tree", "--out", model, "--no-ledger", *options)
        printed = run("fit", tmp_path / "rows.csv", "--domain", tmp_path / "domain.toml", *words).output
        run("sample", model, "--out", tmp_path / "out.csv")
        return tmp_path / "out.csv", printed

    return fit


def column(path: Path, position: int) -> list[str]:
    return [line.split(",")[position].strip('"') for line in path.read_text().splitlines()[1:]]


def test_the_guide_has_a_row_for_each() -> None:
    section = GUIDE.read_text().partition("## Tables of a hospital")[2].partition("\n### ")[0]
    head, line, *rows = re.findall(r"^\|.*", section, re.MULTILINE)
    assert head.count("|") == line.count("---") + 1
    assert len(rows) == 8


def test_numbers_need_a_public_range_only(fitted: Callable[..., tuple[Path, str]]) -> None:
    """Sixteen bins of equal width; the mean of 2,000 weights within 3 kg (their noise moves it by less than .5)."""
    draw = random.Random(1)
    weights = [min(max(draw.gauss(75, 12), 0), 300) for _ in range(2000)]
    out, _ = fitted("weight", map(str, weights), 'weight = { type = "number", minimum = 0.0, maximum = 300.0 }\n')
    drawn = [float(value) for value in column(out, 0)]
    assert abs(np.mean(drawn) - np.mean(weights)) < 3
    assert 0 <= min(drawn) <= max(drawn) <= 300


def test_dates_come_out_as_dates(fitted: Callable[..., tuple[Path, str]]) -> None:
    domain = 'admitted = { type = "date", minimum = 2023-01-01, maximum = 2024-12-31, step = "month" }\n'
    out, _ = fitted("admitted", (f"2024-0{1 + row % 3}-15" for row in range(2000)), domain)
    drawn = column(out, 0)
    assert all(re.fullmatch(r"202[34]-\d\d-\d\d", value) for value in drawn)
    assert sum(value < "2024-04" and value >= "2024-01" for value in drawn) > 1800


def test_missing_values_are_values(fitted: Callable[..., tuple[Path, str]]) -> None:
    """A quarter is missing, all of them of women: both are retained within 5 points."""
    domain = 'sex = ["f", "m"]\nhba1c = { type = "number", minimum = 3.0, maximum = 18.0, missing = "?" }\n'
    rows = (["f,?", "f,6.1", "m,7.2", "m,8.0"][row % 4] for row in range(4000))
    out, _ = fitted("sex,hba1c", rows, domain)
    pairs = Counter(zip(column(out, 0), (value == "?" for value in column(out, 1)), strict=True))
    assert abs(pairs["f", True] / 4000 - 0.25) < 0.05
    assert pairs["m", True] / 4000 < 0.05


def test_sixty_columns(fitted: Callable[..., tuple[Path, str]]) -> None:
    names = [f"q{number}" for number in range(60)]
    rows = (",".join("yn"[row % 2] for _ in names) for row in range(3000))
    out, printed = fitted(",".join(names), rows, "".join(f'{name} = ["y", "n"]\n' for name in names))
    assert len(out.read_text().partition("\n")[0].split(",")) == 60
    assert "mostly noise" not in printed
    _, few = fitted(",".join(names), ["y" + ",y" * 59] * 20, "".join(f'{name} = ["y", "n"]\n' for name in names))
    assert "mostly noise" in few


@pytest.mark.slow
def test_a_million_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {f"c{number}": rng.integers(0, 4, 1_000_000).astype(str) for number in range(5)}
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    (tmp_path / "domain.toml").write_text("".join(f'{name} = ["0", "1", "2", "3"]\n' for name in columns))
    words = ("--domain", tmp_path / "domain.toml", "--epsilon", 1, "--method", "tree", "--no-ledger")
    run("fit", tmp_path / "rows.parquet", *words, "--out", tmp_path / "model.json")
    _, about = _read_model(tmp_path / "model.json")
    assert about["records"] == 1_000_000
    assert "1,000,000 rows" in run("sample", tmp_path / "model.json", "--out", tmp_path / "out.parquet").output


def test_several_records_per_person(fitted: Callable[..., tuple[Path, str]], tmp_path: Path) -> None:
    """The number of records that count is the sum of min(rows, K); the claim is about a person."""
    rows = [f"{'ab'[person % 2]},{person}" for person in range(900) for _ in range(1 + person % 5)]
    fitted("ward,patient", rows, 'ward = ["a", "b"]\n', "--contributions", 3, "--person", "patient")
    _, about = _read_model(tmp_path / "model.json")
    assert about["records"] == sum(min(1 + person % 5, 3) for person in range(900))
    assert about["claim"]["unit"] == "user"
    assert about["claim"]["epsilon"] == 4.0
    words = (tmp_path / "rows.csv", "--domain", tmp_path / "domain.toml", "--epsilon", 1, "--out", tmp_path / "m.json")
    assert "needs --contributions" in run("fit", *words, "--person", "patient", code=2).output
    refused = run("fit", *words, "--no-ledger", "--contributions", 2, "--person", "nurse", code=1)
    assert "no column 'nurse'" in refused.output
    rows[7] = "a,"
    with pytest.raises(AssertionError, match="does not say whose it is"):
        fitted("ward,patient", rows, 'ward = ["a", "b"]\n', "--contributions", 3, "--person", "patient")


def test_categories_that_nobody_listed(tmp_path: Path) -> None:
    """Named, written as a line of a domain file, and charged together with the model; a rare one is "other"."""
    rows = tmp_path / "rows.csv"
    diagnoses = ["asthma"] * 700 + ["fracture"] * 500 + ["a disease of one"] + ["007"] * 400
    rows.write_text("diagnosis,sex\n" + "".join(f"{value},f\n" for value in diagnoses))
    named = run("categories", rows, "--column", "diagnosis", "--epsilon", 0.5, "--delta", 1e-7)
    line = named.stdout
    assert tomllib.loads(line)["diagnosis"] == {"categories": ["007", "asthma", "fracture"], "other": True}
    assert "a disease of one" not in named.output
    assert "fewer than about 64 records" in named.stderr
    (tmp_path / "domain.toml").write_text(line)
    fit = ("fit", rows, "--domain", tmp_path / "domain.toml", "--out", tmp_path / "m.json", "--method", "tree")
    assert "epsilon 1.5" in run(*fit, "--epsilon", 1).stderr
    network, _ = _read_model(tmp_path / "m.json")
    assert network.domain.labels(0) == ("007", "asthma", "fracture", "other")
    over = run("categories", rows, "--column", "sex", "--epsilon", 1, "--budget", 2, code=3)
    assert "diagnosis" not in over.stdout
    for options, words in (
        (("--column", "ward"), "no column 'ward'"),
        (("--column", "sex", "--person", "sex"), "--person needs --contributions"),
        (("--column", "sex", "--delta", 0), "delta"),
    ):
        answer = run_command("synth", "categories", rows, "--epsilon", 1, "--no-ledger", *options, code=_code(words))
        assert words in answer.output
    bounded = ("--contributions", 1, "--person", "sex")
    assert (
        "sex = { categories = [], other = true }"
        in run("categories", rows, "--column", "sex", "--epsilon", 1, "--no-ledger", *bounded).output
    )  # one person has all rows: one of them counts


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("ward,patient\na,1\nb,2\n")
    records = Records(Domain({"ward": ["a", "b"]}), np.zeros((1, 1), np.uint16))
    with pytest.raises(InvalidBatch, match="changed while"):
        records_of_persons(records, tmp_path / "rows.csv", "patient", 1)


def test_rows_without_a_person_cost_nothing(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("ward,patient\na,1\nb,\n")
    words = ("--column", "ward", "--epsilon", 1, "--contributions", 1, "--person", "patient")
    assert "does not say whose it is" in run("categories", rows, *words, code=1).output
    assert not list(tmp_path.glob("*.ledger"))


def _code(words: str) -> int:
    return 1 if words.startswith("no column") else 2


def test_two_tables_are_refused_with_the_ways_round_it(tmp_path: Path) -> None:
    for name in ("patients", "visits"):
        (tmp_path / f"{name}.csv").write_text("patient\n1\n")
    (tmp_path / "domain.toml").write_text('patient = ["1"]\n')
    words = ("--domain", tmp_path / "domain.toml", "--epsilon", 1, "--out", tmp_path / "m.json")
    refused = run("fit", tmp_path / "patients.csv", tmp_path / "visits.csv", *words, code=2)
    text = " ".join(refused.output.split())
    assert "one table" in text and "--person and --contributions" in text
    assert not list(tmp_path.glob("*.ledger"))


def test_the_domain_of_the_guide_is_one_that_can_be_read(tmp_path: Path) -> None:
    section = GUIDE.read_text().partition("## Tables of a hospital")[2].partition("\n### ")[0]
    lines = re.findall(r"`(\w+ = \{ type = [^`]*\})`", section)
    assert len(lines) == 2
    (tmp_path / "domain.toml").write_text("\n".join(lines))
    domain = Domain.load(tmp_path / "domain.toml")
    assert domain.names == ("weight", "admitted")
    assert len(Records.read({"weight": [80], "admitted": ["2021-05-06"]}, domain)) == 1
    assert json.loads(domain.to_json())["attributes"][0]["name"] == "weight"
