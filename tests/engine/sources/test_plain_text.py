"""A plain table is recognised exactly as DuckDB's sniffer reports it, and everything else is left to the sniffer."""

import random
import string
import subprocess
import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from panstream.engine.dialect_sniffer import _text
from panstream.engine.sources.plain_text import plain_dialect
from panstream.engine.sources.schema_guess import infer_schema

_LETTERS = string.ascii_letters + string.digits + " _-./:@=&%+()"
_WORDS = ("Berlin", "true", "may", "jan 2024", "12 March", "h12", "a", "NULL", "null", "None", "t", "inf")
_FIRST_DAY = date(1700, 1, 1)


def _day(draws: random.Random) -> str:
    return (_FIRST_DAY + timedelta(days=draws.randrange(180_000))).isoformat()


def _time(draws: random.Random) -> str:
    return f"{draws.randrange(24):02}:{draws.randrange(60):02}:{draws.randrange(60):02}"


_VALUES: dict[str, Callable[[random.Random], str]] = {
    "int": lambda draws: str(draws.randrange(-(10**9), 10 ** draws.randrange(1, 19))),
    "code": lambda draws: f"{draws.randrange(1000):03}",
    "bit": lambda draws: str(draws.randrange(2)),
    "double": lambda draws: f"{draws.uniform(-1e6, 1e6):.{draws.randrange(4)}f}",
    "exponent": lambda draws: f"{draws.randrange(9)}e{draws.randrange(30)}",
    "date": _day,
    "compact": lambda draws: _day(draws).replace("-", ""),
    "time": _time,
    "timestamp": lambda draws: _day(draws) + draws.choice(" T") + _time(draws),
    "letters": lambda draws: "".join(draws.choices(_LETTERS, k=draws.randrange(1, 12))),
    "word": lambda draws: draws.choice(_WORDS),
    "bool": lambda draws: draws.choice(("true", "false")),
    "hexadecimal": lambda draws: f"{draws.randrange(1 << 40):x}",
}


def _table(draws: random.Random) -> bytes:
    kinds = draws.choices([*_VALUES], k=draws.randrange(2, 6))
    separator = draws.choice(",,,;\t|")
    empty = draws.choice((0.0, 0.0, 0.1))
    names = [draws.choice(("name", "Date", "user_id", "e", "b1", "f")) + f"_{number}" for number in range(len(kinds))]
    rows = [
        ["" if draws.random() < empty else _VALUES[kind](draws).replace(separator, "") for kind in kinds]
        for _ in range(draws.choice((1, 2, 3, 20, 200)))
    ]
    return "".join(f"{separator.join(row)}\n" for row in (names, *rows)).encode()


def test_random_tables_have_the_dialect_that_duckdb_reports() -> None:
    draws = random.Random(20261119)
    compared = 0
    for _ in range(300):
        table = _table(draws)
        plain = plain_dialect(bytearray(table))
        if plain is not None:
            assert plain == _text(table, "."), table[:400]
            compared += 1
    assert compared > 40


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n",  # no row
        "a,b\n1,x",  # the last line may be incomplete
        "1,x\n2,z\n",  # no names
        "a,b\nx,z\n",  # the first line may be a row
        'a,b\n1,"x"\n',
        "a,b\n1,O'Hara\n",
        "a,b\r\n1,x\r\n",
        "a,b\n1,x;z\n",
        "a,b\n1\n2,x\n",
        "a,b\n1,x,2\n2,x\n",
        "a,A\n1,x\n",
        "a,b\n1,Zoë\n",
        "a,b\n1,\n2,\n",  # a column without a value
        "a,b\n007,x\n",  # a code
        "a,b\n1234567890123456789,x\n",
        "a,b\n1.2.3,x\n",
        "a,b\n1,-\n",  # a minus for a value that is missing, as the last field
        "a,b\n-,x\n2,z\n",
        "a,b\n1,true\n",
        "nan,b\n1.5,x\n",
        "a\n1\n",
        "\n",
        "",
    ],
)
def test_anything_else_is_left_to_the_sniffer(text: str) -> None:
    assert plain_dialect(bytearray(text.encode())) is None


def test_a_date_that_does_not_exist_is_text(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("n,day\n1,2024-02-30\n2,2024-02-28\n")
    assert infer_schema([str(path)]).columns == {"n": "int", "day": "string"}


@pytest.mark.slow
def test_a_question_about_a_plain_table_starts_no_process_and_loads_only_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("host,n\n" + "".join(f"h{number % 50},{number}\n" for number in range(500)))
    script = """
import subprocess, sys
def refuse(*arguments, **options): raise SystemExit("a process was started")
subprocess.Popen.__init__ = refuse
sys.argv = ["panstream", "query", "SELECT COUNT(DISTINCT host) FROM 'rows.csv'", "--user=host", "--epsilon=1"]
sys.argv += ["--no-ledger", "--no-hardening"]
from panstream.cli.main import main
try:
    main()
finally:
    print(sorted({"cffi", "duckdb", "pandas", "pyarrow.compute", "rich", "scipy", "yaml"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
