"""GROUP BY a key whose values nobody listed: what is refused, stored, shown and promised."""

from __future__ import annotations

import csv
import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from panstream.algorithms.heavy_hitters.estimates import DecodedAnswer, decode_names
from panstream.algorithms.heavy_hitters.point_counts import PointCounts
from panstream.algorithms.heavy_hitters.released_tables import ReleasedTables
from panstream.cli.app import app
from panstream.engine.adhoc import query
from panstream.engine.config.config import Config, read_config
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.explain import explain
from panstream.engine.reporting.export import answers, notes, visible_rows, write_releases
from panstream.engine.reporting.point_queries import point_query
from panstream.engine.runtime import name_decoder
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.runtime.selector import Selector
from panstream.errors import ConfigError, InvalidBytes, InvalidParameter, StoreError
from panstream.privacy.claim import Claim
from panstream.server.service import release_json
from tests.waiting import PATIENCE

COLUMNS = {"at": "int", "page": "string", "code": "int", "who": "string", "w": "int"}
TOP = "SELECT page, COUNT(*) FROM s GROUP BY page ORDER BY COUNT(*) DESC LIMIT 2"
SMALL = {"epsilon": 8.0, "delta": 1e-6, "max_item_bytes": 8, "memory": 400_000, "expected": 10_000}
DAY = 86_400
WRONG = 4  # names that nobody sent: a list has .05 of them at most on average, so many once in four million lists


def config(sql: str = TOP, base: Path = Path(), stream: dict[str, Any] | None = None, **settings: Any) -> Config:
    top = {key: settings.pop(key) for key in ("store",) if key in settings}
    asked = {"name": "top", "sql": sql, **SMALL, **settings}
    return read_config(
        {"stream": {"name": "s", "columns": COLUMNS, **(stream or {})}, "query": [asked], **top}, base=base
    )


def visits(**counts: int) -> pa.Table:
    pages = [f"/{page}" for page, count in counts.items() for _ in range(count)]
    size = len(pages)
    return pa.table({"at": [0] * size, "page": pages, "code": [7] * size, "who": ["u"] * size, "w": [1] * size})


def run(engine: Engine, table: pa.Table) -> None:
    ingest(engine, table)
    engine.finish()


def test_names_are_shown_in_the_statements_order_with_intervals() -> None:
    with Engine(config()) as engine:
        run(engine, visits(a=900, b=3000, c=2000))
        found = list(answers(engine))
        assert [each["group"] for each in found] == [{"page": "/b"}, {"page": "/c"}]
        for each, true in zip(found, (3000, 2000), strict=True):
            low, high = each["interval"]
            assert low <= each["value"] <= high and abs(each["value"] - true) < 7 * each["standard_error"]  # 1e-11
            assert each["epsilon"] == 8.0 and each["claim"]["delta"] == 1e-6
        ((name, said),) = notes(engine)
        assert (
            name == "top"
            and "listed with probability 95%" in said
            and "2 of the first 2 certainly belong in it" in said
        )


def test_every_window_has_a_list_of_its_own(tmp_path: Path) -> None:
    table = pa.concat_tables([visits(a=2000, b=500), visits(c=2000, b=600)])
    table = table.set_column(0, "at", pa.array([0] * 2500 + [DAY] * 2600))
    with Engine(config(stream={"time": "at"}, window="1 day")) as engine:
        run(engine, table)
        found = [(release.record["window"][0], release.record["group"]["page"]) for _, release in visible_rows(engine)]
        first = "1970-01-01T00:00:00Z"
        second = "1970-01-02T00:00:00Z"
        assert found == [(first, "/a"), (first, "/b"), (second, "/c"), (second, "/b")]
        assert write_releases(engine, tmp_path / "all.csv") == 2 + 4
        assert "top [page=/a],1," in (tmp_path / "all.csv").read_text()


def test_the_table_is_stored_with_the_release_and_answers_for_any_name(tmp_path: Path) -> None:
    with Engine(config(base=tmp_path, store={"directory": "state"})) as engine:
        run(engine, visits(a=2000, b=500, c=40))
        drawn = engine.log.last("top")
        assert drawn is not None and not drawn.table
    with Engine(config(base=tmp_path, store={"directory": "state"})) as engine:
        assert engine.log.last("top") == drawn
        points = PointCounts.from_bytes(engine.log.table("top", 1))
        for name, true in (("/a", 2000), ("/c", 40), ("/nothing", 0)):
            low, high = points.count(name, Claim(epsilon=8.0, unit="event")).interval(1 - 1e-6)
            assert low <= true <= high, name
        assert engine.log.table("top", 2) == b""


