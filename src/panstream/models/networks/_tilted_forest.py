"""Tilted copies of one forest: all their one- and two-way tables, and gradients through those tables.

Component k multiplies the forest's table of attribute i by a weight for each category of i and normalises it:
P_k(x | parent) is proportional to F(x | parent)·exp(tilt_k(x)). Without edges that is a mixture of products.

Attributes of different trees are independent within a component, so their tables are one matrix product. Within a tree
an attribute's table with all earlier ones is its conditional table times its parent's; derivatives are accumulated in
reverse order. A tree of D categories in all takes K·D²·(size of an attribute) operations.
"""

from __future__ import annotations

import itertools
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
    """The weighted tables of all components together, with the intermediate values that the gradient needs."""

    weights: Floats
    parts: Floats  # K x D: one-way tables of each component
    conditionals: dict[int, Floats]  # K x parent x child, for attributes with a parent
    joints: tuple[Floats | None, ...]  # for each tree of two attributes or more, K x D_tree x D_tree
    ones: Floats
    pairs: Floats


class TiltedForest:
    """The part that all components share: attribute sizes, their parents (or None), and the forest's log tables.

    ``logs[i]`` is log F of attribute i: one axis for a root, two, parent first, for others. ``offsets[i]`` are its
    columns within its tree, ``blocks[i]`` those among all attributes.
    """

    def __init__(self, sizes: Sequence[int], parents: Sequence[int | None], tables: Sequence[Floats]) -> None:
        self.parents = tuple(parents)
        self.logs = tuple(np.log(np.maximum(table, _TINY)) for table in tables)
        self.blocks = category_blocks(sizes)
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
        every = np.arange(sum(sizes))
        self.columns = [np.concatenate([every[self.blocks[attribute]] for attribute in tree]) for tree in self.trees]
        self.offsets: list[slice] = [slice(0)] * len(order)
        for tree in self.trees:
            tree_blocks = category_blocks([sizes[attribute] for attribute in tree])
            for attribute, block in zip(tree, tree_blocks, strict=True):
                self.offsets[attribute] = block

    @classmethod
    def of(cls, forest: BayesianNetwork) -> TiltedForest:
        """Return the tilted forest of a network in which no attribute has two parents."""
        return cls(forest.domain.sizes, [family[0] if family else None for family in forest.parents], forest.tables)

    @property
    def edges(self) -> int:
        """Return the number of attributes that have a parent."""
        return len(self.parents) - len(self.trees)

    @property
    def largest_tree(self) -> int:
        """Return the number of categories of the largest tree."""
        return max(columns.size for columns in self.columns)

    def untilted(self) -> ForwardPass:
        """Return the tables of the forest itself."""
        return self.tables(np.ones(1), np.zeros((1, self.blocks[-1].stop)))

    def tables(self, weights: Floats, tilts: Floats) -> ForwardPass:
        """Return the tables for weights (K) and tilts (K x D), in the floating-point type of the tilts."""
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
                span = self.offsets[attribute]
                if parent is None:
                    parts[:, block] = _softmax(logs[attribute] + tilts[:, block])
                else:
                    conditional = conditionals[attribute] = _softmax(logs[attribute] + tilts[:, None, block])
                    parts[:, block] = np.matmul(parts[:, None, self.blocks[parent]], conditional)[:, 0]
                    assert joint is not None
                    rows = conditional.transpose(0, 2, 1) @ joint[:, self.offsets[parent], : span.start]
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
        """Propagate derivatives from the last attribute of a tree to its root, accumulating them in ``by_joint``.

        Only the part of ``by_joint`` below the diagonal is read: ``joint`` is symmetric and each pair counts once.
        """
        for attribute in reversed(tree[1:]):
            parent = self.parents[attribute]
            assert parent is not None
            block = self.blocks[attribute]
            above = self.blocks[parent]
            span = self.offsets[attribute]
            higher = self.offsets[parent]
            conditional = tables.conditionals[attribute]
            slope = by_joint[:, span, : span.start]
            by_conditional = joint[:, higher, : span.start] @ slope.transpose(0, 2, 1)
            by_conditional += tables.parts[:, above, None] * by_part[:, None, block]
            upward = conditional @ slope
            by_part[:, above] += (conditional @ by_part[:, block, None])[:, :, 0]
            by_part[:, above] += np.einsum("kii->ki", upward[:, :, higher])
            by_joint[:, higher, : higher.start] += upward[:, :, : higher.start]
            by_joint[:, higher.stop : span.start, higher] += upward[:, :, higher.stop :].transpose(0, 2, 1)
            by_tilt[:, block] = _through_softmax(conditional, by_conditional).sum(axis=1)


def category_blocks(sizes: Sequence[int]) -> list[slice]:
    """Return the columns of each attribute's categories, where all attributes' categories follow each other."""
    ends = itertools.accumulate(sizes)
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _softmax(logs: Floats) -> Floats:
    exponentials = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def _through_softmax(values: Floats, slopes: Floats) -> Floats:
    return np.asarray(values * (slopes - (values * slopes).sum(axis=-1, keepdims=True)))
