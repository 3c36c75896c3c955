"""JSON gives the same network back to the last bit, and refuses anything foreign, damaged or too new."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidBytes
from panstream.models.networks import (
    BayesianNetwork,
    Bins,
    Domain,
    from_bif,
    from_json,
    load,
    save,
    seven_attributes,
    to_bif,
    to_json,
)
from panstream.models.networks.serialization import read_metadata
from tests.models.networks.models import random_network

ROOT = Path(__file__).parents[3]


def same(one: BayesianNetwork, two: BayesianNetwork) -> bool:
    return (
        one.domain == two.domain
        and one.parents == two.parents
        and all(np.array_equal(a, b) for a, b in zip(one.tables, two.tables, strict=True))
    )


@given(st.integers(0, 2**32), st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_json_and_bif_give_the_same_network_back(seed: int, sizes: list[int]) -> None:
    network = random_network(seed, tuple(sizes), 3)
    assert same(from_json(to_json(network)), network)
    again = from_bif(to_bif(network))
    assert again.domain == network.domain
    assert again.parents == network.parents
    assert all(np.allclose(a, b, rtol=1e-14, atol=0) for a, b in zip(again.tables, network.tables, strict=True))


def test_names_of_all_kinds_survive() -> None:
    labels = ["[0-10)", "a b", 'say "hi"', "ü", "x;y", "x|y", "{}", "//", "A", "a", "table", ""]
    domain = Domain(
        {"income>50K": labels, "income_50K": ["?", "!"], "Income>50k": Bins([0, 1, 2])}, missing={"income_50K": "?"}
    )
    flat = [np.full(size, 1 / size) for size in domain.sizes]
    network = BayesianNetwork(domain, ((), (0,), ()), (flat[0], np.tile(flat[1], (12, 1)), flat[2]))
    assert same(from_json(to_json(network)), network)
    again = from_bif(to_bif(network))
    assert again.domain.names == domain.names
    assert [again.domain.labels(at) for at in range(3)] == [domain.labels(at) for at in range(3)]


def test_files_by_their_ending(tmp_path: Path) -> None:
    network = seven_attributes()
    for name in ("model.json", "model.BIF"):
        save(network, tmp_path / name, {"epsilon": 1.0})
        assert np.allclose(load(tmp_path / name).joint(), network.joint(), rtol=1e-14)
    assert read_metadata((tmp_path / "model.json").read_text()) == {"epsilon": 1.0}
    assert (tmp_path / "model.BIF").read_text().startswith("network panstream {")


def test_the_golden_file_is_read_for_ever() -> None:
    """The first version of the format, as it was written then."""
    network = load(ROOT / "tests" / "golden" / "network-1.json")
    assert network.domain.names == ("sex", "age")
    assert network.domain.attributes[0].missing == 2
    assert network.parents == ((), (0,))
    assert network.tables[1].tolist() == [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]]


TEXT = to_json(random_network(1, (2, 3), 1), {"note": "x"})


@given(st.integers(0, len(TEXT) - 1), st.sampled_from('01x"[]{},:-. '))
def test_any_change_of_one_letter_is_refused(at: int, letter: str) -> None:
    changed = TEXT[:at] + letter + TEXT[at + 1 :]
    if json_equal(changed, TEXT):
        return
    with pytest.raises(InvalidBytes):
        from_json(changed)


def json_equal(one: str, two: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(two))
    except ValueError:
        return False


def resealed(**changes: object) -> str:
    """Return the text with other content and a checksum that fits."""
    import hashlib

    content = {**json.loads(TEXT), **changes}
    content.pop("sha256")
    canonical = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return json.dumps({**content, "sha256": hashlib.sha256(canonical.encode()).hexdigest()})


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"format": "other"},
        {"domain": None},
        {"parents": [["a1"], ["a0"]]},
        {"parents": [["zz"], []]},
        {"parents": [[0], []]},
        {"parents": [[]]},
        {"tables": [[0.5, 0.5], [1.0]]},
        {"tables": [["a"], ["b"]]},
        {"tables": [[0.5, 0.4], [1, 0, 0, 1, 0, 0]]},
        {"tables": [[10**400, 0.5], [1, 0, 0, 1, 0, 0]]},
        {"tables": [[float("nan"), 0.5], [1, 0, 0, 1, 0, 0]]},
        {"domain": {**json.loads(TEXT)["domain"], "attributes": [{"name": "a", "edges": [0, 10**400]}]}},
        {"about": 3},
    ],
    ids=lambda changes: json.dumps(changes)[:60],
)
def test_checked_content_is_looked_at_all_the_same(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidBytes):
        read_metadata(resealed(**changes)) if "about" in changes else from_json(resealed(**changes))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "nonsense", "[" * 100_000], ids=["empty", "list", "map", "word", "deep"]
)
def test_foreign_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidBytes):
        from_json(text)


BIF = to_bif(random_network(1, (2, 3), 1))


@given(st.integers(0, len(BIF) - 1), st.integers(0, 40), st.text('{}()|,;" 0.5xprobability', max_size=4))
def test_damaged_bif_is_refused_or_read_but_nothing_else(at: int, cut: int, put: str) -> None:
    try:
        read = from_bif(BIF[:at] + put + BIF[at + cut :])
    except InvalidBytes:
        return
    assert all(np.allclose(table.sum(axis=-1), 1.0) for table in read.tables)


def test_bif_of_other_programs() -> None:
    """Quotes, comments, properties, the table form with several parents, and defaults."""
    text = """
    // by hand
    network "dogs" { property author someone; }
    variable "out" { type discrete[2] { "no" "yes" }; property position = (1, 2); }
    variable light { type discrete [ 2 ] { no, yes }; }
    variable bark { type discrete [ 2 ] { no, yes }; }
    probability ( "out" ) { table 0.75 0.25; }
    /* rare */ probability ( light | out ) { default 0.5, 0.5; }
    probability ( bark | out, light ) { table 0.1 0.2 0.3 0.4 0.9 0.8 0.7 0.6; }
    """
    network = from_bif(text)
    assert network.domain.names == ("out", "light", "bark")
    assert network.parents == ((), (0,), (0, 1))
    assert network.tables[1].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert np.allclose(network.tables[2][..., 0], [[0.1, 0.2], [0.3, 0.4]])