def test_after_a_crash_an_answer_is_published_with_its_table(tmp_path: Path) -> None:
    broken = Engine(config(base=tmp_path, store={"directory": "state"}))
    broken.log.publish = lambda release: (_ for _ in ()).throw(StoreError("no disk"))  # type: ignore[method-assign]
    with pytest.raises(StoreError), broken:
        run(broken, visits(a=2000))
    (drawn,) = broken.names.pending
    for _ in range(2):  # at the second start it was published
        with Engine(config(base=tmp_path, store={"directory": "state"})) as engine:
            engine.publish_names()
            last = engine.log.last("top")
            assert last is not None and last.record["items"][0]["name"] == "/a" and engine.release_count("top") == 1
            counts = PointCounts.from_bytes(engine.log.table("top", 1)).rows.cells
            np.testing.assert_array_equal(
                counts, ReleasedTables.from_bytes(drawn.table).rows
            )  # read again, and not redrawn


def days(engine: Engine, count: int, per_day: int = 2000) -> None:
    """Feed so many days and the first row of the next; what ends with a day is drawn."""
    pages = [f"/{'ab'[day % 2]}" for day in range(count) for _ in range(per_day)]
    at = [day * DAY for day in range(count) for _ in range(per_day)]
    size = len(at) + 1
    rest = {"code": [0] * size, "who": ["u"] * size, "w": [1] * size}
    ingest(engine, pa.table({"at": [*at, count * DAY], "page": [*pages, "/c"], **rest}))


def test_rows_are_taken_in_while_names_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_read = threading.Event()

    def slow(tables: ReleasedTables) -> DecodedAnswer:
        assert may_read.wait(PATIENCE)
        return decode_names(tables)

    monkeypatch.setattr(name_decoder, "decode_names", slow)
    described = {"base": tmp_path, "store": {"directory": "state"}, "stream": {"time": "at"}, "window": "1 day"}
    with Engine(config(**described)) as engine:
        days(engine, 2)
        engine.advance()
        assert engine.release_count("top") == 2 and engine.log.last("top") is None
        may_read.set()
        engine.publish_names()
        listed = [release.record["items"][0]["name"] for release in engine.log.history("top")]
        assert listed == ["/a", "/b"]


def test_tables_of_old_releases_are_given_up_and_their_lists_are_kept(tmp_path: Path) -> None:
    store = {"directory": "state", "keep_tables": 1}
    described = {"base": tmp_path, "store": store, "stream": {"time": "at"}, "window": "1 day"}
    with Engine(config(**described)) as engine:
        days(engine, 2)
        engine.publish_names()
        assert all(0 < len(release.record["items"]) <= WRONG for release in engine.log.history("top"))
        assert engine.log.table("top", 1) == b"" != engine.log.table("top", 2)
    assert [row["number"] for row in point_query(tmp_path / "state", "page = '/b'", all_windows=True)] == [2]


def test_released_tables_are_stored_as_they_are() -> None:
    cells = np.array([[1, -40_000, 3, 7], [5, 6, 7, 8]], np.int32)
    shown = {"bits": 8, "seed": np.uint64(7), "laplace": True, "level_sd": 2.5, "row_sd": 3.5}
    for levels in (cells, cells % 100):
        again = ReleasedTables.from_bytes(ReleasedTables(levels=levels, rows=cells[1:], **shown).to_bytes())
        assert again.levels.tolist() == levels.tolist() and again.rows.tolist() == cells[1:].tolist()
        assert {name: getattr(again, name) for name in shown} == shown
    for data in (
        b"",
        b"{}\n",
        b"[]\n",
        b"\xff" * 40,
        ReleasedTables(levels=cells, rows=cells, **shown).to_bytes()[:-4],
    ):
        with pytest.raises(InvalidBytes):
            ReleasedTables.from_bytes(data)


