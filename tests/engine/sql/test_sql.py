"""Statements taken apart, and everything else refused with its place."""

import sys

import pytest

from panstream.engine.sql.parser import Aggregate, ParsedQuery, parse
from panstream.errors import MissingExtra, UnsupportedQuery

COLUMNS = {"ip": "string", "symptom": "string", "age": "int", "amount": "double", "region": "string", "at": "timestamp"}


def read(statement: str) -> ParsedQuery:
    (part,) = parse(statement, columns=COLUMNS, user="ip", stream="clinic").parts
    return part


@pytest.mark.parametrize(
    ("statement", "aggregate", "value"),
    [
        ("SELECT COUNT(DISTINCT ip) FROM clinic", Aggregate.COUNT_DISTINCT, None),
        ("select count(*) from clinic", Aggregate.COUNT, None),
        ("SELECT SUM(amount * 2 + 1) AS total FROM clinic", Aggregate.SUM, "amount * 2 + 1"),
        ("SELECT AVG(CASE WHEN age > 3 THEN amount ELSE 0 END) FROM clinic", Aggregate.AVG, None),
        ("SELECT VAR_POP(amount) FROM clinic", Aggregate.VAR_POP, "amount"),
        ("SELECT STDDEV_POP(amount) FROM clinic", Aggregate.STDDEV_POP, "amount"),
        ("SELECT MIN(amount) FROM clinic", Aggregate.MIN, "amount"),
        ("SELECT MAX(ABS(amount)) FROM clinic", Aggregate.MAX, "ABS(amount)"),
        ("SELECT QUANTILE_CONT(amount, 0.25) FROM clinic", Aggregate.QUANTILE, "amount"),
        ("SELECT DENSITY(ip) FROM clinic", Aggregate.DENSITY, None),
        ("SELECT CROPPED_SUM(ip, age, 5) FROM clinic", Aggregate.CROPPED_SUM, None),
        ("SELECT HEAVY_HITTERS(ip, age, 100) FROM clinic", Aggregate.HEAVY_HITTERS, None),
        ("SELECT INCIDENCE(ip, age, 3) FROM clinic", Aggregate.INCIDENCE, None),
        ("SELECT CROPPED_SQUARES(ip, age, 3) FROM clinic", Aggregate.CROPPED_SQUARES, None),
    ],
)
def test_aggregates(statement: str, aggregate: Aggregate, value: str | None) -> None:
    parsed = read(statement)
    assert parsed.aggregate is aggregate
    if value is not None:
        assert parsed.value == value


def test_parts() -> None:
    parsed = read(
        "SELECT region, COUNT(DISTINCT ip) FROM clinic "
        "WHERE symptom = 'YES' AND (age > 3 OR age IS NULL) AND ip LIKE '10.%' GROUP BY region"
    )
    assert parsed.where == "symptom = 'YES' AND (age > 3 OR age IS NULL)"
    assert parsed.user_where == "ip LIKE '10.%'"
    assert parsed.group_by == ("region",)
    assert parsed.columns == {"ip", "symptom", "age", "region"}
    assert read("SELECT CROPPED_SUM(ip, age * 2, 5) FROM clinic").weight == "age * 2"
    assert read("SELECT CROPPED_SUM(ip, age, 5) FROM clinic").constants == (5.0,)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT ip FROM clinic", "not an aggregate"),
        ("SELECT COUNT(DISTINCT age) FROM clinic", "takes the user column"),
        ("SELECT COUNT(*) FROM clinic JOIN x ON 1=1", "JOIN is not supported"),
        ("SELECT COUNT(*) FROM clinic, other", "JOIN is not supported"),
        ("SELECT COUNT(*) FROM 'a.csv'", "FROM must name the stream 'clinic'"),
        ("SELECT COUNT(*) FROM read_csv('x')", "FROM must name the stream"),
        ("SELECT COUNT(*) FROM (SELECT 1)", "FROM must name the stream"),
        ("SELECT COUNT(*) FROM db.clinic", "FROM must name the stream"),
        ("SELECT COUNT(*) FROM clinic TABLESAMPLE 10%", "FROM must name the stream"),
        ("SELECT COUNT(*)", "FROM must name the stream"),
        ("SELECT COUNT(*) FROM clinic WHERE nope = 1", "column 'nope' is not declared"),
        ("SELECT COUNT(*) FROM clinic WHERE ip = symptom", "must not mix the user column"),
        ("SELECT SUM(ip) FROM clinic", "holds ids, not values"),
        ("SELECT SUM(SUM(age)) FROM clinic", "cannot be nested"),
        ("DROP TABLE clinic", "one SELECT is expected"),
        ("SELECT COUNT(*) FROM clinic; SELECT 1", "one SELECT is expected"),
        ("SELECT DISTINCT COUNT(*) FROM clinic", "DISTINCT is not supported"),
        ("SELECT ip, COUNT(*) FROM clinic GROUP BY ip", "would publish who is there"),
        ("SELECT COUNT(*) OVER () FROM clinic", "OVER is not supported"),
        ("SELECT COUNT(*) FROM clinic WHERE age IN (SELECT 1)", "subqueries are not supported"),
        ("SELECT SUM(getenv('x')) FROM clinic", "GETENV is not allowed"),
        ("SELECT SUM(random()) FROM clinic", "RANDOM is not allowed"),
        ("SELECT COUNT(*) FROM clinic WHERE at > now()", "not allowed"),
        ("WITH a AS (SELECT 1) SELECT COUNT(*) FROM clinic", "WITH is not supported"),
        ("SELECT QUANTILE_CONT(amount, 2) FROM clinic", r"must be in \[0, 1\]"),
        ("SELECT QUANTILE_CONT(amount, age) FROM clinic", "must be a number"),
        ("SELECT QUANTILE_CONT(amount) FROM clinic", "the quantile must be a number"),
        ("SELECT MEDIAN() FROM clinic", "an argument or expression is missing"),
        ("SELECT CROPPED_SUM(age, 5) FROM clinic", "takes the arguments of"),
        ("SELECT COUNT(* FROM clinic", "line 1"),
        ("", "one SELECT is expected"),
    ],
)
def test_refused(statement: str, words: str) -> None:
    with pytest.raises(UnsupportedQuery, match=words):
        read(statement)


def test_the_place_is_told() -> None:
    with pytest.raises(UnsupportedQuery) as caught:
        read("SELECT COUNT(*)\nFROM clinic\nWHERE nope = 1")
    assert (caught.value.line, caught.value.column is not None) == (3, True)


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(MissingExtra, match="-m pip install 'duckdb"):
        read("SELECT COUNT(*) FROM clinic")
