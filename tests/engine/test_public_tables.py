"""Statements about a file that join public tables, named in the statement."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

import panstream
from panstream.engine.config.config import read_config
from panstream.engine.planner.query_plan import plan_all
from panstream.errors import InvalidParameter, SourceError, UnsupportedQuery
from tests.cli.running import run
from tests.engine.runtime.streams import COLUMNS, question

SALES = "customer,price\n" + "".join(f"c{i % 7},{i % 5}\n" for i in range(70))
CUSTOMERS = "customer,country\n" + "".join(f"c{i},{'DE' if i % 2 else 'FR'}\n" for i in range(6))
SQL = "SELECT country, SUM(price) FROM 'sales.csv' JOIN 'customers.csv' USING (customer) GROUP BY country"
ASK: dict[str, Any] = {"epsilon": 500, "lower": 0, "upper": 5, "groups": {"country": ["DE", "FR"]}, "ledger": False}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sales.csv").write_text(SALES)
    (tmp_path / "customers.csv").write_text(CUSTOMERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "sql",
    [
        SQL,
        "SELECT c.country, SUM(s.price) FROM 'sales.csv' s JOIN 'customers.csv' AS c ON s.customer = c.customer "
        "GROUP BY c.country",
        "SELECT customers.country, SUM(sales.price) FROM 'sales.csv' JOIN 'customers.csv' "
        "ON sales.customer = customers.customer GROUP BY customers.country",
    ],
)
@pytest.mark.parametrize("user", [None, "customer"])
def test_a_join_counts_what_duckdb_counts(sql: str, user: str | None) -> None:
    answer = panstream.query(
        "sales.csv", sql, public=["customers.csv"], user=user, contributions=user and 20, unusable_share=False, **ASK
    )
    expected = dict(duckdb.sql(sql).fetchall())
    answered = {row["country"]: row["estimate"] for row in answer}
    assert answered == pytest.approx(expected, abs=8)  # noise of scale 0.2 or less: farther once in e^40 runs


def test_a_group_that_the_users_id_decides_is_paid_for_once() -> None:
    """A user's rows all have the country that the public table gives for the id, so they are in one group."""
    lookup = {"file": "customers.csv", "key": "name"}
    Path("customers.csv").write_text(CUSTOMERS.replace("customer,", "name,"))
    by_user = question(
        "q",
        "SELECT country, SUM(value) FROM s JOIN c ON s.name = c.name GROUP BY country",
        groups={"country": ["DE", "FR", "IT"]},
        lower=0,
        upper=5,
        contributions=4,
    )

    def touched(user: str) -> int:
        stream = {"name": "s", "columns": COLUMNS, "user": user}
        (plan,) = plan_all(read_config({"stream": stream, "query": [by_user], "lookup": {"c": lookup}}))
        return plan.groups_touched

    assert touched("name") == 1
    assert touched("user") == 3


@pytest.mark.parametrize(
    ("sql", "public", "said"),
    [
        (SQL, [], "only a public table can be joined .give public, the files that may be joined: customers.csv"),
        (SQL.replace("'customers.csv'", "'others.csv'"), ["others.csv"], "others.csv: there is no such file"),
        (SQL.replace("USING (customer)", ""), ["customers.csv"], "a table is joined by one key"),
        (
            "SELECT COUNT(*) FROM 'sales.csv' JOIN 'customers.csv' USING (country)",
            ["customers.csv"],
            "country must be a unique key|column 'country' is not declared",
        ),
        (
            "SELECT COUNT(*) FROM 'sales.csv' JOIN (SELECT 1) USING (customer)",
            ["customers.csv"],
            "only a public table can be joined .a join with other rows",
        ),
    ],
)
def test_what_cannot_be_joined(sql: str, public: list[str], said: str) -> None:
    with pytest.raises((InvalidParameter, UnsupportedQuery, SourceError), match=said):
        panstream.query("sales.csv", sql, public=public, epsilon=1, ledger=False)


def test_the_command_names_its_option() -> None:
    asked = ["query", SQL, "--epsilon=500", "--lower=0", "--upper=5", "--groups=country=DE,FR", "--no-ledger"]
    refused = run(*asked, code=2)
    assert (
        "only a public table can be joined (add --public customers.csv, if it holds nothing private)" in refused.stderr
    )
    assert "DE" in run(*asked, "--public=customers.csv", "--no-unusable-share").stdout