def test_over_http_a_list_has_what_the_statement_shows() -> None:
    loaded = config()
    with Engine(loaded) as engine:
        run(engine, visits(a=900, b=3000, c=2000))
        last = engine.log.last("top")
        assert last is not None and {item["name"] for item in last.record["items"]} >= {"/a", "/b", "/c"}
        reported = release_json(last, loaded)
        assert [item["name"] for item in reported["items"]] == ["/b", "/c"] and reported["key"] == "page"
        json.dumps(reported, allow_nan=False)


def test_whole_numbers_are_numbers_and_missing_ones_are_nobodys() -> None:
    codes = pa.table({"code": pa.array([3] * 900 + [-20] * 800 + [None] * 300, pa.int64())})
    found = query(codes, "SELECT code, COUNT(*) FROM s GROUP BY code ORDER BY code", **SMALL)
    codes_found = [row["code"] for row in found]
    assert codes_found == sorted(codes_found) and {-20, 3} <= set(codes_found) and len(codes_found) < 2 + WRONG
    assert "listed with probability 95%" in str(found) and "delta 1e-06" in found.cost
    nothing = query(codes, "SELECT code, COUNT(*) FROM s WHERE code > 5 GROUP BY code", **SMALL)
    assert len(nothing) < WRONG and (len(nothing) or "No name stands out" in str(nothing))


NASTY = ["\x1b[2J", "=cmd|'calc'", "<script>x</script>", "\u202egpj.exe", "$\\frac{$"]


def test_names_do_nothing_where_they_are_shown() -> None:
    table = pa.table({"page": NASTY * 2000})
    found = query(
        table, 'SELECT page AS "-p\x1b", COUNT(*) FROM s GROUP BY page ORDER BY 2', **{**SMALL, "max_item_bytes": 24}
    )
    assert {row["-p\x1b"] for row in found} >= set(NASTY), "rows, JSON and Parquet hold the exact names"
    assert {row["-p\x1b"] for row in json.loads(json.dumps(found.to_dict()))["answers"]} >= set(NASTY)
    assert set(found.to_arrow().column("-p\x1b").to_pylist()) >= set(NASTY)
    shown = (str(found), repr(found), found.to_csv(), found.to_markdown(), found._repr_html_())
    for text in shown:
        assert text.replace("\n", "").isprintable() and "\\x1b" in text and "u202egpj.exe" in text
    for text in shown[3:]:
        assert "<script>" not in text and "&lt;script&gt;" in text
    cells = [line[0] for line in csv.reader(found.to_csv().splitlines())]
    assert cells[0] == r"'-p\x1b" and "'=cmd|'calc'" in cells
    found.plot().savefig(io.BytesIO(), format="svg")  # fails on $...$ if that is read as a formula


