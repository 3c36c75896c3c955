"""Noisy majority voting (002, Algorithm 3.6)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from panstream.errors import InvalidParameter
from panstream.federated.analyst import Federation
from panstream.federated.answers import Choice
from panstream.federated.mechanisms import families
from panstream.federated.methods.checks import check_common, check_split
from panstream.federated.methods.parameters import learn_parameters
from panstream.federated.methods.result import FederatedModel, finish
from panstream.federated.questions import Vote

__all__ = ["MajorityVoting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MajorityVoting:
    """The structure grows by votes: every holder names one (child, parents) by the exponential mechanism, most votes win.

    **Privacy.** Pure epsilon towards every record, replace-one: N - 1 votes share ``split·epsilon``, the tables the rest.
    Every holder scales its choices by the sensitivity at *its own* number of records; with the pooled number, as the thesis
    can be read, ten holders would lose 7.7 times what is claimed.

    Ties go to the vote of the holder named first.
    """

    epsilon: float
    degree: int = 1
    root: int = 0
    split: float = 0.5

    def __post_init__(self) -> None:
        check_common(self.epsilon, self.degree)
        check_split(self.split)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask N - 1 times for a vote and once for tables."""
        count = len(federation.domain)
        placed, agreed = [self.root], 0
        parents: list[tuple[int, ...]] = [()] * count
        share = self.split * self.epsilon / max(count - 1, 1)
        while len(placed) < count:
            allowed = set(families(placed, self.degree, count))
            question = Vote(
                run=federation.run, domain=federation.schema, placed=tuple(placed), degree=self.degree, epsilon=share
            )

            def known(found: Choice, _: object, allowed: set[tuple[int, tuple[int, ...]]] = allowed) -> None:
                if (found.child, found.parents) not in allowed:
                    raise InvalidParameter("it voted for a family that was not up for election")

            votes = Counter((vote.child, vote.parents) for _, vote in federation.ask(question, Choice, known))
            (winner, most), *_ = votes.most_common(1)
            agreed += most > 1
            child, parents[child] = winner
            placed.append(child)
            federation.report(f"placed {len(placed)} of {count} attributes")
        network = learn_parameters(federation, placed, tuple(parents), self.degree, (1 - self.split) * self.epsilon)
        return finish(federation, network, "majority voting", epsilon=self.epsilon, rounds_with_agreement=agreed)
