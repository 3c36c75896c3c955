"""panstream synth as a user types it: fit, sample, evaluate, and every way to get it wrong."""

import functools
import gzip
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from panstream.cli.commands.synth import _read_model
from panstream.models.networks import BayesianNetwork, Domain, Records, compare
from tests.cli.running import run as run_command

DATA = Path(__file__).parents[2] / "examples" / "data"
DOMAIN = DATA / "adult-domain.toml"
ROWS = DATA / "adult.csv.gz"


run = functools.partial(run_command, "synth")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("synth") / "model.json"
    result = run("fit", ROWS, "--domain", DOMAIN, "--epsilon", 2, "--out", path, "--no-ledger")
    assert "repeated models add up" in result.stderr
    assert "one record (replace)" in result.output
    assert "the number of records" in result.output
    return path


@pytest.mark.slow
def test_the_model_keeps_the_claim(model: Path) -> None:
    network, about = _read_model(model)
    assert about["claim"]["epsilon"] == 2.0
    assert about["claim"]["delta"] == 1e-9
    assert about["records"] == 8000
    assert isinstance(network, BayesianNetwork)


@pytest.mark.slow
def test_synthetic_rows_resemble_the_real_ones(model: Path, tmp_path: Path) -> None:
    table = tmp_path / "synthetic.csv"
    assert "8,000 rows, 13 columns" in run("sample", model, "--out", table).output
    domain = Domain.load(DOMAIN)
    real = Records.load(ROWS, domain)
    synthetic = Records.load(table, domain)
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
    table = tmp_path / "s.parquet"
    page = tmp_path / "page.html"
    run("sample", model, "--out", table, "--rows", 500, "--labels", "--independent")
    assert parquet.read_table(table).num_rows == 500
    for real in ((), ("--real", ROWS)):
        run("evaluate", model, table, "--html", page, *real)
        text = page.read_text()
        seen = Page()
        seen.feed(text)
        assert seen.tags.count("svg") == 13 + 3  # columns, the budget, two maps of pairs
        assert seen.tags.count("details") == 13 + 3
        assert not {"script", "link", "iframe"} & set(seen.tags)
        assert ("do not publish" in text) == bool(real)
        assert ("mean distance, two-way" in text) == bool(real)
        assert "://" not in text


def test_the_report_of_a_model_needs_no_rows(model: Path, tmp_path: Path) -> None:
    """What it says of pairs and rare values follows from the noisy tables in the model file."""
    page = tmp_path / "report.html"
    assert "may be published" in run("report", model, "--out", page).output
    text = page.read_text()
    for words in (
        "beside the noisy tables of 8,000 records",
        "one-way tables",
        "choosing the structure",
        "Cramér's V".replace("'", "&#x27;"),
        "noisy tables, whose noise is part of it",
        "cannot be told from noise",
        "What not to use it for",
    ):
        assert words in text, words
    shares = [float(share) for share in re.findall(r"<td class=n>([\d.]+) %</td></tr>", text)[:3]]
    assert math.isclose(sum(shares), 100.0, abs_tol=0.2)
    _, about = _read_model(model)
    noisiest = max(sigma for _, sigma in about["one_way"])
    assert f"below about {math.ceil(2 * noisiest):,} records" in text
    assert all(0 <= far <= 1 and one < other for one, other, _, far in about["two_way"])
    exact = run("report", model, "--out", page, "--real", ROWS)
    assert "not private" in exact.output
    assert "This page is not private" in page.read_text()


