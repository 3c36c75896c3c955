"""Conditions and values: pyarrow and DuckDB agree, ids never reach DuckDB, nothing is quoted when something fails."""

import datetime
import functools
import math
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.engine.rows.evaluator import Evaluator, Expression, NumericColumn, _DuckDBEvaluator
from panstream.engine.rows.row_batch import arrow_type
from panstream.engine.runtime.selector import _GroupKeys
from panstream.errors import EvaluationFailed, InvalidParameter, MissingExtra, UnsupportedQuery

COLUMNS = {
    "ip": "string",
    "visitor": "int",
    "symptom": "string",
    "age": "int",
    "weight": "int",
    "amount": "double",
    "other": "double",
    "flag": "bool",
    "moment": "timestamp",
    "day": "date",
    "region": "string",
}
DAY = datetime.date(2024, 3, 1)
NOON = datetime.datetime(2024, 3, 1, 12)


def batch_of(rows: int = 0, **given: list[object]) -> pa.RecordBatch:
    rows = max([rows, *(len(values) for values in given.values())])
    return pa.record_batch(
        {name: pa.array(given.get(name, [None] * rows), arrow_type(kind)) for name, kind in COLUMNS.items()}
    )


def masks(batch: pa.RecordBatch, *sql: str, user: str | None = None, plain: bool = True) -> list[list[bool]]:
    evaluator = Evaluator([Expression(sql=text) for text in sql], COLUMNS, user=user, plain=plain)
    try:
        return [result.tolist() for result in evaluator.evaluate(batch)]
    finally:
        evaluator.close()


def values(batch: pa.RecordBatch, sql: str) -> NumericColumn:
    evaluator = Evaluator([Expression(sql=sql, kind="value")], COLUMNS)
    (result,) = evaluator.evaluate(batch)
    evaluator.close()
    assert isinstance(result, NumericColumn)
    return result


# --- random tables and conditions -------------------------------------------------------------------------------------

WORDS = st.sampled_from(["", "a", "A", "ab", "abc", "b", "é", "ée", "%", "a_c", "YES", "NO", "\U0001f600"])
INTEGERS = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**53 + 1, 2**63 - 1])
DOUBLES = st.sampled_from([-1e300, -1.5, -0.0, 0.0, 0.1, 0.25, 1.0, 2.0, 3.5, 1e22, 9007199254740993.0])
TIMES = st.sampled_from([NOON, NOON + datetime.timedelta(microseconds=1), datetime.datetime(1969, 12, 31, 23)])
DAYS = st.sampled_from([DAY, datetime.date(2024, 2, 29), datetime.date(1960, 1, 1)])
FLAGS = st.booleans()
OF = {"int": INTEGERS, "double": DOUBLES, "string": WORDS, "bool": FLAGS, "timestamp": TIMES, "date": DAYS}
TESTED = {name: kind for name, kind in COLUMNS.items() if name not in ("ip", "visitor")}


def literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime.datetime):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value}'"
    if isinstance(value, float):
        return repr(value)
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name, kind = draw(st.sampled_from(sorted(TESTED.items())))
    one, two, three = (literal(draw(OF[kind])) for _ in range(3))
    sign = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    twin = draw(st.sampled_from([other for other, its in TESTED.items() if its == kind]))
    forms = [
        f"{name} {sign} {one}",
        f"{one} {sign} {name}",
        f"{name} IN ({one}, {two}, {three})",
        f"{name} NOT IN ({one}, {two})",
        f"{name} BETWEEN {one} AND {two}",
        f"{name} IS NULL",
        f"{name} IS NOT NULL",
        f"{name} {sign} {twin}",
        f"{name} {sign} NULL",
    ]
    if kind == "string":
        forms += [f"{name} LIKE 'a%'", f"{name} LIKE '%a'", f"{name} LIKE 'a_c'", f"{name} LIKE 'é%'"]
        forms += [f"{name} LIKE '\U0001f600%'", f"{name} NOT LIKE 'A%'", f"starts_with({name}, 'ab')"]
    if kind == "int":
        forms += [
            f"{name} {sign} 1.5",
            f"{name} {sign} -0.5",
            f"{name} {sign} 9223372036854775808",
            f"{name} {sign} -1",
        ]
    if kind == "double":
        forms += [
            f"{name} {sign} 1",
            f"{name} {sign} 0.1",
            f"{name} {sign} 0.3333333333333333333333",
            f"{name} {sign} 1e22",
        ]
    if kind == "bool":
        forms += [name, f"NOT {name}"]
    if kind in ("timestamp", "date"):
        forms += [f"{name} {sign} '2024-03-01'", f"{name} {sign} TIMESTAMP '2024-03-01 12:00:00'"]
        forms += [f"{name} {sign} DATE '2024-03-01'"]
    return draw(st.sampled_from(forms))


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 12))
    columns = {
        name: pa.array(draw(st.lists(st.one_of(st.none(), OF[kind]), min_size=rows, max_size=rows)), arrow_type(kind))
        for name, kind in TESTED.items()
    }
    if draw(st.booleans()):
        columns["symptom"] = columns["symptom"].dictionary_encode()
    if draw(st.booleans()) and rows > 2:
        return pa.record_batch(columns).slice(1, rows - 2)
    return pa.record_batch(columns)


@functools.cache
def oracle() -> duckdb.DuckDBPyConnection:
    """Return DuckDB, whose threads a fork of the collecting process would not have."""
    return duckdb.connect(config={"threads": 1})


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.lists(CONDITIONS, min_size=1, max_size=4), tables())
def test_pyarrow_and_duckdb_agree(conditions: list[str], table: pa.RecordBatch) -> None:
    """The oracle is DuckDB's own WHERE on the whole table, by row number."""
    quick = masks(table, *conditions)
    slow = masks(table, *conditions, plain=False)
    numbered = pa.table({**{name: table.column(name) for name in TESTED}, "row": range(table.num_rows)})
    oracle().register("numbered", numbered)
    for condition, one, two in zip(conditions, quick, slow, strict=True):
        chosen = oracle().execute(f"SELECT row FROM numbered WHERE {condition}").fetchall()
        expected = [row in {number for (number,) in chosen} for row in range(table.num_rows)]
        assert one == expected, condition
        assert two == expected, condition


def test_plain_conditions_stay_in_pyarrow() -> None:
    """Otherwise the property above would compare DuckDB with itself."""
    plain = [
        "symptom = 'YES'",
        "'YES' = symptom",
        "age > 3 AND (amount <= 0.5 OR NOT flag)",
        "symptom IN ('a', 'b') AND symptom NOT IN ('c')",
        "age BETWEEN -1 AND 5",
        "moment >= '2024-03-01' AND day < DATE '2024-03-01' AND moment < TIMESTAMP '2024-03-01 12:00:00'",
        "symptom LIKE 'a%' AND symptom IS NOT NULL",
        "age < weight",
        "flag = TRUE",
        "amount = -2",
        "TRUE",
    ]
    evaluator = Evaluator([Expression(sql=sql) for sql in plain], COLUMNS)
    assert evaluator._duck.columns == ()
    assert evaluator.columns == {"symptom", "age", "amount", "flag", "moment", "day", "weight"}
    rich = ["length(symptom) = 3", "age > 1.5", "symptom LIKE '%a'", "age + 1 > weight", "lower(region) = 'x'"]
    evaluator = Evaluator([Expression(sql=sql) for sql in rich], COLUMNS)
    assert evaluator._duck.columns == ("symptom", "age", "weight", "region")


