"""Types compared with the beginning of an input: what is refused, what is warned of, and that nothing is spent."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from panstream.engine.adhoc import query
from panstream.engine.config.config import read_config
from panstream.engine.runtime.ingest import check_files
from panstream.engine.sources import Dialect
from panstream.engine.sources.first_rows import check_first_rows, likely_encoding
from panstream.engine.sources.schema_guess import infer_schema
from panstream.errors import InvalidParameter, SourceError

DAYS = [f"{day:02}.{month:02}.2024" for month in range(1, 13) for day in range(1, 29)]
PRICES = [f"{7 * row % 500},{row % 100:02}" for row in range(len(DAYS))]


def sales(path: Path, encoding: str = "utf-8") -> Path:
    lines = [
        "Preis (€);Tag;Käufer;Menge",
        *(f"{price};{day};Müller{row};{row}" for row, (price, day) in enumerate(zip(PRICES, DAYS, strict=True))),
    ]
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


def check(path: Path, columns: dict[str, str], **options: Any) -> list[str]:
    options = {"caller": "command", "dialect": Dialect(delimiter=";"), **options}
    return check_first_rows([str(path)], columns, **options)


def test_a_decimal_comma(tmp_path: Path) -> None:
    path = sales(tmp_path / "sales.csv")
    message = r"none of the first 200 rows has a number in 'Preis \(€\)'; is the decimal mark a comma\? \(--decimal ,\)"
    with pytest.raises(SourceError, match=message):
        check(path, {"Preis (€)": "double"})
    assert check(path, {"Preis (€)": "double"}, dialect=Dialect(delimiter=";", decimal=",")) == []


def test_dates_with_the_day_first(tmp_path: Path) -> None:
    path = sales(tmp_path / "sales.csv")
    for kind in ("date", "timestamp"):
        with pytest.raises(SourceError, match=rf"has a {'date' if kind == 'date' else 'time'} in 'Tag'.*'%d.%m.%Y'"):
            check(path, {"Tag": kind}, required=["Tag"])
    assert check(path, {"Tag": "date"}, dialect=Dialect(delimiter=";", date_format="%d.%m.%Y")) == []


def test_dates_that_may_be_read_in_two_ways(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("d\n" + "03/04/2024\n05/06/2024\n" * 5)
    with pytest.raises(SourceError, match="date-format '%d/%m/%Y' or --date-format '%m/%d/%Y'"):
        check(tmp_path / "d.csv", {"d": "date"})


@pytest.mark.parametrize(
    ("encoding", "shown", "option"),
    [("cp1252", "Windows-1252", "windows-1252"), ("utf-16", "UTF-16", "utf-16"), ("utf-16-be", "UTF-16", "utf-16-be")],
)
def test_another_encoding(tmp_path: Path, encoding: str, shown: str, option: str) -> None:
    path = sales(tmp_path / "sales.csv", encoding)
    with pytest.raises(SourceError, match=rf"sales.csv is not UTF-8; it looks like {shown} \(--encoding {option}\)"):
        check(path, {"Käufer": "string"})
    with pytest.raises(SourceError, match="is not UTF-8"):
        infer_schema([str(path)])
    assert check(path, {"Käufer": "string"}, dialect=Dialect(delimiter=";", encoding=option)) == []


def test_one_letter_of_utf8_is_enough_to_go_on() -> None:
    assert likely_encoding(bytearray("Zürich, ".encode() + b"Z\xfcrich")) is None
    assert likely_encoding(bytearray(b"Z\xfcrich")) == "windows-1252"
    assert likely_encoding(bytearray(b"Z\xfcrich\x81")) == "latin-1"
    assert likely_encoding(bytearray(b"Zurich")) is None
    assert likely_encoding(bytearray("€".encode()[:2])) == "windows-1252"
    rows = b"user,town\n" + b"1,Bern\n" * 20
    assert likely_encoding(bytearray(rows + b"2,Z\xfcrich\n")) is None  # one bad row says nothing about the others
    assert likely_encoding(bytearray(rows + b"2,Z\xfcrich\n" * 2)) == "windows-1252"
    assert likely_encoding(bytearray(b"user,r\xe9gion\n" + b"1,Bern\n" * 20)) == "windows-1252"


def test_a_declared_encoding_is_believed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"name,n\n" + b"plain,1\n" * 20 + b"Z\xfcrich,1\n" * 5)
    with pytest.raises(SourceError, match="Windows-1252"):
        check_first_rows([str(tmp_path / "a.csv")], {"name": "string"}, caller="configuration")
    dialect = Dialect(encoding="utf-8")
    (warning,) = check_first_rows([str(tmp_path / "a.csv")], {"name": "string"}, dialect=dialect, caller="command")
    assert "5 of the first 25 rows do not have valid UTF-8 in 'name'" in warning


@pytest.mark.parametrize(("bad", "warned"), [(20, False), (21, True), (100, True)])
def test_more_than_a_tenth_is_warned_of(tmp_path: Path, bad: int, warned: bool) -> None:
    (tmp_path / "a.csv").write_text("n\n" + "x\n" * bad + "1\n" * (200 - bad) + "x\n" * 500)
    warnings = check(tmp_path / "a.csv", {"n": "int"})
    assert bool(warnings) == warned
    assert all(f"{bad} of the first 200 rows do not have a whole number in 'n'" in text for text in warnings)


def test_more_misfits_than_values_are_refused(tmp_path: Path) -> None:
    """As when a column of ids with letters is declared as int: 660 customers were counted instead of 8,608."""
    (tmp_path / "a.csv").write_text("n\n" + "C7\n" * 101 + "1\n" * 99)
    with pytest.raises(
        SourceError, match="101 of the first 200 rows do not have a whole number in 'n'; is its type int"
    ):
        check(tmp_path / "a.csv", {"n": "int"}, required=["n"])
    (tmp_path / "a.csv").write_text("n,m\n" + ",1\n" * 190 + "1,1\n" * 10)  # most rows have no user
    (warning,) = check(tmp_path / "a.csv", {"n": "int"}, dialect=None, required=["n"])
    assert "190 of the first 200 rows" in warning


def test_columns_that_are_not_read_and_empty_values_are_nobodys_fault(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + "x,\n" * 30)
    assert check(tmp_path / "a.csv", {"b": "int"}, dialect=None) == []
    with pytest.raises(SourceError, match="none of the first 30 rows has a whole number in 'b'"):
        check(tmp_path / "a.csv", {"b": "int"}, dialect=None, required=["b"])


def test_nothing_is_said_of_a_few_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n" + "x\n" * 9)
    assert check(tmp_path / "a.csv", {"n": "int"}) == []
    (tmp_path / "a.csv").write_text("n\n" + "x\n" * 10)
    with pytest.raises(SourceError, match="first 10 rows"):
        check(tmp_path / "a.csv", {"n": "int"})


def test_every_file_is_looked_at_and_rows_of_other_lengths(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("a,b\n" + "1;2\n" * 10)
    with pytest.raises(SourceError, match="b.csv.gz: each of the first 10 rows has too few or too many fields"):
        check_first_rows([str(tmp_path)], {"a": "int", "b": "int"}, caller="command")


def test_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": "5"}\n' * 10)
    with pytest.raises(SourceError, match="none of the first 10 rows has a whole number in 'n'"):
        check(tmp_path / "a.jsonl", {"n": "int"})


def configured(**keys: Any) -> Any:
    columns = {"Preis (€)": "double", "Tag": "date", "Käufer": "string", "Menge": "int"}
    asked = {"name": "q", "sql": 'SELECT SUM("Preis (€)") FROM s', "epsilon": 1.0, "lower": 0, "upper": 500}
    return read_config({"stream": {"name": "s", "columns": columns, "delimiter": ";", **keys}, "query": [asked]})


def test_a_configuration_says_its_own_keys(tmp_path: Path) -> None:
    path = str(sales(tmp_path / "sales.csv"))
    with pytest.raises(SourceError, match=r'decimal = "," in \[stream\]'):
        check_files(configured(), [path])
    with pytest.raises(SourceError, match="'Tag'"):
        check_files(configured(decimal=",", time="Tag"), [path])
    assert check_files(configured(decimal=",", date_format="%d.%m.%Y", time="Tag"), [path]) == []
    assert check_files(configured(), ["-", "kafka://host/topic"]) == []


@pytest.mark.slow
def test_nothing_is_spent_on_types_that_do_not_fit(tmp_path: Path) -> None:
    path = sales(tmp_path / "sales.csv")
    ask: dict[str, Any] = {"epsilon": 1.0, "lower": 0, "upper": 500}
    sql = 'SELECT SUM("Preis (€)") FROM sales'
    with pytest.raises(SourceError, match='decimal=","'):
        query(path, sql, types={"Preis (€)": "double"}, **ask)
    refusal = pytest.raises(InvalidParameter, match=r"is not a number.*'Preis \(€\)' is read as text; is the decimal")
    with pytest.warns(UserWarning, match="read as text"), refusal:
        query(path, sql, **ask)
    with pytest.raises(InvalidParameter, match=r"no column of timestamps.*'Tag' is read as text; are dates"):
        query(path, "SELECT COUNT(*) FROM sales", epsilon=1.0, window="1 day")
    assert not (tmp_path / "sales.csv.ledger").exists()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_declared_styles_give_the_right_answer(tmp_path: Path, encoding: str) -> None:
    path = sales(tmp_path / "sales.csv", encoding)
    written: dict[str, Any] = {"decimal": ",", "date_format": "%d.%m.%Y", "encoding": encoding}
    answer = query(path, 'SELECT SUM("Preis (€)") FROM sales', epsilon=100.0, lower=0, upper=500, **written)
    truth = sum(float(price.replace(",", ".")) for price in PRICES)
    assert answer.rows[0]["low"] - 200 < truth < answer.rows[0]["high"] + 200
    found = infer_schema([str(path)], written=Dialect(**written))
    assert dict(found.columns) == {"Preis (€)": "double", "Tag": "date", "Käufer": "string", "Menge": "int"}
    assert found.hints == {}
