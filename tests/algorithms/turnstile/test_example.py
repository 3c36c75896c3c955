"""The retail example runs on its bundled sample, and its exact column is that of the whole data set."""

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "retail.py"


@pytest.mark.slow
def test_retail(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PANSTREAM_DATA", raising=False)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("406,829 order lines, 8,905 of them returns")
    exact = {line[:42].strip(): line.split()[-1] for line in lines[3:6]}
    assert exact["customers whose net quantity is not 0"] == "4,359"  # 4,319 above and 40 below zero
    assert exact["sum of net quantities, each up to 500"] == "1,429,397"
    assert exact["customers who hold 1,000 or more"] == "1,060"
    assert (EXAMPLE.parent / "data" / "online_retail.csv.gz").stat().st_size < 500_000
    assert len(EXAMPLE.read_text().splitlines()) < 80
