"""Ledgers in files: totals over several files, hard links, checkpoints, crashes, and what is not a ledger."""

import os
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Barrier

import pytest

from panstream.engine.storage import ledger_file
from panstream.engine.storage.ledger_file import Spent, charge_ledgers, ledger_path_for
from panstream.errors import BudgetExhausted, StoreDamaged, StoreError, UnboundedLoss
from panstream.privacy.claim import Claim

USER = Claim(epsilon=1.0, unit="user")
EVENT = Claim(epsilon=1.0, unit="event")
HEADER = '{"panstream-ledger": 1}\n'


def charged(paths: list[Path], claim: Claim, budget: float | None = None) -> Spent:
    spent = charge_ledgers(paths, {"q": claim}, budget=budget)
    assert spent is not None
    return spent


@pytest.mark.parametrize("checkpoint_every", [3, 1000])
def test_totals_are_those_of_brute_force(
    tmp_path: Path, checkpoint_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses are multiples of 1/8, so that sums of floats are exact."""
    monkeypatch.setattr(ledger_file, "_CHECKPOINT_EVERY", checkpoint_every)
    draw = random.Random(1)
    ledgers = [tmp_path / name for name in "abc"]
    subsets = [
        [ledger for ledger, chosen in zip(ledgers, bits, strict=True) if chosen]
        for bits in product((0, 1), repeat=3)
        if any(bits)
    ]
    charges: list[tuple[set[Path], float, float]] = []
    for _ in range(40):
        files = draw.choice(subsets)
        epsilon = draw.randint(1, 16) / 8
        of_event = draw.randint(1, 8) / 8 * epsilon
        claim = Claim(epsilon=epsilon, unit="user", event_epsilon=of_event, delta=2.0**-20)
        charges.append((set(files), epsilon, of_event))
        spent = charged(files, claim)
        touching = [each for each in charges if each[0] & set(files)]
        assert spent.total("user") == (sum(each[1] for each in touching), len(touching) * 2.0**-20)
        by_file = [sum(each[2] for each in charges if file in each[0]) for file in files]
        assert spent.total("event")[0] == max(by_file)
        shown = {total.unit: total.epsilon for total in spent.totals()}
        assert shown == {"user": spent.total("user")[0]}


def test_a_budget_for_users_holds_over_all_files_of_a_question(tmp_path: Path) -> None:
    both = [tmp_path / "a", tmp_path / "b"]
    charged(both[:1], USER, budget=2.0)
    charged(both[1:], USER, budget=2.0)
    with pytest.raises(BudgetExhausted, match="would bring the total to 3; the limit is 2$"):
        charged(both, USER)
    charged(both, USER, budget=3.0)
    assert charged(both[:1], USER).total("user") == (3.0, 0.0)  # the one for both is found in each
    with pytest.raises(BudgetExhausted, match="would bring the total to 4; the limit is 3$"):
        charged(both[:1], USER)
    (tmp_path / "other").mkdir()
    charged([tmp_path / "other" / "c"], EVENT)
    with pytest.raises(UnboundedLoss):
        charged([*both, tmp_path / "other" / "c"], USER)


def test_a_row_is_in_one_file_and_loses_what_was_charged_there(tmp_path: Path) -> None:
    both = [tmp_path / "a", tmp_path / "b"]
    charged(both[:1], EVENT, budget=2.0)
    charged(both[1:], EVENT, budget=2.0)
    spent = charged(both, EVENT)
    assert spent.total("event") == (2.0, 0.0)
    assert str(spent) == "epsilon 2 for one event"
    with pytest.raises(BudgetExhausted, match="would bring the total to 3; the limit is 2$"):
        charged(both[:1], EVENT)


def test_the_strictest_budget_of_several_files_counts(tmp_path: Path) -> None:
    both = [tmp_path / "a", tmp_path / "b"]
    charged(both[:1], USER, budget=5.0)
    charged(both[1:], USER, budget=2.0)
    with pytest.raises(BudgetExhausted, match="would bring the total to 3; the limit is 2$"):
        charged(both, USER)


def test_a_charge_that_reached_only_some_files_counts_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [tmp_path / "a", tmp_path / "b"]
    charged(both, USER)
    sync = os.fsync
    calls = iter((True, False))

    def fails_second(descriptor: int) -> None:
        if not next(calls):
            raise OSError(5, "Input/output error")
        sync(descriptor)

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="Input/output error"):
        patch.setattr(os, "fsync", fails_second)
        charged(both, USER)
    lines = both[1].read_bytes().splitlines(keepends=True)
    both[1].write_bytes(b"".join(lines[:2]) + lines[2][:20])  # what a crash leaves of the second charge
    assert charged(both, USER).total("user") == (3.0, 0.0)


def test_hard_links_share_one_ledger(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("x\n1\n")
    assert ledger_path_for(tmp_path / "b.csv").name == "b.csv.ledger"
    charged([ledger_path_for(tmp_path / "b.csv")], EVENT)
    os.link(tmp_path / "b.csv", tmp_path / "a.csv")
    (tmp_path / "c.csv").symlink_to("a.csv")
    assert {ledger_path_for(tmp_path / name).name for name in ("a.csv", "b.csv", "c.csv")} == {"b.csv.ledger"}
    (tmp_path / "a.csv.ledger").write_text(HEADER)
    with pytest.raises(StoreError, match=r"a\.csv\.ledger and b\.csv\.ledger are ledgers of one file"):
        ledger_path_for(tmp_path / "a.csv")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "d.csv").write_text("x\n1\n")
    os.link(tmp_path / "d.csv", tmp_path / "elsewhere" / "e.csv")
    with pytest.raises(StoreError, match="2 names .hard links., 1 of them in other directories"):
        ledger_path_for(tmp_path / "d.csv")


def test_checkpoints_sum_up_and_reading_starts_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "_CHECKPOINT_EVERY", 10)
    reads: list[object] = []
    read = ledger_file._LedgerFile._read
    monkeypatch.setattr(ledger_file._LedgerFile, "_read", lambda file, line: (reads.append(line), read(file, line)))
    ledger = tmp_path / "spent"
    charged([ledger], USER, budget=100.0)
    for _ in range(36):
        reads.clear()
        charged([ledger], USER)
        assert len(reads) <= 11
    lines = ledger.read_text().splitlines()
    assert sum(line.startswith('{"checkpoint"') for line in lines) == 3
    assert sum(line.startswith('["q"') for line in lines) == 37
    assert charged([ledger], USER).total("user") == (38.0, 0.0)
    with pytest.raises(BudgetExhausted, match="would bring the total to 101; the limit is 100$"):
        charged([ledger], Claim(epsilon=63.0, unit="user"))


def test_a_long_ledger_without_a_checkpoint_gets_one(tmp_path: Path) -> None:
    ledger = tmp_path / "spent"
    line = '["x", 0.5, 0.0, "event", "add-remove", null, null]\n'
    ledger.write_text(HEADER + '{"budget": 5000}\n' + line * 2500)
    assert charged([ledger], EVENT).total("event") == (1251.0, 0.0)
    assert ledger.read_text().splitlines()[-1] == (
        '{"checkpoint": [["earlier answers", 1251.0, 0.0, "event", "add-remove", null, null]], "budget": 5000.0}'
    )


def test_no_charge_of_several_threads_is_lost(tmp_path: Path) -> None:
    start = Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for _ in range(5):
            charged([tmp_path / "a", tmp_path / "b"] if number % 2 else [tmp_path / "b"], USER)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert charged([tmp_path / "a"], USER).total("user") == (21.0, 0.0)
    assert charged([tmp_path / "b"], USER).total("user") == (41.0, 0.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "precious",
        "precious\n",
        '{"panstream-ledger": 9}\n',
        '{"panstream-ledger":1}\n',
        HEADER + "5\n",
        HEADER + '"budget"\n',
        HEADER + "\n",
        HEADER + '{"budget": NaN}\n',
        HEADER + '{"budget": -1}\n',
        HEADER + '["x", -1.0, 0.0, "event", "add-remove", null, null]\n',
        HEADER + '["x", NaN, 0.0, "event", "add-remove", null, null]\n',
        HEADER + '["x", 1.0, 0.0, "event", "add-remove", null, null, 7]\n',
        HEADER + '["x", 1.0, 0.0, "event", "add-remove", null, null, "key", "more"]\n',
        HEADER + '["x"]\n',
    ],
)
def test_what_is_not_a_ledger_is_refused_and_not_written(text: str, tmp_path: Path) -> None:
    (tmp_path / "spent").write_text(text)
    with pytest.raises(StoreDamaged, match="what was spent is not known"):
        charged([tmp_path / "spent"], EVENT)
    assert (tmp_path / "spent").read_text() == text


def test_links_pipes_and_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text(HEADER)
    (tmp_path / "link").symlink_to("victim")
    (tmp_path / "dangling").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name, message in (
        ("link", "symbolic link"),
        ("dangling", "symbolic link"),
        ("pipe", "not a regular file"),
        ("directory", "directory"),
        ("no/such/directory", "No such file"),
    ):
        with pytest.raises(StoreError, match=message):
            charged([tmp_path / name], EVENT)
    assert (tmp_path / "victim").read_text() == HEADER
    assert not (tmp_path / "nothing").exists()
