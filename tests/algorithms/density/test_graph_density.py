"""Graph density: edges are numbered without collision, whatever way they are given."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from panstream import GraphDensity
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.testing.enumeration import Enumerator, enumerate_streams, release, update


@pytest.mark.parametrize("vertices", [2, 3, 10])
def test_edges_are_numbered_one_to_one(vertices: int) -> None:
    graph = GraphDensity(vertices=vertices, epsilon=1.0)
    edges = list(combinations(range(vertices), 2))
    numbers = graph.batch(edges).cells
    assert sorted(numbers) == list(range(len(edges)))
    assert graph.batch([(v, u) for u, v in edges]).cells.tolist() == numbers.tolist()


def test_largest_graph_does_not_overflow() -> None:
    vertices = 1 << 31
    graph = GraphDensity(vertices=vertices, epsilon=1.0, sample=100)
    last = graph.batch([(vertices - 1, vertices - 2), (0, 1)]).cells
    assert last.tolist() == [vertices * (vertices - 1) // 2 - 1, 0]


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 1), (2, 1)],
        np.array([[0, 1], [2, 1]]),
        (np.array([0, 2]), np.array([1, 1])),
        [[1, 0], [1, 2]],
    ],
)
def test_ways_to_give_edges(pairs: Any) -> None:
    monitor = GraphDensity(vertices=3, epsilon=math.inf).start()
    monitor.update(pairs)
    assert monitor.release().value == pytest.approx(2 / 3)


def test_edges_come_and_go() -> None:
    monitor = GraphDensity(vertices=4, epsilon=math.inf, deletions=True).start()
    monitor.update(insert=[(0, 1), (1, 2)], delete=[(1, 0)])
    monitor.update([(2, 3)], weight=[1])
    assert monitor.release().value == pytest.approx(2 / 6)
    with pytest.raises(NotSupported, match="deletions"):
        monitor.refresh()


def test_the_unit_is_an_edge_and_the_loss_exact() -> None:
    graph = GraphDensity(vertices=2, epsilon=1.0)
    assert graph.claim().unit == "edge"
    streams = enumerate_streams([None, None, release()], [update([]), update([(0, 1)])])
    assert Enumerator(graph, window=(-1, 2)).joint_loss(streams).epsilon == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([(0, 1), (2, 2)], "row 1: an edge must join two different"),
        ([(0, 1), (0, 9)], "row 1"),
        ([(0, 1, 2)], "row 0: an edge must be a pair"),
        (np.zeros((2, 3), int), "pairs, a two-column array"),
        ("ab", "pairs, a two-column array"),
        ((np.array([1]), np.array([0, 2])), "two ends"),
    ],
)
def test_bad_edges(pairs: Any, words: str) -> None:
    with pytest.raises(InvalidBatch, match=words):
        GraphDensity(vertices=3, epsilon=1.0).batch(pairs)


def test_bad_vertices() -> None:
    with pytest.raises(InvalidParameter, match="vertices must be in"):
        GraphDensity(vertices=1, epsilon=1.0)