@pytest.mark.slow
def test_dictionaries() -> None:
    """Few words or many, codes of any width, words that no row has, and none at all."""
    words = [f"w{number:02d}" for number in range(30)]
    rows = [*words, None, *reversed(words)]
    for coded in (
        pa.array(rows).dictionary_encode(),
        pa.array(rows).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
        pa.array(rows).dictionary_encode().slice(3, 40),
    ):
        batch = batch_of(len(coded)).set_column(2, "symptom", coded)
        for condition in ("symptom >= 'w02'", "symptom = 'w05'", "symptom IN ('w01', 'w29')", "NOT symptom < 'w20'"):
            assert masks(batch, condition) == masks(batch, condition, plain=False)
            assert masks(batch, condition) == masks(batch_of(symptom=coded.to_pylist()), condition)
    empty = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    assert masks(batch_of(2).set_column(2, "symptom", empty), "symptom = 'x'", "NOT symptom = 'x'") == [[False] * 2] * 2


# --- values -----------------------------------------------------------------------------------------------------------


def test_values() -> None:
    batch = batch_of(age=[1, None, 3], amount=[0.5, 1.5, None], flag=[True, False, None])
    whole = values(batch, "age")
    assert whole.numbers.dtype == np.int64
    assert whole.numbers.tolist() == [1, 0, 3]
    assert whole.valid.tolist() == [True, False, True]
    assert values(batch, "age * 2 + 1").numbers.tolist() == [3, 0, 7]
    real = values(batch, "amount * 2")
    assert real.numbers.dtype == np.float64
    assert real.numbers.tolist() == [1.0, 3.0, 0.0]
    assert values(batch, "age / 2").numbers.tolist() == [0.5, 0.0, 1.5]
    assert values(batch, "CASE WHEN flag THEN amount ELSE 0 END").numbers.tolist() == [0.5, 0.0, 0.0]
    assert values(batch, "flag AND age > 0").numbers.tolist() == [1, 0, 0]
    assert values(batch, "1").numbers.tolist() == [1, 1, 1]
    assert values(batch, "-2.5").numbers.tolist() == [-2.5] * 3
    assert values(batch_of(amount=[1.0]), "amount").valid.tolist() == [True]


def test_what_cannot_be_computed_is_missing() -> None:
    """Division by zero, overflow and failing casts touch their own row only."""
    batch = batch_of(age=[2**62, 0, 3], weight=[4, 0, 2], amount=[1.0, 0.0, 2.0], symptom=["7", "x", None])
    for sql, expected in (
        ("age / weight", [2.0**60, None, 1.5]),
        ("amount / amount", [1.0, None, 1.0]),
        ("age * weight", [None, 0, 6]),
        ("CAST(symptom AS INT) + 1", [8, None, None]),
        ("ln(amount)", [0.0, None, math.log(2)]),
        ("exp(age)", [None, 1.0, math.exp(3)]),
    ):
        result = values(batch, sql)
        valid = result.valid.tolist()
        found = [number if there else None for number, there in zip(result.numbers.tolist(), valid, strict=True)]
        assert found == pytest.approx(expected), sql
    assert masks(batch, "age / weight > 1", "CAST(symptom AS INT) = 7", "age * weight = 6") == [
        [True, False, True],
        [True, False, False],
        [False, False, True],
    ]


@pytest.mark.parametrize(
    ("sql", "kind", "words"),
    [
        ("age + 1", "mask", "is not a condition"),
        ("symptom", "value", "is not a number"),
        ("moment", "value", "is not a number"),
        ("symptom + 1 = 2 AND day * 3", "mask", "DuckDB does not accept"),
        ("nope > 1", "mask", "'nope' is not declared"),
        ("moment > '2024-13-99'", "mask", "has no value"),
        ("1 +", "value", "not a SQL expression"),
        ("NULL", "value", "has no value"),
    ],
)
def test_refused_when_compiled(sql: str, kind: str, words: str) -> None:
    with pytest.raises(UnsupportedQuery, match=words):
        Evaluator([Expression(sql=sql, kind=kind)], COLUMNS)  # type: ignore[arg-type]


def test_equal_expressions_are_evaluated_once() -> None:
    same = Expression(sql="length(symptom) = 3")
    evaluator = Evaluator([same, Expression(sql="age = 1"), same], COLUMNS)
    one, _, three = evaluator.evaluate(batch_of(symptom=["YES", "NO"], age=[1, 2]))
    assert one is three