@pytest.mark.parametrize("size", [1, 40])
def test_a_report_of_one_column_and_of_many(size: int, tmp_path: Path) -> None:
    """One column has no pairs; forty have a map that scrolls."""
    names = [f"c{number:02}" for number in range(size)]
    table = tmp_path / "t.csv"
    table.write_text(
        ",".join(names) + "\n" + "".join(f"{','.join('ab'[row % 2] for _ in names)}\n" for row in range(300))
    )
    domain = tmp_path / "domain.toml"
    domain.write_text("".join(f'{name} = ["a", "b", "<b>"]\n' for name in names))
    run(
        "fit",
        table,
        "--domain",
        domain,
        "--epsilon",
        5,
        "--method",
        "tree",
        "--out",
        tmp_path / "m.json",
        "--no-ledger",
    )
    run("report", tmp_path / "m.json", "--out", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert ("Pairs of columns" in text) == (size > 1)
    assert "<b>\n" not in text and "&lt;b&gt;" in text


@pytest.mark.slow
def test_pure_epsilon_by_privbayes(tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    words = ("fit", ROWS, "--domain", DOMAIN, "--epsilon", 1, "--out", out, "--method", "privbayes", "--no-ledger")
    run(*words, "--score", "R", "--degree", 1)
    _, about = _read_model(out)
    assert about["claim"]["delta"] == 0.0
    assert math.isclose(sum(about["claim"]["parts"].values()), 1.0, rel_tol=1e-6)


SMALL = 'sex = ["f", "m"]\nage = { edges = [0, 50, 100], type = "integer" }\nstay = { type = "integer", minimum = 1, '
SMALL += 'maximum = 9, nullable = true }\nward = ["01", "02"]\n'
NAMES = ("sex", "age", "stay", "ward")
LINES = [("f", 3, 2, "01"), ("m", 60, None, "02")] * 200


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path]:
    """Return a domain and rows in a directory of their own, beside which ledgers may lie."""
    (tmp_path / "domain.toml").write_text(SMALL)
    text = "".join(",".join("" if value is None else str(value) for value in line) + "\n" for line in LINES)
    (tmp_path / "rows.csv").write_text(",".join(NAMES) + "\n" + text)
    return tmp_path / "domain.toml", tmp_path / "rows.csv"


@pytest.mark.slow
def test_a_second_model_of_the_same_rows_is_charged(small: tuple[Path, Path], tmp_path: Path) -> None:
    domain, rows = small
    words = ("fit", rows, "--domain", domain, "--epsilon", "1", "--out")
    first = run(*words, tmp_path / "a.json", "--budget", "2.5", "--method", "pairs")
    estimate, spent = first.stderr.splitlines()
    assert re.fullmatch(r"Fitting 16 categories: .+ s", estimate)
    assert spent == "So far: epsilon 1, delta 1e-09, for one record (rows.csv.ledger)."
    second = run(*words, tmp_path / "b.json", "--method", "privbayes")
    assert "So far: epsilon 2, delta 1e-09, for one record" in second.stderr
    before = rows.with_name("rows.csv.ledger").read_bytes()
    third = run(*words, tmp_path / "c.json", code=3)
    assert (
        third.stderr == "error: epsilon=1 more for one record (replace) would bring the total to 3; the limit is 2.5\n"
    )
    assert not (tmp_path / "c.json").exists()
    # A budget cannot be kept for units that do not add up.
    run_command("query", f"SELECT COUNT(*) FROM '{rows}'", "--epsilon=0.1", "--no-hardening", code=3)
    assert rows.with_name("rows.csv.ledger").read_bytes() == before
    run(*words, tmp_path / "c.json", "--ledger", tmp_path / "other")
    run(*words, "x.json", "--no-ledger", "--budget", "1", code=2)
    run(*words, "x.json", "--budget", "-1", code=2)


@pytest.mark.parametrize(
    ("domain", "method"),
    [("", ("adaptive",)), ("", ("pairs",)), ('age = ["1", "2", "3"]\n', ("privbayes", "--score", "F"))],
)
def test_a_domain_that_the_method_does_not_take_costs_nothing(
    domain: str, method: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "domain.toml").write_text('sex = ["f", "m"]\n' + domain)
    (tmp_path / "rows.csv").write_text("sex,age\nf,1\nm,2\n")
    words = ("--domain", tmp_path / "domain.toml", "--epsilon", 1, "--out", tmp_path / "m.json", "--method", *method)
    run("fit", tmp_path / "rows.csv", *words, code=2)
    assert not list(tmp_path.glob("*.ledger"))


def test_rows_that_cannot_be_read_cost_nothing(small: tuple[Path, Path]) -> None:
    domain, rows = small
    rows.write_text("sex,age,stay,ward\nf,3,2,99\n")
    run("fit", rows, "--domain", domain, "--epsilon", "1", "--out", "x.json", code=1)
    assert not rows.with_name("rows.csv.ledger").exists()


@pytest.mark.slow
def test_whole_numbers_come_out_as_whole_numbers(small: tuple[Path, Path], tmp_path: Path) -> None:
    domain, rows = small
    fit = tmp_path / "m.json"
    sample = tmp_path / "s.parquet"
    run("fit", rows, "--domain", domain, "--epsilon", "9", "--out", fit)
    run("sample", fit, "--out", sample)
    table = parquet.read_table(sample)
    assert [str(field.type) for field in table.schema] == ["string", "int64", "int64", "string"]
    assert set(table["stay"].to_pylist()) <= {None, *range(1, 10)}
    assert set(table["ward"].to_pylist()) <= {"01", "02"}
    run("evaluate", fit, sample)


def test_init_writes_what_is_to_be_filled_in_and_looks_at_no_row(small: tuple[Path, Path], tmp_path: Path) -> None:
    _, rows = small
    out = tmp_path / "skeleton.toml"
    texts = []
    for text in ('sex;age;stay;no "ward"\nsecret;4711;1;1\n', 'sex;age;stay;no "ward"\n'):
        rows.write_text(text)
        run("init", rows, "--out", out, "--type", "age=int", "--force")
        texts.append(out.read_text())
    assert texts[0] == texts[1]
    assert '\nage = { type = "integer", minimum = 0, maximum = 120, clip = true }  # the usual range' in texts[0]
    assert '\n"no \\"ward\\"" = []' in texts[0]
    unfilled = run("fit", rows, "--domain", out, "--epsilon", "1", "--out", "x.json", code=2)
    assert "'sex' must have 1..65536 categories" in unfilled.stderr
    run("init", rows, "--out", out, code=2)
    for wrong in ("age=walrus", "aeg=int", "age"):
        run("init", rows, "--out", "-", "--type", wrong, code=2)
    table = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"sex": ["f"], "age": [3], "weight": [1.5], "smoker": [True]}), table)
    found = run("init", table, "--out", "-").stdout
    assert 'weight = { type = "number", minimum = 0.0, maximum = 300.0, clip = true }  # the usual range' in found
    assert 'smoker = { type = "boolean" }\n' in found
    assert "sex = []" in found


