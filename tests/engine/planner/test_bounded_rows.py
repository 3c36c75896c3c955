"""What bounds the rows of one user: derived and declared, in claims, in the person's total, and enforced for a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from panstream.engine.config.config import Config, read_config
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import QueryPlan, plan_all
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest_all, open_configured_source
from panstream.engine.runtime.selector import Selector
from panstream.errors import ConfigError

ROWS = {"name": "rows", "sql": "SELECT COUNT(*) FROM s", "epsilon": 1.0, "contributions": 3}
SENT = {**ROWS, "window": "1 day", "bounded_by": "sender"}
USERS = {"name": "users", "sql": "SELECT COUNT(DISTINCT u) FROM s", "epsilon": 1.0, "expected": 1000}
DEVICES = {
    **USERS,
    "sql": "SELECT device, COUNT(DISTINCT u) FROM s GROUP BY device",
    "groups": {"device": ["desktop", "mobile", "tablet"]},
}


def config(query: dict[str, Any], store: dict[str, Any] | None = None, **stream: Any) -> Config:
    columns = {"u": "string", "device": "string", "page": "string", "sender_counts": "string"}
    sections: dict[str, Any] = {"stream": {"name": "s", "user": "u", "columns": columns, **stream}, "query": [query]}
    return read_config({**sections, **({"store": store} if store else {})})


def plan(query: dict[str, Any], **stream: Any) -> QueryPlan:
    (one,) = plan_all(config(query, **stream))
    return one


def bound(query: dict[str, Any], **stream: Any) -> str | None:
    loaded = config(query, **stream)
    return planned_person_total(loaded, plan_all(loaded)).shares[0].bounded_by


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (ROWS, "declared"),
        ({**ROWS, "bounded_by": "declared"}, "declared"),
        (SENT, "sender"),
        ({**ROWS, "bounded_by": "file"}, "file"),
        (USERS, "shape"),
        ({**USERS, "bounded_by": "shape"}, "shape"),
        ({"name": "rows", "sql": "SELECT COUNT(*) FROM s", "epsilon": 1.0}, None),
    ],
)
def test_the_bound_is_derived_or_stated(query: dict[str, Any], expected: str | None) -> None:
    assert bound(query) == expected


def test_the_claim_assumes_what_a_sender_or_a_declaration_promises() -> None:
    daily = {**ROWS, "window": "1 day"}
    declared = plan(daily).claim
    sent = plan(SENT).claim
    assert declared.assumption == (
        "one user has at most 3 rows per window, which is declared and not enforced across batches"
    )
    assert sent.assumption.startswith("the person's own sender numbers at most 3 rows in a window of 1 day")
    assert declared.epsilon == sent.epsilon
    assert plan({**ROWS, "bounded_by": "file"}).claim.assumption == ""
    assert plan(USERS).claim.assumption == ""


def test_a_column_of_the_user_puts_each_user_into_one_group() -> None:
    """Three groups cost one user three times as much, unless a user is always in the same one."""
    assert plan(DEVICES).claim.epsilon == 3.0
    one = plan(DEVICES, user_columns=["device"]).claim
    assert (one.epsilon, one.assumption) == (1.0, "each user has one device only")
    pages = {
        **DEVICES,
        "sql": "SELECT device, page, COUNT(DISTINCT u) FROM s GROUP BY device, page",
        "groups": {"device": ["desktop", "mobile"], "page": ["a", "b", "c"]},
    }
    assert plan(pages, user_columns=["device"]).claim.epsilon == 3.0
    assert plan(pages, user_columns=["device", "page"]).claim.epsilon == 1.0
    assert plan({**pages, "groups_per_user": 2}, user_columns=["device"]).claim.epsilon == 2.0


@pytest.mark.parametrize(
    ("query", "stream", "message"),
    [
        ({**USERS, "bounded_by": "file"}, {}, '"file" does not fit COUNT.DISTINCT user.: it is "shape"'),
        ({**USERS, "bounded_by": "sender"}, {}, "COUNT.DISTINCT user. and DENSITY need no bound"),
        ({**ROWS, "bounded_by": "shape"}, {}, 'bounded_by = "shape" is for questions about users'),
        ({**ROWS, "contributions": None, "bounded_by": "sender"}, {}, '"sender" needs contributions'),
        ({**ROWS, "window": "1 day", "bounded_by": "file"}, {}, '"file" needs one answer about one file: no window'),
        ({**ROWS, "bounded_by": "nobody"}, {}, "bounded_by must be one of sender, file, shape, two_party, declared"),
        (USERS, {"user_columns": ["nothing"]}, "user_columns: 'nothing' needs a user"),
        (USERS, {"user_columns": [1]}, "user_columns must be a list of names"),
    ],
)
def test_refusals_say_what_fits(query: dict[str, Any], stream: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_all(config(query, **stream))


def _run(loaded: Config, file: Path) -> None:
    with Engine(loaded) as engine, Selector(loaded) as select:
        ingest_all(engine, open_configured_source(loaded, [str(file)]), select)


def test_a_file_is_one_batch_or_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("u,device,page,sender_counts\n" + "a,mobile,x,\n" * 2 + "b,mobile,x,\n" * 2)
    of_file = {**ROWS, "bounded_by": "file"}
    _run(config(of_file), file)
    with pytest.raises(ConfigError, match="needs all rows in one batch: raise .store. batch_rows"):
        _run(config(of_file, {"batch_rows": 2}), file)
    _run(config(ROWS, {"batch_rows": 2}), file)  # a declared bound promises nothing about batches
    with pytest.raises(ConfigError, match="holds for one run over one file"):
        plan_all(config(of_file, {"directory": str(tmp_path / "state")}))


def test_more_rows_than_the_file_may_have_of_one_user_change_nothing_beyond_the_bound(tmp_path: Path) -> None:
    """The batch leaves out rows above the bound: without noise, 3 of 10 rows count."""
    file = tmp_path / "rows.csv"
    file.write_text("u,device,page,sender_counts\n" + "a,mobile,x,\n" * 10)
    loaded = config({**ROWS, "bounded_by": "file"})
    answers = []
    with Engine(loaded, zero_noise=True, publish=answers.append) as engine, Selector(loaded) as select:
        ingest_all(engine, open_configured_source(loaded, [str(file)]), select)
        engine.finish()
    assert [answer.record["value"] for answer in answers] == [3.0]
