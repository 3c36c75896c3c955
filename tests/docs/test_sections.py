"""The tutorial about sections does what it says."""

import re
from pathlib import Path

import pytest

from panstream.engine.config import load_config
from panstream.engine.engine import Engine
from panstream.engine.explain import explain
from panstream.engine.results import answers
from panstream.engine.run import feed

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "sections.md"


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
    exec(compile(blocks["python"], PAGE.name, "exec"), {})
    Path("panstream.toml").write_text(blocks["toml"], "utf-8")
    config = load_config("panstream.toml")
    assert explain(config).text().count("one state, with all of epsilon") == 2
    with Engine(config) as engine:
        feed(engine, ["visits.csv"])
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
