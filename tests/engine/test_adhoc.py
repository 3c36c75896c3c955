"""One question about a file or a table: what is guessed, what is answered, what it costs, and what is refused."""

import functools
import gzip
import json
import lzma
import re
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest
from pyarrow import parquet

import panstream
from panstream.engine import adhoc as module
from panstream.engine.adhoc import PreparedQuery, query
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.export import answers
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ROWS_OF_FILES, ingest
from panstream.engine.sources.schema_guess import infer_schema
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter, SourceError, StoreDamaged, UnboundedLoss
from tests.engine.runtime.streams import COUNT, DISTINCT, config

HEAD = "host,when,bytes,ok,price\n"
ROWS = "".join(
    f"h{i % 7},2024-01-0{1 + i % 3} 03:04:05,{i},{'true' if i % 4 else 'false'},{i / 8}\n" for i in range(60)
)
KINDS = {"host": "string", "when": "timestamp", "bytes": "int", "ok": "bool", "price": "double"}
NAMELESS = {f"column{at}": kind for at, kind in enumerate(KINDS.values())}
TABLE = pa.table(
    {
        "host": [f"h{i % 7}" for i in range(60)],
        "bytes": list(range(60)),
        "ok": [i % 4 != 0 for i in range(60)],
        "price": [i / 8.0 for i in range(60)],
    }
)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Engine", functools.partial(Engine, zero_noise=True))


def text(sign: str = ",", head: str = HEAD) -> Callable[[Path], None]:
    return lambda path: path.write_text((head + ROWS).replace(",", sign)) and None


