"""The tutorial about sections does what it says."""

import re
from pathlib import Path

import pytest

from panstream.engine.config.config import load_config
from panstream.engine.reporting.explain import explain
from panstream.engine.reporting.export import answers
from panstream.engine.reporting.point_queries import point_query
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "sections.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows, sites = blocks("python")
    exec(compile(sites, PAGE.name, "exec"), {})
    exec(compile(rows, PAGE.name, "exec"), {})
    Path("panstream.toml").write_text(blocks("toml")[0], "utf-8")
    config = load_config("panstream.toml")
    assert explain(config).text().count("one state, with all of epsilon") == 2
    with Engine(config) as engine:
        ingest(engine, ["visits.csv"])
        engine.finish()
        shown = {answer["name"]: answer["value"] for answer in answers(engine)}
        released = {release.query for release in engine.log.history()}
    of_sections = [name for name in shown if name.startswith("sections")]
    assert of_sections == [
        f"sections.{name} [section={group}]" for group in ("news", "shop") for name in ("views", "good")
    ]
    assert len(released) == 4 * 2 + 2 * 3  # the groups that are not shown too
    assert shown["sections.good [section=news]"] == pytest.approx(0.9, abs=0.05)
    assert shown["time spent.mean [continent=Europe]"] == pytest.approx(30, abs=3)


def test_pages_that_nobody_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], PAGE.name, "exec"), {})
    Path("pages.toml").write_text(blocks("toml")[1], "utf-8")
    config = load_config("pages.toml")
    text = explain(config).text()
    assert "with at least 118 events" in text and "23.4 the count" in text and "off by up to 4.45" in text
    with Engine(config) as engine:
        ingest(engine, ["visits.csv"])
        engine.finish()
        first, second, third = (answer["group"]["path"] for answer in answers(engine))
    assert (first, second) == ("/", "/news/rain") and third in ("/news/sun", "/shop/hats")
    known, unknown = point_query("state", "path IN ('/help', '/never/heard/of')")
    assert known["value"] == pytest.approx(1000, abs=200) and unknown["value"] < 200