def test_names_do_nothing_in_files_of_answers(tmp_path: Path) -> None:
    settings = {**SMALL, "name": "pages", "sql": "SELECT page, COUNT(*) FROM s GROUP BY page"}
    loaded = read_config({"stream": {"name": "s", "columns": {"page": "string"}}, "query": [settings]})
    with Engine(loaded) as engine:
        ingest(engine, pa.table({"page": ["\u202e=1"] * 2000}))
        engine.finish()
        write_releases(engine, tmp_path / "answers.csv")
    text = (tmp_path / "answers.csv").read_text()
    assert "[page=\\\\u202e=1]" in text and "\u202e" not in text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"every": "1 hour", "horizon": 3}, "use window for answers over time"),
        ({"window": "1 day", "every": "1 hour"}, "protect an event less"),
        ({"releases": 2}, "every, horizon and releases cannot be used"),
        ({"announced": 1}, "any number of announced intrusions"),
        ({"contributions": 2}, "a user column"),
        ({"delta": 2.0}, "delta must be in"),
        ({"max_item_bytes": 0}, "max_item_bytes must be in 1..1024"),
        ({"memory": 10}, "memory must be at least"),
        ({"groups": {"page": ["/a"]}}, "max_item_bytes is for GROUP BY a key whose values are not listed"),
        ({"stream": {"weight": "w"}}, "signed weights"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_all(config(**settings))


def test_a_user_of_several_rows_is_protected_where_that_is_declared() -> None:
    (plan,) = plan_all(config(stream={"user": "who"}, contributions=3))
    assert (plan.claim.unit, plan.claim.epsilon, plan.claim.delta) == ("user", 8.0, 1e-6)
    with Engine(config(stream={"user": "who"}, contributions=3)) as engine:
        run(engine, visits(a=4000))
        assert [each["group"]["page"] for each in answers(engine)] == ["/a"]


def test_explain_tells_from_where_names_are_listed_and_what_listing_would_give() -> None:
    pure = config(delta=0.0, epsilon=1.0, max_item_bytes=64, memory=1 << 25)
    text = explain(pure).text()
    reported = explain(pure).to_json()
    (plan,) = plan_all(pure)
    assert reported["queries"][0]["listing_threshold"] == plan.algorithm.listing_threshold
    assert (
        f"those with at least {int(plan.algorithm.listing_threshold) + 1:,} events are listed with probability 95%"
        in text
    )
    assert "with delta = 1e-06, those with at least 2" in text
    assert "with groups = { page = [...] } every listed key is answered, and off by up to 4.45" in text
    assert not any("fewer events" in line for line in text.splitlines())
    having = config("SELECT page, COUNT(*) FROM s GROUP BY page HAVING COUNT(*) > 3")
    assert "HAVING asks for names with fewer events than" in explain(having).text()
    few = config(expected=100, epsilon=1.0)
    assert any("hardly any will be" in warning for warning in explain(few).to_json()["warnings"])
    assert "delta 1e-06, no limit declared" in explain(few).text()


def test_rows_of_a_dictionary_and_of_text_give_the_same_tables() -> None:
    """A filter and a window copy some of the rows: what they copy is counted the same."""
    pages = np.array(["/a", "/b", "/c"])[np.arange(3000) % 3]
    texts = pa.table({"at": [0] * 3000, "page": pa.array(pages), "code": np.arange(3000) % 2})
    coded = texts.set_column(1, "page", pa.array(pages).dictionary_encode())
    sql = "SELECT page, COUNT(*) FROM s WHERE code = 1 GROUP BY page ORDER BY page"
    found = []
    for table in (texts, coded):
        loaded = config(sql, stream={"columns": {"at": "int", "page": "string", "code": "int"}})
        with Engine(loaded, zero_noise=True) as engine, Selector(loaded):
            run(engine, table)
            found.append([(each["group"]["page"], each["value"]) for each in answers(engine)])
    assert found[0] == found[1] == [("/a", 500.0), ("/b", 500.0), ("/c", 500.0)]


def test_any_name_can_be_asked_for_afterwards(tmp_path: Path) -> None:
    table = pa.concat_tables([visits(a=2000, b=500), visits(c=2000, b=60)])
    table = table.set_column(0, "at", pa.array([0] * 2500 + [DAY] * 2060))
    described = {"base": tmp_path, "store": {"directory": "state"}, "stream": {"time": "at"}}
    with Engine(config(window="1 day", **described)) as engine:
        run(engine, table)
        latest = point_query(tmp_path / "state", "page IN ('/b', '/nobody came here')")  # while the engine runs
    every = point_query(tmp_path / "state", "page = '/b'", query="top", all_windows=True)
    assert [(row["name"], row["number"]) for row in latest] == [("/b", 2), ("/nobody …", 2)]
    assert [row["window"][0] for row in every] == ["1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"]
    for row, true in zip([*latest, *every], (60, 0, 500, 60), strict=True):
        assert abs(row["value"] - true) < 7 * row["standard_error"]  # 1e-11
    assert every[1] == latest[0]
    for condition, words in (
        ("who = 'u'", "lists were published of page"),
        ("page > 'x'", "ask takes"),
        ("page = who", "ask takes"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            point_query(tmp_path / "state", condition)
    with pytest.raises(InvalidParameter, match="holds no published answers"):
        point_query(tmp_path, "page = '/b'")
    result = CliRunner().invoke(app, ["ask", str(tmp_path / "state"), "page = '/b'"])
    assert result.exit_code == 0 and "1970-01-02 to 1970-01-03" in result.output and "/b" in result.output


def test_a_damaged_table_is_refused() -> None:
    for data in (b"", b"{}\n", b'{"shape": [5, 4]}\nxx', b"\xff" * 40):
        with pytest.raises(InvalidBytes):
            PointCounts.from_bytes(data)
