"""Ranges that numbers have by common knowledge, from the names of their columns. No row is looked at."""

from __future__ import annotations

import re

# A name's last words, the lowest and the highest number, and whether they are whole.
_USUAL: tuple[tuple[str, float, float, bool], ...] = (
    ("age|age in years|alter", 0, 120, True),
    ("(birth )?year|year of birth|yob|jahr", 1900, 2030, True),
    ("month|month of birth|monat", 1, 12, True),
    ("day of month", 1, 31, True),
    ("weekday|day of week|dow", 0, 7, True),
    ("hour|hour of day", 0, 23, True),
    ("minute|second", 0, 59, True),
    ("percent|percentage|pct|share percent", 0, 100, False),
    ("hours per week|hours worked", 0, 99, True),
    ("education num|years of education|education years", 0, 25, True),
    ("children|dependents|num children|siblings", 0, 15, True),
    ("household size|persons in household", 1, 20, True),
    ("height|height cm", 40, 220, False),
    ("weight|weight kg", 0, 300, False),
    ("bmi|body mass index", 10, 70, False),
    ("temperature|body temperature|temp c", 30, 45, False),
    ("pulse|heart rate|hr|bpm", 20, 250, True),
    ("systolic|sbp|bp systolic|systolic bp|blood pressure systolic", 50, 260, True),
    ("diastolic|dbp|bp diastolic|diastolic bp|blood pressure diastolic", 20, 160, True),
    ("spo2|oxygen saturation", 50, 100, True),
    ("respiratory rate|breathing rate", 4, 60, True),
    ("glucose|blood sugar", 20, 600, False),
    ("hba1c", 3, 18, False),
    ("cholesterol", 50, 500, False),
    ("creatinine", 0, 20, False),
    ("hemoglobin|haemoglobin", 2, 25, False),
    ("pregnancies|parity", 0, 20, True),
    ("length of stay|los|days in hospital|time in hospital|stay", 0, 60, True),
    ("num procedures|procedures|num diagnoses|number diagnoses|diagnoses", 0, 30, True),
    ("rating|stars", 0, 5, False),
    ("latitude|lat", -90, 90, False),
    ("longitude|lon|lng", -180, 180, False),
)


def usual_range(name: str) -> tuple[float, float, bool] | None:
    """Return the lowest and the highest number that a column of this name usually has, and whether they are whole.

    >>> usual_range("Patient_Age"), usual_range("hoursPerWeek"), usual_range("revenue")
    ((0, 120, True), (0, 99, True), None)
    """
    words = re.sub(r"[\W_]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).strip().lower()
    for pattern, low, high, is_whole in _USUAL:
        if re.search(rf"(?:^| )(?:{pattern})$", words):
            return low, high, is_whole
    return None
