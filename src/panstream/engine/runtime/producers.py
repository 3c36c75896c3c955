"""Producers: named senders whose batches are applied exactly once, in the order of their numbers.

The batches of a producer are numbered 1, 2, 3, ... and applied in this order, over any number of connections. A
producer is identified by its token and its name. Each opening returns a new id, which its batches must carry, and
fences the previous one: a batch that a crashed sender left in flight cannot be applied after its successor's. When a
producer is closed, or retired after a round without batches, its position is deleted, so that it is unknown whether
an old batch was counted; batches under its old ids are rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Self

from panstream.errors import InvalidParameter, ProducerFenced
from panstream.primitives.noise.entropy import random_id

NAME_PATTERN = r"^[A-Za-z0-9._:-]{1,64}$"
ID_PATTERN = r"^[A-Za-z0-9._:-]{1,64}@[0-9a-f]{16}$"
ROUND = 7  # days; a producer that sends nothing during a whole round is retired at its end

_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a batch: the token's name, and the producer's id from its opening."""

    token: str
    id: str


@dataclass(slots=True)
class _Producer:
    """An open producer. Its last applied batch is stored under ``position_key``, which outlives reopening."""

    name: str
    id: str
    position_key: str
    active: bool = True  # in this round


@dataclass(slots=True)
class Producers:
    """The open producers of every token."""

    retirement_round: int | None = None  # the day on which the current round began
    _tokens: dict[str, dict[str, _Producer]] = field(default_factory=dict)

    def open(self, token: str, name: str, max_producers: int) -> _Producer:
        """Open a producer, or reopen it under a new id.

        Raises:
            ProducerFenced: ``max_producers`` are open under this token already.
        """
        if _NAME.fullmatch(name) is None:
            raise InvalidParameter(f"the name of a producer must match {NAME_PATTERN}")
        token_producers = self._tokens.get(token, {})
        producer = token_producers.get(name)
        if producer is None and len(token_producers) >= max_producers:
            raise ProducerFenced(
                f"{max_producers:,} producers are open under this token: close some, or wait until unused ones "
                "are retired",
                code="too_many_producers",
            )
        producer_key = f"{name}@{random_id(8).hex()}"
        if producer is None:
            producer = self._tokens.setdefault(token, {})[name] = _Producer(
                name, producer_key, f"{token}/{producer_key}"
            )
        producer.id = producer_key
        producer.active = True
        return producer

    def find(self, token: str, name: str) -> _Producer:
        """Return a producer that is open under a token, or raise ProducerFenced."""
        producer = self._tokens.get(token, {}).get(name)
        if producer is None:
            raise ProducerFenced("no producer of this name is open under this token", code="not_found")
        return producer

    def all_of(self, token: str) -> list[_Producer]:
        """Return the producers that are open under a token, by name."""
        return [producer for _, producer in sorted(self._tokens.get(token, {}).items())]

    def position_key(self, sender: Sender) -> str:
        """Return the position key of a batch's producer, or raise ProducerFenced if its id is not the current one."""
        producer = self._tokens.get(sender.token, {}).get(sender.id.rpartition("@")[0])
        if producer is None or producer.id != sender.id:
            raise ProducerFenced(
                "this producer was closed, retired or reopened, or never opened under this token; whether earlier "
                "batches were counted is unknown, and this one was not: open it again",
                code="unknown_producer",
            )
        producer.active = True
        return producer.position_key

    def close(self, token: str, name: str) -> str:
        """Remove a producer, and return its position key, whose position the caller must delete."""
        self.find(token, name)
        producer_key = self._tokens[token].pop(name).position_key
        if not self._tokens[token]:
            del self._tokens[token]
        return producer_key

    def retire(self, day: int) -> list[str]:
        """Remove the producers that were idle for a round that is over by ``day``; return their position keys."""
        if self.retirement_round is None or day < self.retirement_round:  # a clock that was set back starts a round
            self.retirement_round = day
        if day < self.retirement_round + ROUND:
            return []
        self.retirement_round = day
        idle = [
            (token, name)
            for token, token_producers in self._tokens.items()
            for name, producer in token_producers.items()
            if not producer.active
        ]
        producer_keys = [self.close(token, name) for token, name in idle]
        for token_producers in self._tokens.values():
            for producer in token_producers.values():
                producer.active = False
        return producer_keys

    def to_json(self) -> dict[str, Any]:
        """Return the producers as JSON values."""
        tokens = {
            token: {
                name: [producer.id, producer.position_key, producer.active]
                for name, producer in token_producers.items()
            }
            for token, token_producers in self._tokens.items()
        }
        return {"round": self.retirement_round, "tokens": tokens}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Rebuild the producers from ``to_json``."""
        tokens = {
            token: {name: _Producer(name, *fields) for name, fields in token_producers.items()}
            for token, token_producers in data["tokens"].items()
        }
        return cls(data["round"], tokens)
