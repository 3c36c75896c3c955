"""Domains are declared, ordered, hashable, and read back as they were written."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidBytes, InvalidParameter
from panstream.models.networks import Bins, Domain, Records, propose_domain

LABELS = st.lists(st.text(max_size=6), min_size=1, max_size=5, unique=True)
EDGES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=6, unique=True).map(sorted)
COLUMNS = st.one_of(LABELS, st.builds(Bins, EDGES, clip=st.booleans(), whole=st.booleans()))


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1, max_size=5), COLUMNS, min_size=1, max_size=4), st.data())
def test_json_gives_the_same_domain_back(columns: dict[str, object], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(columns)), unique=True))
    try:
        domain = Domain(columns, missing=dict.fromkeys(chosen, "none"))  # type: ignore[arg-type]
    except InvalidParameter:
        return  # two bins of one label, however unlikely
    again = Domain.from_json(domain.to_json())
    assert again == domain
    assert hash(again) == hash(domain)
    assert again.sizes == domain.sizes


def test_order_matters_and_names_are_found() -> None:
    one = Domain({"a": ["x"], "b": ["y", "z"]})
    assert one.names == ("a", "b")
    assert one.position("b") == 1
    assert one != Domain({"b": ["y", "z"], "a": ["x"]})
    assert one.select((1,)) == Domain({"b": ["y", "z"]})
    with pytest.raises(InvalidParameter, match="there is no attribute 'c'"):
        one.position("c")


def test_a_domain_cannot_be_changed() -> None:
    domain = Domain({"a": ["x"]})
    with pytest.raises(AttributeError):
        domain.attributes = ()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Bins([0, 1]).edges = (0.0, 2.0)  # type: ignore[misc]


@pytest.mark.parametrize(
    "declared",
    [{}, {"a": []}, {"a": ["x", "x"]}, {"": ["x"]}, {"a": "xyz"}, {"a": [1, 2]}, {"a": ["x"] * 70_000}],
    ids=["empty", "no-categories", "twice", "no-name", "one-string", "numbers", "too-many"],
)
def test_a_bad_declaration_is_refused(declared: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        Domain(declared)  # type: ignore[arg-type]


def test_missing_must_name_declared_attributes() -> None:
    with pytest.raises(InvalidParameter, match="not declared: 'b'"):
        Domain({"a": ["x"]}, missing=["b"])


def test_a_missing_category_is_added_once() -> None:
    domain = Domain({"a": ["?", "x"], "b": ["x"], "c": Bins([0, 1])}, missing={"a": "?", "b": "none", "c": "none"})
    assert domain.sizes == (2, 2, 2)
    assert [each.missing for each in domain.attributes] == [0, 1, 1]


@pytest.mark.parametrize("edges", [[], [1], [1, 1], [2, 1], [0, math.nan]], ids=str)
def test_edges_must_rise(edges: list[float]) -> None:
    with pytest.raises(InvalidParameter):
        Bins(edges)


@given(EDGES, st.lists(st.floats(allow_nan=True), max_size=20))
def test_bins_against_plain_comparison(edges: list[float], values: list[float]) -> None:
    bins = Bins(edges)
    clipped = Bins(edges, clip=True)
    last = len(edges) - 2
    for value, code, near in zip(values, bins.codes(np.array(values)), clipped.codes(np.array(values)), strict=True):
        inside = [i for i in range(last + 1) if edges[i] <= value < edges[i + 1] or (i == last and value == edges[-1])]
        assert code == (inside[0] if inside else -1)
        if not math.isnan(value):
            assert near == (inside[0] if inside else (0 if value < edges[0] else last))


def test_open_ended_bins() -> None:
    bins = Bins([-math.inf, 0, math.inf])
    assert bins.codes(np.array([-1e300, 0.0, math.inf])).tolist() == [0, 1, 1]
    domain = Domain({"x": bins})
    assert Domain.from_json(domain.to_json()) == domain
    json.loads(domain.to_json(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "panstream-domain", "version": 2}', '{"format": "panstream-domain", "version": 1}'],
)
def test_foreign_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidBytes):
        Domain.from_json(text)


@given(st.data())
def test_damage_never_raises_anything_else(data: st.DataObject) -> None:
    text = Domain({"a": ["x", "y"], "b": Bins([0, 1, 2])}, missing=["a"]).to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from('0x"[]{},:- ')) + text[at + data.draw(st.integers(0, 3)) :]
    try:
        read = Domain.from_json(changed)
    except InvalidBytes:
        return
    assert Domain.from_json(read.to_json()) == read


def test_a_domain_is_proposed_from_sizes_lists_types_and_ranges() -> None:
    domain = propose_domain(
        {
            "code": 3,
            "sex": ["f", "m"],
            "flag": {"type": "boolean"},
            "stay": {"type": "integer", "minimum": 1, "maximum": 14},
            "age": {"type": "integer", "minimum": 0, "maximum": 120, "bins": 16},
            "weight": {"type": "number", "minimum": 0, "maximum": 200, "bins": 4},
            "group": {"enum": ["a", "b", None], "nullable": True},
            "income": {"edges": [0, 10, 100], "clip": True},
        }
    )
    assert domain.sizes == (3, 2, 2, 14, 15, 4, 3, 2)
    assert domain.labels(0) == ("0", "1", "2")
    assert domain.attributes[4].bins is not None
    assert domain.attributes[4].bins.codes(np.array([0.0, 120.0, 121.0])).tolist() == [0, 14, -1]
    assert domain.attributes[6].missing == 2


@given(st.integers(-50, 50), st.integers(1, 300), st.integers(1, 40))
def test_proposed_integer_ranges_hold_every_value(low: int, extent: int, bins: int) -> None:
    domain = propose_domain({"x": {"type": "integer", "minimum": low, "maximum": low + extent}}, bins=bins)
    values = list(range(low, low + extent + 1))
    declared = domain.attributes[0].bins
    codes = declared.codes(np.array(values, float)).tolist() if declared else [*range(len(values))]
    assert domain.sizes[0] <= max(bins, 1)
    assert codes == sorted(codes)
    assert set(codes) == set(range(domain.sizes[0]))


def test_a_table_schema_is_understood() -> None:
    schema = {
        "fields": [
            {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"]}},
            {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
        ]
    }
    assert propose_domain(schema).sizes == (2, 10)


@pytest.mark.parametrize("declared", [{"x": {"type": "string"}}, {"x": None}, {"x": {"minimum": 3, "maximum": 1}}])
def test_what_is_not_declared_is_not_guessed(declared: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        propose_domain(declared)


def test_files_are_named_by_paths_or_strings(tmp_path: Path) -> None:
    declared = tmp_path / "domain.toml"
    rows = tmp_path / "rows.csv"
    declared.write_text('sex = ["f", "m"]\n')
    rows.write_text("sex\nf\nm\n")
    domain = Domain.load(str(declared))
    assert domain == Domain.load(declared)
    assert Records.load(str(rows), domain).to_columns() == {"sex": ["f", "m"]}


def test_a_domain_file_with_an_unknown_key_is_refused() -> None:
    """A misspelt limit would silently be none."""
    with pytest.raises(InvalidParameter, match="'age': unknown key 'maximun', did you mean 'maximum'"):
        propose_domain({"age": {"type": "integer", "minimum": 0, "maximun": 120}})
    field = {"name": "age", "type": "integer", "description": "in years", "constraints": {"minimum": 0, "maximum": 9}}
    assert propose_domain({"fields": [field]}).sizes == (10,)


@pytest.mark.parametrize("bins", [5, 50])
def test_clip_means_the_same_for_few_and_for_many_numbers(bins: int) -> None:
    """A value out of range counts as the nearest one, and drawn values stay inside."""
    declared = {"stay": {"type": "integer", "minimum": 1, "maximum": 14, "clip": True}}
    domain = propose_domain(declared, bins=bins)
    records = Records.read({"stay": [-3, 0, 1, 14, 15, 99]}, domain)
    first = records.codes[0][0]
    last = records.codes[0][-1]
    assert records.codes[0].tolist() == [first, first, first, last, last, last]
    declared_bins = domain.attributes[0].bins
    assert declared_bins is not None and declared_bins.clip and Domain.from_json(domain.to_json()) == domain
    drawn = declared_bins.sample_values(records.codes[0], np.full(6, 0.999))
    assert min(drawn) >= 1 and max(drawn) == 14 and all(isinstance(value, int) for value in drawn)
