"""The answers of RETENTION(user, k): what is published each time a window closes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from panstream.engine.sql.formulas import OWN, Formula, StateValue

MAX_LAGS = 12
USUAL_LAGS = 4
Kind = Literal["users", "new", "back", "rate"]


@dataclass(frozen=True, slots=True)
class RetentionAnswer:
    """One answer about a window that has closed.

    Attributes:
        kind: "users", all users of the window; "new", those who did not come in the window before; "back", those of the
            window ``lag`` windows earlier who came again in it; "rate", the share of users who come again ``lag``
            windows later, over all recent windows.
        lag: How many windows lie between; 0 for "users" and "new".
    """

    kind: Kind
    lag: int = 0

    @property
    def name(self) -> str:
        """Return the name of the answer, such as ``back_2``."""
        return f"{self.kind}_{self.lag}" if self.lag else self.kind

    @property
    def formula(self) -> Formula:
        """Return which released number of the state it is."""
        what = f"{self.kind} {self.lag}" if self.lag else self.kind
        return OWN if self.kind == "users" else StateValue(what)

    @classmethod
    def named(cls, name: str) -> RetentionAnswer:
        """Return the answer of a name.

        >>> RetentionAnswer.named("back_2")
        RetentionAnswer(kind='back', lag=2)
        """
        kind, _, lag = name.partition("_")
        return cls(kind, int(lag or 0))  # type: ignore[arg-type]


def retention_answers(lags: int) -> list[RetentionAnswer]:
    """Return all answers, in the order in which they are published.

    >>> [answer.name for answer in retention_answers(2)]
    ['users', 'new', 'back_1', 'back_2', 'rate_1', 'rate_2']
    """
    steps = range(1, lags + 1)
    backs = [RetentionAnswer("back", lag) for lag in steps]
    return [RetentionAnswer("users"), RetentionAnswer("new"), *backs, *(RetentionAnswer("rate", lag) for lag in steps)]