def test_init_asks_for_what_the_header_does_not_say(tmp_path: Path) -> None:
    rows = tmp_path / "t.csv"
    out = tmp_path / "d.toml"
    rows.write_text("sex,ward_nr,score\nf,3,1.5\nx,4,2.5\n")
    run("init", rows, "--ask", "--out", out, input="f, m\n1..9\n\n")
    text = out.read_text()
    assert 'sex = ["f", "m"]\nward_nr = { type = "integer", minimum = 1, maximum = 9, clip = true }\n' in text
    assert "score = []  # list the categories" in text
    run("init", rows, "--ask", "--out", out, "--force", input="one..two\n", code=2)
    guessed = run("init", rows, "--guess-types", "--out", "-").stdout
    assert 'score = { type = "number" }  # add: minimum' in guessed
    assert "1.5" not in guessed and '"f", "m"]\nward' not in guessed


def test_one_value_that_is_not_declared_stops_no_fit_that_says_so(tmp_path: Path) -> None:
    rows = tmp_path / "t.csv"
    domain = tmp_path / "d.toml"
    rows.write_text("sex,age\n" + "f,30\nm,41\n" * 60 + "x,300\n")
    fit = ("fit", rows, "--domain", domain, "--epsilon", 1, "--out", tmp_path / "m.json", "--no-ledger")
    domain.write_text('sex = ["f", "m"]\nage = { type = "integer", minimum = 0, maximum = 120, clip = true }\n')
    refused = run(*fit, code=1).stderr
    # rows are counted as by panstream check --rows
    assert "t.csv, row 121: 'sex' must be one of the declared categories, or declare other = true" in refused
    domain.write_text('sex = { categories = ["f", "m"], other = true }\nage = { edges = [0, 40, 120] }\n')
    assert "t.csv, row 121: 'age' must be a number inside the declared edges, or declare clip = true" in (
        run(*fit, code=1).stderr
    )
    domain.write_text('sex = { categories = ["f", "m"], other = true }\nage = { edges = [0, 40, 120], clip = true }\n')
    run(*fit)
    assert Domain.load(domain).sizes == (3, 2)
    assert Domain.load(domain).labels(0)[-1] == "other"
    domain.write_text('sex = { categories = ["f", "m"], other = "x", missing = "?" }\n')
    assert "give missing or other" in run(*fit, code=2).stderr


