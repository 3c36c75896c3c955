"""The Diabetes table of the thesis from the public file, against a straight reading with pandas and known facts."""

import gzip
import hashlib
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from panstream.errors import InvalidParameter
from panstream.papers.diabetes_table import _diagnosis, prepare, read_table, write_table

RAW = Path(__file__).parent / "diabetes" / "diabetic_data_sample.csv.gz"
SAMPLE_SHA256 = "0a00238e3e6a33d61b51272bb35d1d5474f5f10edae44ea5adda36fce952a21f"
TABLE_SHA256 = "a5ce9216b9330c00d26a45050630453653a167076fde3e1260ec6ab009c4b1c5"

PUBLIC = Path(os.environ.get("PANSTREAM_DATA", "nowhere")) / "diabetic_data.csv.gz"
FILES = [(RAW, SAMPLE_SHA256), *([(PUBLIC, TABLE_SHA256)] if PUBLIC.exists() else [])]


def content(folder: Path) -> str:
    return hashlib.sha256(gzip.decompress((folder / "diabetes43.csv.gz").read_bytes())).hexdigest()


def test_the_sample_is_prepared_as_pandas_would(tmp_path: Path) -> None:
    records = prepare(RAW)
    raw = pd.read_csv(RAW, keep_default_na=False, dtype=str)
    first = raw.assign(number=raw["encounter_id"].astype(int)).sort_values("number").drop_duplicates("patient_nbr")
    assert len(records) == first["patient_nbr"].nunique() == 180
    columns = records.to_columns()
    assert len(columns) == 43
    for name, values in columns.items():
        if not name.startswith("diag_"):
            assert values == first[name].tolist()
            assert set(records.domain.attributes[records.domain.names.index(name)].labels) == set(raw[name])
    write_table(records, tmp_path)
    assert np.array_equal(read_table(str(tmp_path)).codes, records.codes)
    plain = tmp_path / "diabetic_data.csv"
    plain.write_bytes(gzip.decompress(RAW.read_bytes()))
    write_table(prepare(plain), tmp_path / "again")
    for name in ("diabetes43.csv.gz", "diabetes43-domain.json"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize(("path", "expected"), FILES, ids=["sample", "public file"][: len(FILES)])
def test_the_table_is_the_same_everywhere(path: Path, expected: str, tmp_path: Path) -> None:
    records = prepare(path)
    write_table(records, tmp_path)
    assert content(tmp_path) == expected
    if path != RAW:
        assert records.domain == read_table().domain


def test_the_bundled_sample() -> None:
    """The thesis prints 43 attributes of 2 to 118 categories and almost 10^32 cells; the public file gives 10^32.9."""
    sample = read_table()
    sizes = sample.domain.sizes
    assert (len(sample), len(sizes), min(sizes), max(sizes)) == (10_000, 43, 2, 118)
    assert 32.9 < sum(map(math.log10, sizes)) < 33
    readmitted = pd.Series(sample.to_columns()["readmitted"]).value_counts()
    spread = 4 * math.sqrt(0.25 / len(sample))  # facts of all 71,518 patients
    for label, count in (("NO", 42_985), (">30", 22_240), ("<30", 6_293)):
        assert readmitted[label] / len(sample) == pytest.approx(count / 71_518, abs=spread)


@pytest.mark.parametrize(
    ("code", "group"),
    [
        ("250.83", "Diabetes"),
        ("410", "Circulatory"),
        ("785", "Circulatory"),
        ("519", "Respiratory"),
        ("786", "Respiratory"),
        ("579", "Digestive"),
        ("788", "Genitourinary"),
        ("239", "Neoplasms"),
        ("240", "Other"),
        ("715", "Musculoskeletal"),
        ("999", "Injury"),
        ("V57", "Other"),
        ("E909", "Other"),
        ("?", "Other"),
    ],
)
def test_diagnoses_fall_into_the_groups_of_strack(code: str, group: str) -> None:
    assert _diagnosis(code) == group


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidParameter, match="50 columns of diabetic_data"):
        prepare(tmp_path / "other.csv")
