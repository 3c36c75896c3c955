"""Tilted copies of one forest: all their one- and two-way tables, and the gradient of anything computed from those.

Component k multiplies the forest's table of attribute i by a weight for each category of i and makes it a distribution
again: P_k(x | parent) is in proportion to F(x | parent)·exp(tilt_k(x)). Without edges that is a mixture of products.

Attributes of different trees are independent within a component, so their tables are one matrix product. Within a tree
an attribute's table with all earlier ones is its conditional table times its parent's; derivatives run the same way
backwards (reverse accumulation). A tree of D categories in all costs K·D²·(size of an attribute) operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks.network import BayesianNetwork, topological_order

Floats = NDArray[np.floating[Any]]
_TINY = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class ForwardPass:
    """Weights, tables of the components and what they give together; what is needed to go back is kept."""

    weights: Floats
    parts: Floats  # K x D: one-way tables of each component
    conditionals: dict[int, Floats]  # K x parent x child, for attributes with a parent
    joints: tuple[Floats | None, ...]  # for each tree of two attributes or more, K x D_tree x D_tree
    ones: Floats
    pairs: Floats


class TiltedForest:
    """The fixed part: sizes of the attributes, the parent of each or None, and log tables of the forest.

    ``logs[i]`` is log F of attribute i: one axis for a root, two, parent first, for others.
    """

    def __init__(self, sizes: Sequence[int], parents: Sequence[int | None], tables: Sequence[Floats]) -> None:
        self.parents = tuple(parents)
        self.logs = tuple(np.log(np.maximum(table, _TINY)) for table in tables)
        ends = np.cumsum(sizes)
        self.blocks = [slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]
        order = topological_order(tuple(() if parent is None else (parent,) for parent in parents))
        roots: dict[int, int] = {}
        for attribute in order:
            parent = self.parents[attribute]
            roots[attribute] = attribute if parent is None else roots[parent]
        self.trees = [
            [attribute for attribute in order if roots[attribute] == root]
            for root in order
            if self.parents[root] is None
        ]
        every = np.arange(ends[-1])
        self.columns = [np.concatenate([every[self.blocks[attribute]] for attribute in tree]) for tree in self.trees]
        self.places: list[slice] = [slice(0)] * len(order)  # of each attribute within its tree
        for tree in self.trees:
            start = 0
            for attribute in tree:
                self.places[attribute] = slice(start, start + sizes[attribute])
                start += sizes[attribute]

    @classmethod
    def of(cls, forest: BayesianNetwork) -> TiltedForest:
        """Return what tilts the tables of a network in which nothing has two parents."""
        return cls(forest.domain.sizes, [family[0] if family else None for family in forest.parents], forest.tables)

    @property
    def edges(self) -> int:
        """Return the number of edges."""
        return len(self.parents) - len(self.trees)

    @property
    def largest_tree(self) -> int:
        """Return the number of categories of the tree that has most."""
        return max(columns.size for columns in self.columns)

    def untilted(self) -> ForwardPass:
        """Return the tables of the forest itself."""
        return self.tables(np.ones(1), np.zeros((1, self.blocks[-1].stop)))

    def tables(self, weights: Floats, tilts: Floats) -> ForwardPass:
        """Return everything for weights (K) and tilts (K x D), with as many digits as the tilts have."""
        parts = np.empty_like(tilts)
        conditionals = {}
        joints = []
        logs = [log_table.astype(tilts.dtype, copy=False) for log_table in self.logs]
        for tree, columns in zip(self.trees, self.columns, strict=True):
            shape = (len(tilts), columns.size, columns.size)
            joint = np.zeros(shape, tilts.dtype) if len(tree) > 1 else None
            for attribute in tree:
                block = self.blocks[attribute]
                parent = self.parents[attribute]
                span = self.places[attribute]
                if parent is None:
                    parts[:, block] = _softmax(logs[attribute] + tilts[:, block])
                else:
                    conditional = conditionals[attribute] = _softmax(logs[attribute] + tilts[:, None, block])
                    parts[:, block] = np.matmul(parts[:, None, self.blocks[parent]], conditional)[:, 0]
                    assert joint is not None
                    rows = conditional.transpose(0, 2, 1) @ joint[:, self.places[parent], : span.start]
                    joint[:, span, : span.start] = rows
                    joint[:, : span.start, span] = rows.transpose(0, 2, 1)
                if joint is not None:
                    diagonal = np.arange(span.start, span.stop)
                    joint[:, diagonal, diagonal] = parts[:, block]
            joints.append(joint)
        pairs = parts.T @ (weights[:, None] * parts)
        for columns, joint in zip(self.columns, joints, strict=True):
            if joint is not None:
                within = (weights @ joint.reshape(len(weights), -1)).reshape(joint.shape[1:])
                pairs[np.ix_(columns, columns)] = within
        return ForwardPass(weights, parts, conditionals, tuple(joints), weights @ parts, pairs)

    def gradient(self, tables: ForwardPass, ones: Floats, pairs: Floats) -> tuple[Floats, Floats]:
        """Return derivatives by weights and tilts, given those by ``ones`` and by the upper half of ``pairs``.

        ``pairs`` is symmetric, each entry the derivative by that cell, with zeros in the blocks of one attribute.
        """
        weights = tables.weights
        parts = tables.parts
        between = pairs.copy()
        for tree, columns in zip(self.trees, self.columns, strict=True):
            if len(tree) > 1:
                between[np.ix_(columns, columns)] = 0.0
        pulled = parts @ between
        by_weight = 0.5 * (parts * pulled).sum(axis=1) + parts @ ones
        by_part = (pulled + ones) * weights[:, None]
        by_tilt = np.empty_like(parts)
        for tree, columns, joint in zip(self.trees, self.columns, tables.joints, strict=True):
            if joint is not None:
                slope = pairs[np.ix_(columns, columns)]
                by_weight += 0.5 * joint.reshape(len(weights), -1) @ slope.reshape(-1)
                self._backward(tree, tables, joint, weights[:, None, None] * slope, by_part, by_tilt)
            root = self.blocks[tree[0]]
            by_tilt[:, root] = _through_softmax(parts[:, root], by_part[:, root])
        return by_weight, by_tilt

    def _backward(
        self,
        tree: Sequence[int],
        tables: ForwardPass,
        joint: Floats,
        by_joint: Floats,
        by_part: Floats,
        by_tilt: Floats,
    ) -> None:
        """Go from the last attribute of a tree to its root; below the diagonal ``by_joint`` gathers derivatives."""
        for attribute in reversed(tree[1:]):
            parent = self.parents[attribute]
            assert parent is not None
            block = self.blocks[attribute]
            above = self.blocks[parent]
            span = self.places[attribute]
            higher = self.places[parent]
            conditional = tables.conditionals[attribute]
            slope = by_joint[:, span, : span.start]
            by_given = joint[:, higher, : span.start] @ slope.transpose(0, 2, 1)
            by_given += tables.parts[:, above, None] * by_part[:, None, block]
            upward = conditional @ slope
            by_part[:, above] += (conditional @ by_part[:, block, None])[:, :, 0]
            by_part[:, above] += np.einsum("kii->ki", upward[:, :, higher])
            by_joint[:, higher, : higher.start] += upward[:, :, : higher.start]
            by_joint[:, higher.stop : span.start, higher] += upward[:, :, higher.stop :].transpose(0, 2, 1)
            by_tilt[:, block] = _through_softmax(conditional, by_given).sum(axis=1)


def _softmax(logs: Floats) -> Floats:
    exponentials = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def _through_softmax(values: Floats, slopes: Floats) -> Floats:
    return np.asarray(values * (slopes - (values * slopes).sum(axis=-1, keepdims=True)))
