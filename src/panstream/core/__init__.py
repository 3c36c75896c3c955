"""Protocols and types for writing an algorithm: what it implements, what it returns, and the noise it draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.core.algorithm import Algorithm as Algorithm
    from panstream.core.algorithm import Continual as Continual
    from panstream.core.estimate import Estimate as Estimate
    from panstream.core.estimate import Estimates as Estimates
    from panstream.core.monitor import Monitor as Monitor
    from panstream.core.registry import register as register
    from panstream.core.shardable import Shardable as Shardable
    from panstream.core.shardable import ShardableTables as ShardableTables
    from panstream.primitives.codec import FieldLayout as FieldLayout
    from panstream.primitives.codec import noise as noise
    from panstream.primitives.codec import noised as noised
    from panstream.primitives.codec import public as public
    from panstream.primitives.codec import published as published
    from panstream.primitives.noise import Coin as Coin
    from panstream.primitives.noise import DiscreteGaussian as DiscreteGaussian
    from panstream.primitives.noise import DiscreteLaplace as DiscreteLaplace
    from panstream.primitives.noise import NoiseSource as NoiseSource
    from panstream.primitives.noise import SeededSource as SeededSource
    from panstream.primitives.noise import SelectionRate as SelectionRate

_EXPORTS = {
    "panstream.core.algorithm": "Algorithm Continual",
    "panstream.core.estimate": "Estimate Estimates",
    "panstream.core.monitor": "Monitor",
    "panstream.core.registry": "register",
    "panstream.core.shardable": "Shardable ShardableTables",
    "panstream.primitives.codec": "FieldLayout noise noised public published",
    "panstream.primitives.noise": "Coin DiscreteGaussian DiscreteLaplace NoiseSource SeededSource SelectionRate",
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