FILES: dict[str, tuple[Callable[[Path], Any], dict[str, str] | None]] = {
    "comma.csv": (text(), KINDS),
    "semicolon.csv": (text(";"), KINDS),
    "tab.tsv": (text("\t"), KINDS),
    "no-name.log": (text("|"), KINDS),
    "no-header.csv": (text(head=""), NAMELESS),
    "small.csv.gz": (lambda path: path.write_bytes(gzip.compress((HEAD + ROWS).encode())), KINDS),
    "small.csv.xz": (lambda path: path.write_bytes(lzma.compress((HEAD + ROWS).encode())), KINDS),
    "small.csv.zst": (lambda path: path.write_bytes(pa.compress((HEAD + ROWS).encode(), "zstd", asbytes=True)), KINDS),
    "lines.jsonl": (lambda path: polars.from_arrow(TABLE).write_ndjson(path), None),
    "table.parquet": (lambda path: parquet.write_table(TABLE, path), None),
    "table.arrow": (lambda path: polars.from_arrow(TABLE).write_ipc(path), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_format_dialect_and_types_are_guessed(name: str, tmp_path: Path, exact: None) -> None:
    write, kinds = FILES[name]
    write(tmp_path / name)
    kinds = kinds or {name: kind for name, kind in KINDS.items() if name != "when"}
    assert infer_schema([str(tmp_path / name)]).columns == kinds
    flag = list(kinds)[-2]
    answer = query(tmp_path / name, f"SELECT COUNT(*) FROM x WHERE {flag}", epsilon=1.0)
    assert float(answer) == 45


@pytest.mark.parametrize(
    ("sql", "settings"),
    [
        ("SELECT COUNT(*) FROM t", {}),
        ("SELECT COUNT(*) FROM t WHERE ok AND price > 2", {}),
        ("SELECT SUM(bytes) FROM t WHERE host = 'h3'", {"lower": 0, "upper": 100}),
        ("SELECT AVG(price) FROM t", {"lower": 0, "upper": 10}),
        ("SELECT COUNT(*) FROM t WHERE bytes > 1000", {}),
    ],
)
@pytest.mark.parametrize("library", [pandas, polars, pa, duckdb])
def test_tables_answer_as_duckdb_does(sql: str, settings: dict[str, float], library: Any, exact: None) -> None:
    given = {
        pandas: TABLE.to_pandas,
        polars: lambda: polars.from_arrow(TABLE),
        pa: lambda: TABLE,
        duckdb: lambda: duckdb.from_arrow(TABLE),
    }[library]()
    truth = duckdb.from_arrow(TABLE).query("t", sql).fetchall()[0][0]
    assert float(panstream.query(given, sql, epsilon=1.0, **settings)) == pytest.approx(truth)


def test_groups_and_days_have_their_rows(tmp_path: Path, exact: None) -> None:
    text()(tmp_path / "visits.csv")
    backwards = "\n".join(reversed(ROWS.splitlines()))
    (tmp_path / "unsorted.csv").write_text(HEAD + backwards)
    grouped = query(
        tmp_path / "visits.csv", "SELECT ok, COUNT(*) FROM v GROUP BY ok", epsilon=1.0, groups={"ok": ["true", "false"]}
    )
    assert [(row["ok"], row["estimate"]) for row in grouped] == [(True, 45), (False, 15)]
    for name in ("visits.csv", "unsorted.csv"):
        daily = query(tmp_path / name, "SELECT COUNT(*) FROM v", epsilon=1.0, window="1 day")
        assert [(row["start"][:10], row["estimate"]) for row in daily] == [(f"2024-01-0{d}", 20) for d in (1, 2, 3)]


def test_an_input_without_rows_is_answered_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text(HEAD)
    answer = query(tmp_path / "none.csv", "SELECT COUNT(*) FROM x", epsilon=1.0)
    assert len(answer) == 1
    assert abs(float(answer)) < 60


def test_a_later_value_that_does_not_fit_is_a_bad_row(tmp_path: Path, exact: None) -> None:
    first = "id,n\n" + "7,12345678\n" * 100_000  # a little over what is looked at
    (tmp_path / "long.csv").write_text(first + "x,1\n8,many\n9,2\n")
    asked = PreparedQuery([str(tmp_path / "long.csv")], "SELECT COUNT(*) FROM x WHERE n < 10 AND id > 0", epsilon=1.0)
    assert asked.guess.columns == {"id": "int", "n": "int"}
    assert float(asked.answer(ledger=False)) == 1


def test_no_position_is_kept_and_the_guess_is_public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text()(tmp_path / "visits.csv")
    engines: list[Engine] = []

    def opened(*args: Any) -> Engine:
        engines.append(Engine(*args))
        return engines[-1]

    monkeypatch.setattr(module, "Engine", opened)
    answer = query(tmp_path / "visits.csv", "SELECT COUNT(*) FROM x", epsilon=1.0)
    assert engines[0].positions() == {}
    assert any("guessed from its first rows" in fact for fact in answer.claims[0].public)
    assert not any("how far" in fact for fact in answer.claims[0].public)


@pytest.mark.slow
def test_every_answer_is_charged_beside_the_file_and_refused_beyond_the_budget(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    text()(file)
    ask = functools.partial(query, file, "SELECT COUNT(DISTINCT host) FROM x", user="host", epsilon=1.0)
    assert ask(budget=2.0).ledger.total("user") == (1.0, 0.0)  # type: ignore[union-attr]
    assert ask().ledger.total("user") == (2.0, 0.0)  # type: ignore[union-attr]
    before = (tmp_path / "visits.csv.ledger").read_bytes()
    with pytest.raises(BudgetExhausted, match="would bring the total to 3; the limit is 2$"):
        ask()
    with pytest.raises(UnboundedLoss, match="protects one event"):
        query(file, "SELECT COUNT(*) FROM x", epsilon=0.1)
    assert (tmp_path / "visits.csv.ledger").read_bytes() == before
    assert ask(budget=3.0).ledger.total("user") == (3.0, 0.0)  # type: ignore[union-attr]
    (tmp_path / "link.csv").symlink_to(file)
    with pytest.raises(BudgetExhausted):
        query(tmp_path / "link.csv", "SELECT COUNT(DISTINCT host) FROM x", user="host", epsilon=1.0)


def test_a_glob_charges_every_file_and_does_not_read_ledgers(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        text()(tmp_path / name)
    for spent, pattern in ((1.0, "*"), (2.0, "*.csv"), (3.0, "")):
        answer = query(str(tmp_path / pattern), "SELECT COUNT(*) FROM x", epsilon=1.0)
        assert abs(float(answer) - 120) < 60  # wrong with probability below exp(-59) each
        assert sorted(path.name for path in tmp_path.glob("*.ledger")) == ["a.csv.ledger", "b.csv.ledger"]
        assert answer.ledger is not None
        assert answer.ledger.total("event")[0] == spent


@pytest.mark.slow
def test_a_file_under_two_names_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    text()(tmp_path / "a.csv")
    (tmp_path / "b.csv").hardlink_to(tmp_path / "a.csv")
    for ledger in (True, False):
        with pytest.raises(SourceError, match=r"a\.csv and b\.csv are one file"):
            query(tmp_path, "SELECT COUNT(*) FROM x", epsilon=1.0, ledger=ledger)
    assert not list(tmp_path.glob("*.ledger"))
    query(tmp_path / "a.csv", "SELECT COUNT(*) FROM x", epsilon=1.0, budget=1.0)
    with pytest.raises(
        BudgetExhausted, match="would bring the total to 1.95; the limit is 1$"
    ):  # and the rest for the share of unusable rows
        query(tmp_path / "b.csv", "SELECT COUNT(*) FROM x", epsilon=1.0)


def test_a_directory_charges_its_data_and_nothing_else(tmp_path: Path, exact: None) -> None:
    text()(tmp_path / "a.csv")
    (tmp_path / "README").write_text("about the data")
    query(tmp_path, "SELECT COUNT(*) FROM x", epsilon=1.0)
    assert [path.name for path in tmp_path.glob("*.ledger")] == ["a.csv.ledger"]
    (tmp_path / "README").unlink()
    assert float(query(tmp_path, "SELECT COUNT(*) FROM x", epsilon=1.0, format="csv", ledger=False)) == 60


def test_a_ledger_survives_a_crash_and_refuses_damage(tmp_path: Path) -> None:
    ask = functools.partial(query, TABLE, "SELECT COUNT(*) FROM x", epsilon=1.0, ledger=tmp_path / "spent")
    ask()
    with (tmp_path / "spent").open("ab") as file:
        file.write(b'["SELECT half a l')
    answer = ask()
    assert answer.ledger is not None
    assert answer.ledger.total("event")[0] == 2.0
    (tmp_path / "spent").write_text('{"panstream-ledger": 9}\n')
    with pytest.raises(StoreDamaged, match="spent is not a ledger"):
        ask()
    with pytest.raises(InvalidParameter, match="needs a ledger"):
        query(TABLE, "SELECT COUNT(*) FROM x", epsilon=1.0, budget=1.0)


def test_several_aggregates_cost_what_they_cost_together() -> None:
    answer = query(TABLE, "SELECT COUNT(*), AVG(price) FROM x", epsilon=1.0, lower=0, upper=10)
    assert answer.cost == "epsilon 1 for one event"
    assert len(answer) == 2


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("keys", [2, 3, 7])
@pytest.mark.parametrize("aggregates", ["COUNT(DISTINCT host)", "COUNT(*)", "COUNT(*), COUNT(DISTINCT host)"])
def test_epsilon_is_the_total_of_all_groups(epsilon: float, keys: int, aggregates: str) -> None:
    """One user can be in every group, so the sum of what the groups draw from is compared, in exact arithmetic."""
    sql = f"SELECT bytes, {aggregates} FROM x GROUP BY bytes"
    asked = PreparedQuery(
        TABLE, sql, epsilon=epsilon, user="host", settings={"groups": {"bytes": list(range(keys))}, "contributions": 4}
    )
    drawn = [Fraction(part.epsilon) for part in asked.config.queries for _ in range(keys)]
    assert Fraction(epsilon) * (1 - Fraction(1, 2**50)) <= sum(drawn) <= Fraction(epsilon)
    ledger = panstream.Ledger(entries=[(plan.config.name, plan.claim) for plan in plan_all(asked.config)])
    assert ledger.total("user")[0] <= epsilon


def test_the_share_of_every_group_is_told() -> None:
    sql = "SELECT bytes, COUNT(DISTINCT host) FROM x GROUP BY bytes"
    answer = query(TABLE, sql, epsilon=1.0, user="host", groups={"bytes": [1, 2, 3, 4]})
    assert answer.cost == "epsilon 1 for one user, 0.25 in each of 4 groups"
    assert answer.to_dict()["shares"] == "0.25 in each of 4 groups"
    few = query(TABLE, sql, epsilon=1.0, user="host", groups={"bytes": [1, 2, 3, 4]}, groups_per_user=2)
    assert few.cost == "epsilon 1 for one user, 0.5 in each of 2 groups"
    rows = query(TABLE, "SELECT ok, COUNT(*) FROM x GROUP BY ok", epsilon=1.0, groups={"ok": [True, False]})
    assert rows.cost == "epsilon 1 for one event"  # a row is in one group, so that each has all of it


def test_a_user_without_a_bound_on_her_rows_is_warned_of() -> None:
    ask = functools.partial(query, TABLE, "SELECT COUNT(*) FROM x", epsilon=1.0)
    with pytest.warns(UserWarning, match="one row is protected, not all rows of one host"):
        assert ask(user="host").notes == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask()
        query(TABLE, "SELECT COUNT(DISTINCT host) FROM x", epsilon=1.0, user="host")
        bounded = ask(user="host", contributions=2)
    assert bounded.notes[0].startswith("counting at most 2 rows per user, in each batch of up to 524,288 rows")
    assert str(bounded).splitlines()[-1].startswith("Counting at most 2 rows per user, in each batch")


def test_rows_beyond_the_bound_are_left_out_as_the_label_says(exact: None) -> None:
    table = pa.table({"host": ["a"] * (2 * ROWS_OF_FILES + 1) + ["b"]})
    answer = query(table, "SELECT COUNT(*) FROM x", epsilon=1.0, user="host", contributions=10)
    assert float(answer) == 10 + 10 + 1 + 1  # in three batches


def test_an_answer_goes_wherever_people_want_it() -> None:
    sql = "SELECT ok, COUNT(*) FROM x GROUP BY ok"
    answer = query(TABLE, sql, epsilon=1.0, groups={"ok": [True, False]})
    assert list(answer.to_pandas().columns) == list(answer.to_polars().columns) == list(answer.columns)
    assert answer.to_pandas()["estimate"].tolist() == answer.to_polars()["estimate"].to_list()
    reported = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    assert reported["claims"][0]["epsilon"] == 1.0
    assert answer.to_csv().splitlines()[0] == ",".join(answer.columns)
    assert answer.to_markdown().count("\n") == 4
    assert "<caption>" in answer._repr_html_()
    assert "epsilon 1 for one event" in repr(answer)
    assert len(answer.plot().axes) == 1
    for single in (float, lambda several: several.interval()):
        with pytest.raises(panstream.PanstreamError, match="2 answers"):
            single(answer)


def test_a_count_without_expected_says_what_it_loses() -> None:
    many = pa.table({"user": pa.array(range(150_000))})
    sql = "SELECT COUNT(DISTINCT user) FROM x"
    (note,) = query(many, sql, epsilon=1.0, user="user").notes
    assert re.search(r"no number of users was expected: at [12]00,000 users the standard error is 3\.\d+%", note)
    assert re.search(r"with expected = [12]00,000 it would be 0\.\d+%", note)
    assert query(many, sql, epsilon=1.0, user="user", expected=150_000).notes == ()
    assert query(many, "SELECT COUNT(*) FROM x", epsilon=1.0).notes == ()


def test_a_single_answer_has_an_interval() -> None:
    answer = query(TABLE, "SELECT COUNT(*) FROM x", epsilon=1.0)
    low, high = answer.interval()
    assert (low, high) == (answer.rows[0]["low"], answer.rows[0]["high"])
    assert low < high


@pytest.mark.parametrize(
    ("sql", "settings", "said"),
    [
        ("SELECT COUNT(*) FROM x", {"user": "nobody"}, "user must be one of the columns host"),
        ("SELECT COUNT(*) FROM x", {"types": {"hots": "int"}}, "got 'hots'"),
        ("SELECT COUNT(*) FROM x", {"window": "1 day"}, "no column of timestamps"),
        ("SELECT COUNT(*) FROM x", {"epsilon": "1"}, "epsilon must be"),
        ("SELECT ok, COUNT(*) FROM x GROUP BY ok", {}, "needs its keys listed"),
        ("SELECT AVG(price) FROM x", {}, "lower and upper"),
        ("SELECT COUNT(*) FROM a.csv", {}, "in quotes: FROM 'a.csv'"),
        ("SELECT", {}, "one SELECT|aggregate|FROM"),
    ],
)
def test_errors_name_what_is_wrong(sql: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        query(TABLE, sql, **{"epsilon": 1.0, **settings})
    assert "[[query]]" not in str(caught.value)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidBatch, match="got dict"):
        query({"n": [1]}, "SELECT COUNT(*) FROM x", epsilon=1.0)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(SourceError, match="empty"):
        query(tmp_path / "empty.csv", "SELECT COUNT(*) FROM x", epsilon=1.0)
    with pytest.raises(SourceError, match="does not exist"):
        query(tmp_path / "none.csv", "SELECT COUNT(*) FROM x", epsilon=1.0)


def test_an_engine_takes_data_frames() -> None:
    settings = config(COUNT, DISTINCT)
    frame = pandas.DataFrame({"user": [1, 2, 2], "other": [0, 0, 0]})
    with Engine(settings, zero_noise=True) as engine:
        ingest(engine, frame)
        ingest(engine, polars.DataFrame({"user": [3, 2]}))
        engine.finish()
        found = {answer["name"]: answer["value"] for answer in answers(engine)}
    assert found["count"] == 5
    assert found["distinct"] == pytest.approx(3)


def test_a_column_of_several_types_is_left_out_unless_it_is_asked_about() -> None:
    frame = pandas.DataFrame({"who": ["a", 3] * 10, "price": [1.0, "x"] * 10, "n": range(20)})
    assert len(query(frame, "SELECT SUM(n) FROM t", epsilon=1.0, lower=0, upper=20)) == 1
    for sql, settings in (("SELECT SUM(price) FROM t", {}), ("SELECT COUNT(*) FROM t", {"user": "who"})):
        with pytest.raises(InvalidParameter, match=r"column 'price' of the DataFrame .* pandas.to_numeric") as refused:
            query(frame, sql, epsilon=1.0, lower=0, upper=20, **settings)
        assert "'x'" not in str(refused.value)
    with pytest.raises(InvalidBatch, match="column 'price' of the DataFrame has values of several types"):
        query(frame[["price"]], "SELECT COUNT(*) FROM t", epsilon=1.0)