def test_a_fit_of_all_pairs_says_how_long_it_may_take(small: tuple[Path, Path], tmp_path: Path) -> None:
    domain, rows = small
    asked = ("fit", rows, "--domain", domain, "--epsilon", "9", "--no-ledger", "--out", tmp_path / "m.json")
    assert "categories: " in run(*asked, "--method", "pairs").stderr


@pytest.mark.parametrize("name", ["t.tsv", "t.csv.gz", "t.csv", "t.jsonl", "t.arrow", "t.parquet"])
def test_models_and_holders_read_the_same_tables(name: str, small: tuple[Path, Path], tmp_path: Path) -> None:
    domain, rows = small
    table = pa.table({name: [line[at] for line in LINES] for at, name in enumerate(NAMES)})
    path = tmp_path / name
    if name == "t.arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif name == "t.parquet":
        parquet.write_table(table, path)
    elif name == "t.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        text = rows.read_text().replace(",", {"t.tsv": "\t", "t.csv": ";"}.get(name, ","))
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    (tmp_path / "domain.json").write_text(Domain.load(domain).to_json())
    declared = Domain.load(tmp_path / "domain.json")
    assert (Records.load(path, declared).codes == Records.load(rows, Domain.load(domain)).codes).all()


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
    assert message in run(*words, code=code).output


def test_a_model_protects_persons_with_several_records(tmp_path: Path) -> None:
    """Every record has a quarter of epsilon; the claim and the ledger are about the person."""
    domain = tmp_path / "domain.toml"
    domain.write_text('sex = ["f", "m"]\nsmoker = ["no", "yes"]\n')
    rows = tmp_path / "rows.csv"
    rows.write_text("sex,smoker\n" + "f,no\nm,yes\nf,yes\nm,no\n" * 100)
    model = tmp_path / "model.json"
    options = ("--method", "privbayes", "--contributions", "4")
    shown = run("fit", rows, "--domain", domain, "--epsilon", "2", "--out", model, *options).output
    assert "at most 4 records of one person" in " ".join(shown.split())
    claim = json.loads(model.read_text())["about"]["claim"]
    assert (claim["epsilon"], claim["unit"], claim["event_epsilon"]) == (2.0, "user", 0.5)
    words = ("fit", rows, "--domain", domain, "--epsilon", "1", "--out", model, "--contributions", "0")
    assert "contributions must be at least 1" in run(*words, code=2).output


@pytest.mark.slow
def test_a_bad_row_is_named_by_number_and_never_quoted(tmp_path: Path) -> None:
    domain = tmp_path / "d.toml"
    rows = tmp_path / "rows.csv"
    domain.write_text('sex = ["f", "m"]\nage = { edges = [0, 50, 100], type = "integer" }\n')
    words = ("fit", rows, "--domain", domain, "--epsilon", "1", "--out", tmp_path / "m.json")
    for secret, text in {
        "walrus": "sex,age\nf,3\nwalrus,4\n",
        "4711": "sex,age\nf,3\nm,4711\n",
        "ocelot": "sex,age\nf,3\nm,4,ocelot,5\n",
        "heron": "sex,age\nf,3\nm,heron\n",
    }.items():
        rows.write_text(text)
        assert secret not in run(*words, code=1).output
    rows.write_text("age\n3\n")
    assert "there is no column 'sex'" in run(*words, code=1).output
    domain.write_text("sex = [")
    assert "not valid TOML" in run(*words, code=2).output
    domain.write_text('sex = "f"')
    run(*words, code=2)


