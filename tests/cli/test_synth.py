"""panstream synth as a user types it: fit, sample, evaluate, and every way to get it wrong."""

import json
import math
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner, Result

from panstream.cli.app import app
from panstream.cli.synth import _read_model
from panstream.networks import Domain, Records, compare

DATA = Path(__file__).parents[2] / "examples" / "data"
DOMAIN = DATA / "adult-domain.toml"
ROWS = DATA / "adult.csv.gz"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["synth", *map(str, words)])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("synth") / "model.json"
    result = run("fit", ROWS, "--domain", DOMAIN, "--epsilon", 2, "--out", path)
    assert result.exit_code == 0, result.output
    assert "one record (replace)" in result.output
    assert "the number of records" in result.output
    return path


def test_the_model_keeps_the_claim(model: Path) -> None:
    network, about = _read_model(model)
    assert about["claim"]["epsilon"] == 2.0
    assert about["claim"]["delta"] == 1e-9
    assert about["records"] == 8000
    assert network.degree == 1


def test_synthetic_rows_resemble_the_real_ones(model: Path, tmp_path: Path) -> None:
    table = tmp_path / "synthetic.csv"
    assert "8,000 rows, 13 columns" in run("sample", model, "--out", table).output
    domain = Domain.load(DOMAIN)
    real, synthetic = Records.load(ROWS, domain), Records.load(table, domain)
    assert compare(real, synthetic).mean_two_way < 0.08
    free = json.loads(run("evaluate", model, table, "--json").output)
    assert free["private"] is True
    assert free["two_way_mean"] is None
    assert 0 < free["one_way"]["sex"] < 0.05


class Page(HTMLParser):
    """Counts what a reader sees."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_the_page_shows_all_marginals_and_warns_when_it_is_exact(model: Path, tmp_path: Path) -> None:
    table, page = tmp_path / "s.parquet", tmp_path / "page.html"
    assert run("sample", model, "--out", table, "--rows", 500, "--labels", "--independent").exit_code == 0
    assert parquet.read_table(table).num_rows == 500
    for real in ((), ("--real", ROWS)):
        assert run("evaluate", model, table, "--html", page, *real).exit_code == 0
        text = page.read_text()
        seen = Page()
        seen.feed(text)
        assert seen.tags.count("svg") == 14
        assert "script" not in seen.tags
        assert ("do not publish" in text) == bool(real)
        assert ("mean distance, two-way" in text) == bool(real)
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_pure_epsilon_by_privbayes(tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    words = ("fit", ROWS, "--domain", DOMAIN, "--epsilon", 1, "--out", out, "--method", "privbayes")
    assert run(*words, "--score", "R", "--degree", 1).exit_code == 0
    _, about = _read_model(out)
    assert about["claim"]["delta"] == 0.0
    assert math.isclose(sum(about["claim"]["parts"].values()), 1.0, rel_tol=1e-6)


def test_propose_writes_a_domain_that_fit_reads(tmp_path: Path) -> None:
    out = tmp_path / "domain.json"
    assert "13 attributes" in run("propose", DOMAIN, "--out", out).output
    assert Domain.load(out) == Domain.load(DOMAIN)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("fit", ROWS, "--domain", DOMAIN, "--epsilon", "0", "--out", "x.json"), 2, "epsilon must be positive"),
        (("fit", ROWS, "--domain", "no.toml", "--epsilon", "1", "--out", "x.json"), 2, "there is no domain file"),
        (("fit", "no.csv", "--domain", DOMAIN, "--epsilon", "1", "--out", "x.json"), 2, "there is no file"),
        (("sample", "no.json", "--out", "x.csv"), 2, "cannot be read"),
        (("sample", ROWS, "--out", "x.csv"), 2, "cannot be read"),
    ],
    ids=range(5),
)
def test_mistakes_are_explained(words: tuple[object, ...], code: int, message: str) -> None:
    result = run(*words)
    assert result.exit_code == code
    assert message in result.output


def test_a_bad_row_is_named_by_number_and_never_quoted(tmp_path: Path) -> None:
    domain, rows = tmp_path / "d.toml", tmp_path / "rows.csv"
    domain.write_text('sex = ["f", "m"]\nage = { edges = [0, 50, 100], type = "integer" }\n')
    words = ("fit", rows, "--domain", domain, "--epsilon", "1", "--out", tmp_path / "m.json")
    for secret, text in {
        "walrus": "sex,age\nf,3\nwalrus,4\n",
        "4711": "sex,age\nf,3\nm,4711\n",
        "ocelot": "sex,age\nf,3\nm,4,ocelot,5\n",
        "heron": "sex,age\nf,3\nm,heron\n",
    }.items():
        rows.write_text(text)
        result = run(*words)
        assert result.exit_code == 1, (secret, result.output)
        assert secret not in result.output
    rows.write_text("age\n3\n")
    assert "there is no column 'sex'" in run(*words).output
    domain.write_text("sex = [")
    assert "not valid TOML" in run(*words).output
    domain.write_text('sex = "f"')
    assert run(*words).exit_code == 2


def test_outputs_end_in_csv_or_parquet(model: Path, tmp_path: Path) -> None:
    result = run("sample", model, "--out", tmp_path / "x.xlsx")
    assert result.exit_code == 2
    assert ".csv or .parquet" in result.output
