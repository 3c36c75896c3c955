"""The Diabetes table of Digalakis 2018, section 3.7.3: 43 attributes, one record per patient.

The thesis does not name the columns it dropped. Without the two ids, the three columns that are mostly missing and the
two that never vary, 43 attributes remain, with 2 to 118 categories as printed. Diagnoses are in the nine groups of
Strack et al. 2014. The categories are those of the complete public file: a domain derived from the selected records
would leak information about them.
"""

from __future__ import annotations

import csv
import gzip
import io
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

from panstream.errors import InvalidParameter
from panstream.models.networks.domain import Domain
from panstream.models.networks.records import Records

_IDS = ("encounter_id", "patient_nbr")
_DROPPED = (*_IDS, "weight", "medical_specialty", "payer_code", "examide", "citoglipton")
_DIAGNOSES = ("diag_1", "diag_2", "diag_3")
_ATTRIBUTES = 43
_NAME = "diabetes43"

_GROUPS: tuple[tuple[str, range, int | None], ...] = (  # ICD-9 codes, and a symptom that belongs to the group
    ("Circulatory", range(390, 460), 785),
    ("Respiratory", range(460, 520), 786),
    ("Digestive", range(520, 580), 787),
    ("Diabetes", range(250, 251), None),
    ("Injury", range(800, 1000), None),
    ("Musculoskeletal", range(710, 740), None),
    ("Genitourinary", range(580, 630), 788),
    ("Neoplasms", range(140, 240), None),
)


def _diagnosis(code: str) -> str:
    """Return the group of an ICD-9 code; E and V codes and "?" are "Other"."""
    integer_part = code.partition(".")[0]
    number = int(integer_part) if integer_part.isdecimal() else -1
    return next((name for name, codes, symptom in _GROUPS if number in codes or number == symptom), "Other")


def prepare(path: Path) -> Records:
    """Return the table of the thesis from UCI's ``diabetic_data.csv`` (also gzipped), in the order of encounters."""
    raw = path.read_bytes()
    names, *rows = csv.reader((gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().splitlines())
    if set(_DROPPED) - set(names) or set(_DIAGNOSES) - set(names) or len(names) != _ATTRIBUTES + len(_DROPPED):
        raise InvalidParameter("the file must have the 50 columns of diabetic_data.csv")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    for name in _DIAGNOSES:
        columns[name] = [_diagnosis(code) for code in columns[name]]
    encounters, patients = (np.array(columns[name], np.int64) for name in _IDS)
    order = np.argsort(encounters)
    first = order[np.sort(np.unique(patients[order], return_index=True)[1])]
    attributes = [name for name in names if name not in _DROPPED]
    domain = {name: sorted(set(columns[name]), key=_by_number) for name in attributes}
    codes = np.empty((len(attributes), first.size), np.uint16)
    for row, (name, labels) in enumerate(domain.items()):
        code_by_label = {label: code for code, label in enumerate(labels)}
        codes[row] = np.array([code_by_label[label] for label in columns[name]], np.uint16)[first]
    return Records(Domain(domain), codes)


def _by_number(label: str) -> tuple[int, str]:
    return (int(label) if label.isdecimal() else -1, label)


def write_table(records: Records, folder: Path) -> None:
    """Write diabetes43.csv.gz, with reproducible bytes, and diabetes43-domain.json into ``folder``."""
    columns = records.to_columns()
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([list(columns), *zip(*columns.values(), strict=True)])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{_NAME}.csv.gz").open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
        stream.write(text.getvalue().encode())
    (folder / f"{_NAME}-domain.json").write_text(records.domain.to_json(), "utf-8")


@lru_cache(maxsize=2)
def read_table(folder: str = "") -> Records:
    """Return the table that `write_table` wrote, or without a folder the bundled sample of 10,000 patients."""
    directory: Path | Traversable = Path(folder) if folder else resources.files("panstream.papers").joinpath("diabetes")
    domain = Domain.from_json(directory.joinpath(f"{_NAME}-domain.json").read_text("utf-8"))
    lines = gzip.decompress(directory.joinpath(f"{_NAME}.csv.gz").read_bytes()).decode().splitlines()
    names, *rows = csv.reader(lines)
    return Records.read(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), domain)
