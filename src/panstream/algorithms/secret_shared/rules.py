"""All rules of shares, and the one that public parameters describe."""

from __future__ import annotations

from typing import Any, TypeAlias

from panstream.algorithms.secret_shared.counted_bits import NoisyBitCounts
from panstream.algorithms.secret_shared.retained_bits import RetainedBits
from panstream.algorithms.secret_shared.running_sums import NoisyRunningSums
from panstream.algorithms.secret_shared.share_rules import OverwrittenBits, SaturatingCounters
from panstream.errors import InvalidParameter
from panstream.primitives.noise import DiscreteLaplace

_MAX_SHARE_BYTES = 1 << 32

Rule: TypeAlias = OverwrittenBits | NoisyRunningSums | NoisyBitCounts
"""How a state is shared and updated; `SaturatingCounters` and `RetainedBits` are kinds of `OverwrittenBits`."""
_RULES: dict[str, type[Rule]] = {
    "overwritten": OverwrittenBits,
    "moved": SaturatingCounters,
    "retained": RetainedBits,
    "summed": NoisyRunningSums,
    "counted": NoisyBitCounts,
}


def rule_from_parameters(kind: str, parameters: dict[str, Any]) -> Rule:
    """Return the rule that public parameters received from another process describe.

    Raises:
        InvalidParameter: There is no such rule, or its parameters are out of range.
    """
    try:
        # Checked before anything is drawn or allocated: sampling with a negative decay rate would not terminate.
        noises = {name: value for name, value in parameters.items() if name in ("noise", "pair_noise")}
        sizes = parameters.keys() - noises.keys() - {"radices"}
        if not all(_is_size(parameters[name]) for name in sizes) or "noise" not in noises:
            raise TypeError
        if not all(_is_size(radix) for radix in parameters.get("radices", ())):
            raise TypeError
        for noise in noises.values():
            if noise is not None and not (type(noise) is int and 0 < noise < 1 << 62):
                raise TypeError
        laws = {name: DiscreteLaplace(noise) for name, noise in noises.items()}
        rule: Rule = _RULES[kind](**{**parameters, **laws})
        if rule.size > _MAX_SHARE_BYTES:
            raise TypeError
    except (AttributeError, KeyError, TypeError):
        raise InvalidParameter(f"unknown rule {kind!r}, or unknown parameters of it") from None
    return rule


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40
