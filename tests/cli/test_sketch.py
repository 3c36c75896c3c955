"""``panstream sketch`` on files of published sketches."""

import json
from pathlib import Path

import pytest

from panstream import Monitor
from panstream.algorithms.distinct import Sketch, SketchBitmap
from panstream.primitives.noise import SeededSource
from tests.cli.running import run


@pytest.fixture
def weeks(tmp_path: Path) -> list[str]:
    """Return the files of three weeks, of which the later ones share half of their users with the one before."""
    paths = []
    rng = SeededSource(12)
    for week in range(3):
        monitor = Monitor(SketchBitmap(epsilon=4.0, buckets=4096, levels=12), rng=rng)
        monitor.update(range(1000 * week, 1000 * week + 2000))
        monitor.release()
        start = 1_772_409_600.0 + 604_800 * week
        path = tmp_path / f"week{week}.sketch"
        path.write_bytes(Sketch.of(monitor, "site", start=start, end=start + 604_800).to_bytes())
        paths.append(str(path))
    return paths


def test_overlap_of_two_weeks(weeks: list[str]) -> None:
    text = run("sketch", "overlap", *weeks[:2]).output
    assert "2026-03-02 00:00 to 2026-03-09 00:00 and 2026-03-09 00:00 to 2026-03-16 00:00" in text
    assert [line.split("  ")[0] for line in text.splitlines()[4:8]] == [
        "in both",
        "in the first only",
        "in the second only",
        "in either",
    ]
    assert "at no further loss" in text
    rows = [json.loads(line) for line in run("sketch", "overlap", *weeks[:2], "--json").output.splitlines()]
    for row, truth in zip(rows, (1000, 1000, 1000, 3000), strict=True):
        assert abs(row["unclipped"] - truth) < 6 * row["standard_error"]  # seeded


def test_retention_has_one_line_per_pair(weeks: list[str]) -> None:
    lines = run("sketch", "retention", *weeks, "--lags", 1, "--json").output.splitlines()
    assert [json.loads(line)["what"][-7:] for line in lines] == ["1 later", "1 later"]


def test_counts_and_unions(weeks: list[str]) -> None:
    assert len(run("sketch", "count", *weeks, "--json").output.splitlines()) == 3
    union = json.loads(run("sketch", "union", *weeks, "--json").output)
    assert abs(union["value"] - 4000) < 400
    assert union["epsilon"] == pytest.approx(12.0 + 4.25, abs=0.01)


def test_overlaps_that_say_nothing_are_not_printed(tmp_path: Path) -> None:
    paths = []
    for name in "ab":
        monitor = Monitor(SketchBitmap(epsilon=0.5, buckets=1024, levels=10), rng=SeededSource(ord(name)))
        monitor.update(range(20))
        monitor.release()
        path = tmp_path / f"{name}.sketch"
        path.write_bytes(Sketch.of(monitor).to_bytes())
        paths.append(str(path))
    assert "too few users to say" in run("sketch", "overlap", *paths).output


def test_what_is_no_sketch_is_refused_by_name(tmp_path: Path, weeks: list[str]) -> None:
    other = tmp_path / "other.txt"
    other.write_text("no sketch")
    assert "other.txt: these are not panstream bytes" in run("sketch", "count", other, code=2).stderr
    assert "gone.sketch cannot be read" in run("sketch", "count", tmp_path / "gone.sketch", code=2).stderr
    assert "cannot be compared with itself" in run("sketch", "overlap", weeks[0], weeks[0], code=2).stderr