def test_columns_that_differ_in_case_only() -> None:
    columns = {"A": "int", "a": "int", "at": "int"}
    batch = pa.record_batch({"A": [1, 2], "a": [2, 1], "at": [3, 3]})
    evaluator = Evaluator([Expression(sql='"A" + 1 > a * 1 + at - 3')], columns)
    assert evaluator.evaluate(batch)[0].tolist() == [False, True]  # type: ignore[union-attr]


# --- ids --------------------------------------------------------------------------------------------------------------


def test_conditions_on_ids() -> None:
    batch = batch_of(ip=["10.1", "10.2", "11.1", "é", "10"], visitor=[1, -5, 3, 2**62, 7])
    assert masks(batch, "ip = '10.1'", "ip <> '10.1'", "ip IN ('10', 'é')", "ip LIKE '10.%'", user="ip") == [
        [True, False, False, False, False],
        [False, True, True, True, True],
        [False, False, False, True, True],
        [True, True, False, False, False],
    ]
    assert masks(batch, "NOT (ip LIKE '10.%' OR ip = 'é')", user="ip") == [[False, False, True, False, True]]
    assert masks(batch, "visitor > 1 AND visitor <= 7", "visitor BETWEEN -5 AND 1", user="visitor") == [
        [False, False, True, False, True],
        [True, True, False, False, False],
    ]


def test_conditions_on_unsigned_ids() -> None:
    visitor = pa.array([0, 5, 2**64 - 1], pa.uint64())
    batch = batch_of(3).set_column(1, "visitor", visitor)
    found = masks(
        batch, "visitor = 5", "visitor > -1", "visitor < -1", "visitor <> -1", "visitor IN (-1, 5)", user="visitor"
    )
    assert found == [[False, True, False], [True] * 3, [False] * 3, [True] * 3, [False, True, False]]
    assert masks(batch, "visitor >= 6", "visitor IN (-1, -2)", user="visitor") == [[False, False, True], [False] * 3]


@pytest.mark.parametrize(
    "sql",
    [
        "length(ip) = 3",
        "ip > 'a'",
        "ip BETWEEN 'a' AND 'b'",
        "ip LIKE '%a'",
        "lower(ip) = 'a'",
        "ip = symptom",
        "ip = ip",
        "CAST(ip AS INT) = 1",
        "ip IS NULL",
        "ip = 'a' AND symptom = 'b'",
        "regexp_matches(ip, 'a')",
    ],
)
def test_other_conditions_on_ids_are_refused(sql: str) -> None:
    with pytest.raises(UnsupportedQuery, match="user column"):
        Evaluator([Expression(sql=sql)], COLUMNS, user="ip")


