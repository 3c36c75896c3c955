"""Every Python block of README and docs runs, links lead somewhere, and exported names are written about."""

import re
from pathlib import Path

import pytest

import panstream
from panstream.audit.claims import runner

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"(?<!needs a server -->\n)^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
UNBREAKABLE = re.compile(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)|<[^>]*>")
LINK = re.compile(r"\]\(([^)#\s]+)")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=page_id)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one page share their names, in order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "_registered", {})  # cases that a page registers are forgotten with it
    names: dict[str, object] = {"__name__": "docs"}
    for block in BLOCK.finditer(page.read_text()):
        line = page.read_text()[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block.group(1), str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link and not link.startswith("mailto:")]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_every_exported_name_is_documented() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    missing = [name for name in panstream.__all__ if not re.search(rf"\b{name}\b", text)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_lines_are_wrapped(page: Path) -> None:
    """Prose has lines of 120 characters at most; code, tables, formulas and links cannot be broken."""
    prose = re.sub(r"(?ms)^\s*(```+).*?^\s*\1$|^\$\$.*?\$\$$", "", page.read_text())
    long = [line for line in prose.splitlines() if len(line) > 120 and not line.lstrip().startswith("|")]
    assert not [line for line in long if " " in UNBREAKABLE.sub("", line).strip(" -*")]


def test_readme_has_exactly_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"^make \w+", readme, re.MULTILINE) == ["make run", "make test"]


def test_every_picture_has_a_command_that_exists() -> None:
    page = (ROOT / "docs" / "reference" / "reproduce.md").read_text("utf-8")
    pictures = {
        path.name.replace("-light.svg", "").replace("-dark.svg", "")
        for path in (ROOT / "docs" / "pictures").glob("*.*")
    }
    assert not [name for name in pictures if f"`{name}`" not in page]
    scripts = [Path(name) for name in re.findall(r"python ([\w/]+\.py)", page)]
    scripts += [Path(name.replace(".", "/") + ".py") for name in re.findall(r"python -m ([\w.]+)", page)]
    assert not [str(script) for script in scripts if not (ROOT / script).exists()]
