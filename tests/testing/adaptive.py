"""An adversary who chooses every input after seeing what came out before: exact losses of shipped code, over all
strategies.

Two worlds run the same code. At every step the adversary picks a pair of steps, one for each world, which differ in
what one unit does; then both show an output, and she goes on with the one she sees. Once, whenever she likes, she looks
at the state. What is computed is the largest loss over all her strategies, by recursion over what she has seen: exact,
with rational probabilities. It takes as long as it sounds: four steps of a tiny instance.

For pure epsilon the answer is that of fixed streams, by proof (docs/proofs/adaptive.md). With a delta it need not be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from panstream.errors import InvalidParameter
from panstream.primitives.noise.distributions import exp_fraction
from panstream.testing.enumeration import Enumerator, Key, Step
from panstream.testing.sources import outcomes

Choices = Sequence[Sequence[tuple[Step, Step]]]  # at every time the pairs of steps that the adversary may take
Node = dict[Key, tuple[Fraction, Fraction]]  # hidden states, with their weight in both worlds and what was seen so far

_MOST_STEPS = 4
_NOTHING = Fraction(0)


def adaptive_loss(enumerator: Enumerator, choices: Choices, *, look_from: int | None = 0) -> float:
    """Return the largest log-ratio between the worlds of anything that can be seen under any strategy.

    The look may come after ``look_from`` steps or later; None: there is none.
    """
    ratio = _ratio(enumerator, _start(enumerator, choices), choices, _late(choices, look_from))
    return math.inf if ratio is None else math.log(ratio.numerator) - math.log(ratio.denominator)


def adaptive_delta(enumerator: Enumerator, choices: Choices, epsilon: float, *, look_from: int | None = 0) -> Fraction:
    """Return the smallest delta at ``epsilon`` against the best strategy: sum over views of (P - e**epsilon·P')⁺."""
    growth = exp_fraction(Fraction(epsilon))
    return _excess(enumerator, _start(enumerator, choices), choices, growth, _late(choices, look_from))


def _late(choices: Choices, look_from: int | None) -> int:
    """Return how many steps may be left when the look comes; -1 if it never does."""
    return -1 if look_from is None else len(choices) - look_from


def _start(enumerator: Enumerator, choices: Choices) -> Node:
    if len(choices) > _MOST_STEPS:
        raise InvalidParameter(f"choices must be of at most {_MOST_STEPS} steps, got {len(choices)}")
    node: Node = {}
    for weight, state in outcomes(enumerator.algorithm.initial_state, enumerator.window):
        _add(node, enumerator.remember(state), weight, weight)
    return node


def _excess(enumerator: Enumerator, node: Node, choices: Choices, growth: Fraction, late: int) -> Fraction:
    if not choices:
        first, second = _weights(node)
        best = max(first - growth * second, _NOTHING)
    else:
        best = max(
            sum((_excess(enumerator, child, choices[1:], growth, late) for child in children), _NOTHING)
            for children in (_children(enumerator, node, pair) for pair in choices[0])
        )
    if len(choices) <= late:
        seen = (_excess(enumerator, each, choices, growth, -1) for each in _apart(node))
        best = max(best, sum(seen, _NOTHING))
    return best


def _ratio(enumerator: Enumerator, node: Node, choices: Choices, late: int) -> Fraction | None:
    """Return the largest ratio below a node; None if it has no bound."""
    found: list[Fraction | None] = []
    if not choices:
        first, second = _weights(node)
        found.append(None if not first or not second else max(first / second, second / first))
    for pair in choices[0] if choices else ():
        found += [_ratio(enumerator, child, choices[1:], late) for child in _children(enumerator, node, pair)]
    if len(choices) <= late:
        found += [_ratio(enumerator, each, choices, -1) for each in _apart(node)]
    known = [ratio for ratio in found if ratio is not None]
    return max(known) if len(known) == len(found) else None


def _children(enumerator: Enumerator, node: Node, pair: tuple[Step, Step]) -> list[Node]:
    """Return what may be seen next, each with the states behind it. An announced look comes before its refresh."""
    if pair[0].verb != pair[1].verb:
        raise InvalidParameter("both worlds must do the same thing: an update, a release, a tick or a refresh")
    found: dict[tuple[int, Key], Node] = {}
    for number, shown in enumerate(_apart(node) if pair[0].verb == "refresh" else [node]):
        for key, (first, second) in shown.items():
            for chance, after, output in enumerator.moves(key, pair[0]):
                _add(found.setdefault((number, output), {}), after, first * chance, _NOTHING)
            for chance, after, output in enumerator.moves(key, pair[1]):
                _add(found.setdefault((number, output), {}), after, _NOTHING, second * chance)
    return list(found.values())


def _apart(node: Node) -> list[Node]:
    return [{key: weights} for key, weights in node.items()]


def _weights(node: Node) -> tuple[Fraction, Fraction]:
    return sum((w for w, _ in node.values()), _NOTHING), sum((w for _, w in node.values()), _NOTHING)


def _add(node: Node, key: Key, first: Fraction, second: Fraction) -> None:
    before = node.get(key, (_NOTHING, _NOTHING))
    node[key] = (before[0] + first, before[1] + second)