def test_ids_never_reach_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything registered is looked at; no column of it holds an id, under any name."""
    shown: list[pa.Table] = []

    class Spy:
        def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
            self._connection = connection

        def register(self, name: str, table: pa.Table) -> None:
            shown.append(table)
            self._connection.register(name, table)

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

    opened = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *given: Spy(opened(*given)))
    evaluator = Evaluator(
        [
            Expression(sql="ip LIKE '10.%'"),
            Expression(sql="length(symptom) = 3 AND age + 1 > 2"),
            Expression(sql="amount * 2", kind="value"),
        ],
        COLUMNS,
        user="ip",
    )
    ids = ["10.1-secret", "10.2-secret"]
    evaluator.evaluate(batch_of(ip=ids, symptom=["YES", "NO"], age=[5, 6], amount=[1.0, 2.0], region=["x", "y"]))
    assert len(shown) == 3  # two to learn types, one for the batch
    assert [table.num_columns for table in shown] == [2, 3, 3]
    assert shown[-1].to_pydict() == {"c0": ["YES", "NO"], "c1": [5, 6], "c2": [1.0, 2.0]}
    assert evaluator._duck.columns == ("symptom", "age", "amount")
    with pytest.raises(UnsupportedQuery, match="not handed to DuckDB"):
        from sqlglot import parse_one

        _DuckDBEvaluator(COLUMNS, forbidden="ip").add(parse_one("length(ip) = 3", read="duckdb"), "mask")


def test_duckdb_can_reach_nothing(tmp_path: object) -> None:
    duck = _DuckDBEvaluator(COLUMNS)
    connection = duck._connection
    for statement in (
        "SELECT * FROM read_csv('/etc/hostname')",
        f"COPY (SELECT 1) TO '{tmp_path}/x.csv'",
        "ATTACH 'x.db'",
        "SET enable_external_access = true",
        "SET threads = 4",
        "INSTALL httpfs",
        "SELECT * FROM COLUMNS",
    ):
        with pytest.raises(duckdb.Error):
            connection.execute(statement)
    assert connection.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
    duck.close()
    duck.close()


def test_a_failing_evaluation_quotes_nothing() -> None:
    evaluator = Evaluator([Expression(sql="length(symptom) = 3")], COLUMNS)
    sound = evaluator._duck._results[0]
    evaluator._duck._results[0] = "CAST(c0 AS INT)"  # what TRY keeps from happening
    with pytest.raises(EvaluationFailed) as caught:
        evaluator.evaluate(batch_of(symptom=["secret"]))
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None
    evaluator._duck._results[0] = sound
    assert evaluator.evaluate(batch_of(symptom=["YES"]))[0].tolist() == [True]  # type: ignore[union-attr]
    evaluator.close()


def test_missing_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert masks(batch_of(age=[1]), "age = 1") == [[True]]
    with pytest.raises(MissingExtra, match="-m pip install 'duckdb"):
        Evaluator([Expression(sql="age + 1 = 2")], COLUMNS)


def test_results_show_no_values() -> None:
    assert repr(values(batch_of(age=[12345]), "age")) == "Values(1 rows of int64)"
    assert isinstance(Evaluator([], COLUMNS), Evaluator)
    assert Evaluator([], COLUMNS).evaluate(batch_of(1)) == []


# --- groups -----------------------------------------------------------------------------------------------------------


def keys_of(batch: pa.RecordBatch, *columns: str) -> list[pa.Array]:
    return [batch.column(name) for name in columns]


def test_group_numbers() -> None:
    groups = _GroupKeys.of({"region": ("north", "south"), "age": (1, 2, 3)}, COLUMNS)
    batch = batch_of(region=["south", "north", "west", None, "south"], age=[1, 3, 1, 2, None])
    assert groups.numbers(keys_of(batch, "region", "age")).tolist() == [3, 2, -1, -1, -1]
    assert len(groups) == 6
    assert [groups.key(number) for number in range(6)] == [(r, a) for r in ("north", "south") for a in (1, 2, 3)]
    coded = batch.set_column(COLUMNS_INDEX["region"], "region", batch.column("region").dictionary_encode())
    assert groups.numbers(keys_of(coded, "region", "age")).tolist() == [3, 2, -1, -1, -1]
    assert groups.numbers(keys_of(batch.slice(1, 1), "region", "age")).tolist() == [2]


COLUMNS_INDEX = {name: number for number, name in enumerate(COLUMNS)}


def test_group_keys_of_every_type() -> None:
    for column, keys in {
        "flag": (True, False),
        "amount": (0.5, 2),
        "day": (DAY, DAY + datetime.timedelta(1)),
        "moment": (NOON,),
    }.items():
        groups = _GroupKeys.of({column: keys}, COLUMNS)
        batch = batch_of(**{column: [*reversed(keys), None]})
        assert groups.numbers(keys_of(batch, column)).tolist() == [
            *reversed(range(len(keys))),
            -1,
        ]


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        ("age", ("1",)),
        ("age", (True,)),
        ("region", (1,)),
        ("flag", (1,)),
        ("amount", (1, 1.0)),
        ("day", ("x",)),
        ("age", (2**70,)),
    ],
)
def test_group_keys_of_the_wrong_type(column: str, keys: tuple[object, ...]) -> None:
    with pytest.raises(InvalidParameter, match=f"groups.{column} must list different keys"):
        _GroupKeys.of({column: keys}, COLUMNS)
