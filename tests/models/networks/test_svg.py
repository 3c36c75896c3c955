"""The picture is well-formed, complete, self-contained, and no two boxes lie upon each other."""

import itertools
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from panstream.models.networks import BayesianNetwork, Domain, seven_attributes, to_svg
from panstream.models.networks.svg import _layered
from tests.models.networks.models import random_network

SVG = "{http://www.w3.org/2000/svg}"


def boxes(text: str) -> dict[str, tuple[float, float, float, float]]:
    found = {}
    for group in ElementTree.fromstring(text).iter(f"{SVG}g"):
        rectangle = group.find(f"{SVG}rect")
        label = group.find(f"{SVG}text")
        assert rectangle is not None and label is not None and label.text is not None
        found[label.text] = tuple(float(rectangle.attrib[key]) for key in ("x", "y", "width", "height"))
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(5))
def test_boxes_are_apart_inside_and_in_the_order_of_the_arrows(seed: int) -> None:
    network = random_network(seed, (2,) * 20, 3)
    text = to_svg(network)
    root = ElementTree.fromstring(text)
    width = float(root.attrib["width"])
    height = float(root.attrib["height"])
    placed = boxes(text)
    assert sorted(placed) == sorted(network.domain.names)
    for x, y, w, h in placed.values():
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
    for (ax, ay, aw, ah), (bx, by, bw, bh) in itertools.combinations(placed.values(), 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay
    for parent, child in network.edges:
        assert placed[f"a{parent}"][0] + placed[f"a{parent}"][2] < placed[f"a{child}"][0]
    arrows = [each for each in root.iter(f"{SVG}path") if each.attrib["class"] == "arrow"]
    assert len(arrows) == len(network.edges)


def test_a_tree_is_drawn_without_crossings() -> None:
    """Arrows between the same two layers keep their order."""
    parents = ((), (0,), (0,), (1,), (2,), (1,), (2,), (1,))
    layout = _layered(parents)
    edges = [(parent, child) for child, family in enumerate(parents) for parent in family]
    for (a, b), (c, d) in itertools.combinations(edges, 2):
        if layout.layers[a] == layout.layers[c]:
            one = layout.heights[a] - layout.heights[c]
            two = layout.heights[b] - layout.heights[d]
            assert one * two >= 0


def test_names_are_escaped_and_nothing_is_loaded() -> None:
    domain = Domain({'<script>"&': ["0", "1"], "x" * 80: ["0", "1"]})
    half = np.array([0.5, 0.5])
    text = to_svg(BayesianNetwork(domain, ((), ()), (half, half)), title="a < b")
    assert "<script>" not in text
    assert ElementTree.fromstring(text)[0].text == "a < b"
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in text


def test_arrows_tell_their_information() -> None:
    text = to_svg(seven_attributes())
    titles = [each.text for each in ElementTree.fromstring(text).iter(f"{SVG}title") if "→" in (each.text or "")]
    assert titles[0] == "X0 → X1: 0.349 bits"
    assert len(titles) == 6
