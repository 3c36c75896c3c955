"""The path from a clone to an answer on one's own file, followed literally; and the docs site, built offline."""

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "quickstart.md").read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) for line in block.splitlines()
]


@pytest.mark.slow
def test_the_path(tmp_path: Path) -> None:
    """Every command after the installation, as it stands on the page, on a file of 3,000 customers."""
    assert COMMANDS[0] == "make run"
    with (tmp_path / "orders.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerows([["customer", "country", "amount"], *([f"c{n % 3000:04d}", "DE", n / 100] for n in range(9000))])
    printed = []
    for command in COMMANDS[1:]:
        program, *words = shlex.split(command)
        assert program == ".venv/bin/panstream"
        call = [str(Path(sys.executable).with_name("panstream")), *words]
        run = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
        printed.append(run.stdout)
    assert "95% interval" in printed[0]
    assert "Bitmap" in printed[2]
    estimate = float(re.search(r"users\s+│\s+([\d,.]+)", printed[3]).group(1).replace(",", ""))  # type: ignore[union-attr]
    assert abs(estimate - 3000) < 8 * 200  # the standard error is about 170
    assert not any("c0001" in text for text in printed)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert b"c0001" not in kept


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Strict: a broken link, a missing anchor or a page outside the menu fails."""
    call = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": str(Path(sys.executable).parent)}
    run = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    pages = {page.relative_to(tmp_path).with_suffix(".md").as_posix() for page in tmp_path.rglob("*.html")} - {"404.md"}
    assert pages == {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    outside = re.compile(r"""(?:src|href)=["']?(?:https?:)?//[^"'> ]+\.(?:js|css|woff2?)""")
    assert not [page for page in tmp_path.rglob("*.html") if outside.search(page.read_text())]


def test_calculator_is_up_to_date() -> None:
    """Run ``python docs/reference/calculator.py`` after changing a formula."""
    import runpy

    names = runpy.run_path(str(ROOT / "docs" / "reference" / "calculator.py"))
    assert (ROOT / "docs" / "reference" / "calculator.md").read_text() == names["page"]()


def test_every_example_is_shown() -> None:
    """Run ``python docs/reference/examples.py`` after adding one."""
    shown = set(re.findall(r"^## (\w+\.py)$", (ROOT / "docs" / "examples.md").read_text(), re.MULTILINE))
    assert shown == {path.name for path in (ROOT / "examples").glob("*.py")} - {"picture.py"}
