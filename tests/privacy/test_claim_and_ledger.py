"""Claims say what they promise; ledgers only grow, per unit."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import BudgetExhausted, InvalidBytes, InvalidParameter, UnboundedLoss
from panstream.privacy import Claim, Intrusions, Ledger
from panstream.privacy.claim import Refresh, weak_epsilon_warning


def test_claim_is_json_and_text() -> None:
    claim = Claim(
        epsilon=1.0,
        unit="user",
        parts={"state": 0.9, "output": 0.1},
        intrusions=Intrusions(announced=2),
        locations=("memory", "disk"),
        horizon=100,
        public=("batch sizes",),
    )
    data = json.loads(json.dumps(claim.to_json(), allow_nan=False))
    assert data["epsilon"] == 1.0
    assert data["intrusions"] == {"unannounced": 1, "announced": 2, "per_phase": False}
    text = str(claim)
    for words in ("one user", "1 unannounced and 2 announced", "memory and disk", "batch sizes", "100 ticks"):
        assert words in text


def test_a_claim_says_whether_inputs_may_depend_on_answers() -> None:
    fixed = Claim(epsilon=1.0, unit="user")
    assert fixed.to_json()["inputs"] == "fixed"
    assert dict(fixed.rows())["inputs"] == "do not depend on earlier answers"
    assert "may depend on earlier answers" in str(replace(fixed, inputs="adaptive"))
    assert (fixed.delta, fixed.releases, fixed.horizon, fixed.intrusions) == (0.0, 1, None, Intrusions(unannounced=1))


def test_no_privacy_is_said_in_words() -> None:
    claim = Claim(epsilon=1.0, unit="user").without_privacy("drawn from a test source")
    assert not claim.is_private
    assert claim.to_json()["epsilon"] == "inf"
    assert "no privacy" in str(claim)
    json.dumps(claim.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"epsilon": -1.0}, "epsilon must be at least 0"),
        ({"epsilon": math.nan}, "epsilon must be at least 0"),
        ({"delta": 1.0}, "delta must be in"),
        ({"unit": "person"}, "unit must be one of"),
        ({"adjacency": "swap"}, "adjacency must be"),
        ({"inputs": "any"}, "inputs must be"),
        ({"window": 60.0}, "window must be a length in seconds of unit user-window"),
        ({"unit": "user-window", "window": 0.0}, "window must be"),
        ({"unit": "user-window", "window": math.inf}, "window must be"),
        ({"event_epsilon": 1.5}, "event_epsilon must be"),
        ({"event_epsilon": -0.5}, "event_epsilon must be"),
    ],
)
def test_bad_claims_are_refused(bad: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        Claim(**{"epsilon": 1.0, "unit": "user", **bad})  # type: ignore[arg-type]


def test_units_have_totals_of_their_own() -> None:
    ledger = Ledger({("event", "add-remove"): 12.0})
    ledger.charge("a", Claim(epsilon=1.5, unit="user", delta=1e-9))
    ledger.charge("b", Claim(epsilon=9.0, unit="event"))
    assert ledger.total("event") == (10.5, 1e-9)
    user, event = ledger.totals()
    assert (user.unit, user.epsilon, user.limit, event.unit, event.epsilon) == ("user", math.inf, None, "event", 10.5)
    assert "'b' protects one event" in user.reason
    assert str(ledger) == "no bound on epsilon for one user; epsilon 10.5, delta 1e-09, for one event"
    assert event.parts == (("a", 1.5), ("b", 9.0))
    with pytest.raises(
        BudgetExhausted,
        match=r"epsilon=2 more for one event \(add-remove\) would bring the total to 12.5; the limit is 12",
    ):
        ledger.charge("c", Claim(epsilon=2.0, unit="user-window", window=60.0))
    assert len(ledger) == 2
    ledger.charge("exactly the rest", Claim(epsilon=1.5, unit="user"))
    assert ledger.limit("event") == 12.0
    assert ledger.limit("user") is None


def test_a_limit_that_nothing_bounds_is_refused() -> None:
    ledger = Ledger({("user", "add-remove"): 2.0})
    ledger.charge("a", Claim(epsilon=1.5, unit="user"))
    for claim, words in (
        (
            Claim(epsilon=0.1, unit="event"),
            "'b' protects one event, and nothing bounds how many of them one user touches",
        ),
        (Claim(epsilon=0.1, unit="user-window", window=60.0), "'b' protects one user-window of 1 minute, and nothing"),
        (Claim(epsilon=0.1, unit="user", adjacency="replace"), "'b' protects one user that is replaced"),
    ):
        with pytest.raises(UnboundedLoss, match=words) as refused:
            ledger.charge("b", claim)
        assert refused.value.unit == "user"
    assert len(ledger) == 1


def test_windows_of_different_lengths_do_not_share_a_total() -> None:
    ledger = Ledger({("user-window", "add-remove"): 25.0})
    ledger.charge("daily", Claim(epsilon=1.0, unit="user-window", window=86_400.0))
    ledger.charge("hourly", Claim(epsilon=1.0, unit="user-window", window=3600.0))
    day, hour = ledger.totals()
    assert (day.protects, day.epsilon) == ("user-window of 1 day", 25.0)
    assert (hour.protects, hour.epsilon) == ("user-window of 1 hour", 2.0)
    assert ledger.total("event") == (2.0, 0.0)
    with pytest.raises(
        BudgetExhausted, match="for one user-window of 1 day .add-remove. would bring the total to 26; the limit is 25"
    ):
        ledger.charge("again", Claim(epsilon=1.0, unit="user-window", window=86_400.0))


def test_damaged_ledgers_are_refused() -> None:
    whole = ["a", 1.0, 0.0, "user", "add-remove", None, None]
    assert [name for name, _ in Ledger.from_json({"limits": [], "entries": [whole]})] == ["a"]
    person = [*whole[:3], "person", *whole[4:]]
    swap = [*whole[:4], "swap", *whole[5:]]
    for damaged in ([["a"]], [whole[:-1]], [[*whole, 1.0]], [person], [swap], [[], 3]):
        with pytest.raises(InvalidBytes, match="not a ledger"):
            Ledger.from_json({"limits": [], "entries": damaged})
    with pytest.raises(InvalidBytes, match="not a ledger"):
        Ledger.from_json({"limits": 3})


@given(st.lists(st.tuples(st.text(max_size=9), st.floats(0.0, 9.0)), max_size=8))
def test_ledger_round_trip(charges: list[tuple[str, float]]) -> None:
    ledger = Ledger({("user", "add-remove"): 100.0})
    for name, epsilon in charges:
        ledger.charge(name, Claim(epsilon=epsilon, unit="user"))
    again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))
    assert list(again) == list(ledger)
    assert again.totals() == ledger.totals()


def test_an_infinite_charge_survives_json() -> None:
    ledger = Ledger()
    ledger.charge("test run", Claim(epsilon=math.inf, unit="user"))
    assert Ledger.from_json(json.loads(json.dumps(ledger.to_json(), allow_nan=False))).total("user")[0] == math.inf


@pytest.mark.parametrize(
    ("intrusions", "words"),
    [
        (Intrusions(unannounced=0), "none"),
        (Intrusions(), "1 unannounced, at any time"),
        (Intrusions(unannounced=0, announced=2), "2 announced, at any time"),
        (
            Intrusions(announced=-1, per_phase=True),
            "1 unannounced and any number of announced in every phase, at",
        ),
        (
            Intrusions(announced=1),
            "1 unannounced and 1 announced (the unannounced one after the last refresh), at",
        ),
        (
            Intrusions(announced=1, freezes=True),
            "1 unannounced and 1 announced (the unannounced one after the last refresh); the announced one is covered "
            "only if no row was applied between the copy and the refresh",
        ),
        (
            Intrusions(unannounced=0, announced=2, freezes=True),
            "2 announced; an announced one is covered only if no row was applied between the copy and the refresh",
        ),
        (Intrusions(freezes=True), "1 unannounced, at any time"),
    ],
)
def test_intrusions_in_words(intrusions: Intrusions, words: str) -> None:
    assert str(intrusions).startswith(words)


def test_a_claim_keeps_its_own_parts_and_speaks_of_delta_only_if_there_is_one() -> None:
    parts = {"state": 0.5, "output": 0.5}
    claim = Claim(epsilon=1.0, unit="user", parts=parts)
    parts["state"] = 9.0
    assert claim.parts == {"state": 0.5, "output": 0.5}
    assert "delta" not in dict(claim.rows())
    assert dict(replace(claim, delta=1e-6).rows())["delta"] == "1e-06"


def test_what_is_public_parts_and_losses_without_end_are_told() -> None:
    claim = Claim(epsilon=1.0, unit="user", public=("the key",), parts={"state": 1.0, "output": math.inf})
    assert claim.with_public("the clock", "the number").public == ("the key", "the clock", "the number")
    assert claim.to_json()["parts"] == {"state": 1.0, "output": "inf"}
    assert "1 stored state" in dict(claim.rows())["split"]
    assert "split" not in dict(Claim(epsilon=1.0, unit="user").rows())


def test_rows_of_claims_without_releases_or_with_a_note() -> None:
    rows = dict(Claim(epsilon=1.0, unit="user", releases=0, note="by hand").rows())
    assert rows["releases"] == "0"
    assert rows["note"] == "by hand"
    plain = Claim(epsilon=1.0, unit="user", releases=-1)
    assert dict(plain.rows())["releases"] == "any number"
    assert "note" not in dict(plain.rows())
    assert plain.to_json()["intrusions"]["announced"] == 0
    assert replace(plain, intrusions=Intrusions(unannounced=0)).to_json()["intrusions"]["unannounced"] == 0
    assert replace(plain, intrusions=Intrusions(announced=-1)).to_json()["intrusions"]["announced"] == "any"
    assert "freezes" not in plain.to_json()["intrusions"]
    frozen = replace(plain, intrusions=Intrusions(announced=1, freezes=True))
    assert frozen.to_json()["intrusions"]["freezes"] is True


def test_what_became_of_a_copied_state_in_words() -> None:
    assert str(Refresh(covered=True)) == "covered"
    assert Refresh.too_late(True) == Refresh(False, "rows were applied since")
    assert str(Refresh.too_late(None)) == "not covered: rows may have been applied since"


def test_a_factor_above_e_to_the_twenty_is_warned_of() -> None:
    assert weak_epsilon_warning(20.0) is weak_epsilon_warning(math.inf) is None
    assert "e^20.5" in str(weak_epsilon_warning(20.5))


def test_a_limit_may_be_below_one_and_must_be_above_nothing() -> None:
    ledger = Ledger({("user", "add-remove"): 0.5})
    ledger.charge("a", Claim(epsilon=0.5, unit="user"))
    with pytest.raises(BudgetExhausted):
        ledger.charge("b", Claim(epsilon=0.01, unit="user"))
    with pytest.raises(InvalidParameter, match="must be positive"):
        Ledger({("user", "add-remove"): 0.0})


def test_numbers_of_releases_in_json() -> None:
    for releases, value in ((-1, "any"), (0, 0), (7, 7)):
        assert Claim(epsilon=1.0, unit="user", releases=releases).to_json()["releases"] == value