def test_outputs_end_in_csv_or_parquet(model: Path, tmp_path: Path) -> None:
    assert ".csv or .parquet" in run("sample", model, "--out", tmp_path / "x.xlsx", code=2).output


def test_rows_can_be_drawn_given_what_is_known(model: Path, tmp_path: Path) -> None:
    table = tmp_path / "women.csv"
    result = run("sample", model, "--out", table, "--given", "sex=Female", "--given", "age=40..65")
    assert "% of the model that match the condition" in result.output
    found = Records.load(table, Domain.load(DOMAIN)).to_columns()
    assert set(found["sex"]) == {"Female"}
    ages = [int(line.split(",")[0]) for line in table.read_text().splitlines()[1:]]
    assert 600 < len(ages) < 1400  # the table has 905
    assert min(ages) >= 40
    assert max(ages) <= 65
    refusals = {"sex=x": "it has", "sex": "COLUMN=", "age=65..40": "begin before", "x=1": "no attribute"}
    for given, text in refusals.items():
        assert text in run("sample", model, "--out", table, "--given", given, code=2).output


@pytest.mark.slow
def test_what_was_declared_of_numbers_and_dates_comes_out(tmp_path: Path) -> None:
    domain, rows, model, table = (tmp_path / name for name in ("domain.toml", "rows.csv", "model.json", "out.csv"))
    domain.write_text(
        'paid = { edges = [0, 10, 100, inf], atoms = [0], missing = "?" }\n'
        'day = { type = "date", minimum = 2024-01-01, maximum = 2024-12-31, step = "quarter" }\n'
    )
    lines = [f"{(0, 5, 5000, '?')[at % 4]},2024-{at % 12 + 1:02}-15" for at in range(4000)]
    rows.write_text("\n".join(["paid,day", *lines]))
    fitted = run("fit", rows, "--domain", domain, "--epsilon", 2, "--out", model, "--no-ledger")
    assert "tail = ..." in fitted.stderr
    run("sample", model, "--out", table)
    drawn = [line.replace('"', "").split(",") for line in table.read_text().splitlines()[1:]]
    paid = [row[0] for row in drawn]
    assert abs(paid.count("?") / 4000 - 0.25) < 0.05
    assert abs(sum(each in ("0", "0.0") for each in paid) / 4000 - 0.25) < 0.05
    assert {row[1][:5] for row in drawn} == {"2024-"}
    Records.load(table, Domain.load(domain))  # refuses nothing
    run("sample", model, "--out", table, "--given", "day=2024-02-01..2024-03-31", "--given", "paid=0")
    drawn = [line.replace('"', "").split(",") for line in table.read_text().splitlines()[1:]]
    assert {row[0] for row in drawn} <= {"0", "0.0"}
    assert all("2024-02-01" <= row[1] <= "2024-03-31" for row in drawn)


def test_a_model_of_few_rows_says_what_it_is(tmp_path: Path) -> None:
    domain, rows, model = (tmp_path / name for name in ("domain.toml", "rows.csv", "model.json"))
    domain.write_text('a = ["x", "y", "z"]\nb = ["x", "y", "z"]\n')
    rows.write_text("a,b\n" + "x,y\n" * 30)
    result = run("fit", rows, "--domain", domain, "--epsilon", 0.1, "--out", model, "--no-ledger")
    assert "note: mostly noise: 30 records are too few" in result.stderr
    assert "none: the attributes are independent in this model" in result.output
    assert "mostly noise" in _read_model(model)[1]["notes"][0]
