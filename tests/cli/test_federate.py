"""Three hospitals as three processes."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from panstream.cli.commands.federate import _holders, _with_method
from panstream.errors import ConfigError, InvalidParameter, PanstreamError
from panstream.models.federated import AutomaticMethod, Federation, Holder
from panstream.models.federated._questions import Table
from panstream.models.federated.config import METHODS, HolderAddress, HolderConfig, RunConfig
from panstream.models.federated.https import HttpsChannel
from panstream.models.networks import BayesianNetwork, Domain, Records, contingency
from panstream.models.networks.serialization import load, read_metadata, save
from panstream.primitives.signing import read_signing_key
from panstream.privacy.composition import per_record_epsilon
from tests.cli.running import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "hospitals.toml"
TEXT = EXAMPLE.read_text().replace('"data/', f'"{EXAMPLE.parent}/data/')


@pytest.mark.slow
def test_three_hospitals_in_one_command(tmp_path: Path) -> None:
    out = tmp_path / "network.json"
    ledgers = tmp_path / "ledgers"
    config = tmp_path / "run.toml"
    config.write_text(TEXT.replace("epsilon = 2.0", "epsilon = 1.2"))
    command = ["federate", str(config), "--out", str(out), "--ledgers", str(ledgers)]
    first = run(*command)
    for name, records in (("north", "4,000"), ("south", "2,500"), ("west", "1,500")):
        assert re.search(rf"^{name} +{records} +1 +1.2 +1e-06  took part$", first.stdout, re.MULTILINE), first.stdout
    bits = float(re.search(r"cross entropy on the test table: ([\d.]+) bits", first.stdout)[1])  # type: ignore[index]
    assert 14.0 < bits < 19.0
    assert len(load(out).domain) == 12
    assert read_metadata(out.read_text())["claim"]["epsilon"] == 1.0
    with sqlite3.connect(ledgers / "north.sqlite") as ledger:
        assert ledger.execute("SELECT COUNT(*) FROM answers").fetchone() == (3,)
    ledger.close()
    again = run(*command, code=1)
    assert "it refused (budget)" in again.stderr
    assert "at least 2 are needed" in again.stderr


@pytest.mark.slow
def test_secure_sums_between_three_processes(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(re.sub(r'method = "\w+"', 'method = "pairs"\nsecure = true', TEXT))
    result = run("federate", str(config), "--ledgers", str(tmp_path))
    assert "all pairs, secure sums: the strongest dependences" in result.stdout
    assert "up to 1 of 3 holders" in result.stdout
    with sqlite3.connect(tmp_path / "north.sqlite") as ledger:
        assert ledger.execute("SELECT kind FROM answers").fetchall() == [("close-sum",)]
        assert ledger.execute("SELECT secret FROM openings").fetchall() == [(None,)]
    ledger.close()


@pytest.mark.slow
def test_a_run_that_names_no_method_uses_secure_sums(tmp_path: Path) -> None:
    """The keys of holders that are started here are made by the command; with two holders it is a tree."""
    config = tmp_path / "run.toml"
    config.write_text(re.sub(r'method = "\w+".*\n', "", TEXT))
    result = run("federate", str(config))
    assert "all pairs, secure sums: the strongest dependences" in result.stdout
    assert "pinned each other's keys" in result.stderr
    config.write_text(config.read_text().rsplit("[[holder]]", 1)[0])
    result = run("federate", str(config))
    assert "secure" not in result.stdout
    assert "secure sums need 3 holders or more" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2])
def test_holders_that_are_killed_after_the_close_do_not_spoil_the_sum(
    tmp_path: Path, hospitals: dict[str, Records], lost: int
) -> None:
    """Of five processes, killed when they are asked to confirm and to reveal: all others' rows, at the claimed loss."""
    names = ["a", "b", "c", "d", "e"]
    parts = hospitals["north"].split(5)
    members = []
    for name, part in zip(names, parts, strict=True):
        columns = part.to_columns()
        lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
        members.append(HolderAddress(name=name, data=tmp_path / f"{name}.csv", epsilon=1.0, delta=1e-6))
    config = replace(RunConfig.read(EXAMPLE), members=tuple(members), method=AutomaticMethod(epsilon=1.0, delta=1e-6))
    kinds = dict(zip(names[-lost:], (b"reveal-sum", b"confirm-sum"), strict=False))
    ledgers = tmp_path / "ledgers"

    class Killing(HttpsChannel):
        def answer(self, data: bytes) -> bytes:
            if kinds.get(self.name, b"never") in data:
                ended[self.name].kill()
                ended[self.name].wait()
            return super().answer(data)

    ended: dict[str, subprocess.Popen[str]] = {}
    processes: list[subprocess.Popen[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        started = subprocess.Popen

        def start(*words: object, **options: object) -> subprocess.Popen[str]:
            processes.append(started(*words, **options))  # type: ignore[call-overload]
            return processes[-1]

        patch.setattr(subprocess, "Popen", start)
        with _holders(config, ledgers, print) as addresses:
            ended |= dict(zip(names, processes, strict=True))
            channels = [Killing(name, *addresses[name]) for name in names]
            federation = Federation(parts[0].domain, channels, minimum=5, attempts=2)
            tables = [Table(attributes=(0, 1), budget=1e-3)]
            sums = federation.secure_sums(tables, dropouts=2)
    present = [name for name in names if kinds.get(name) != b"confirm-sum"]
    exact = sum(contingency(parts[names.index(name)], (0, 1)) for name in present)
    assert (sums.holders, list(federation.dropped)) == (len(present), [name for name in names if name not in present])
    assert np.abs(sums.tables[0] - exact).max() < 10 * sums.deviations[0]  # failure probability below 1e-20
    for file in ledgers.glob("*.sqlite"):
        with sqlite3.connect(file) as ledger:
            ((rho,),) = ledger.execute("SELECT SUM(rho) FROM answers")
        ledger.close()
        assert rho == pytest.approx(1e-3, rel=1e-6)


def test_a_signing_key_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "north.pem"
    result = run("holder-key", str(path))
    assert re.fullmatch(r"[0-9a-f]{64}\n", result.stdout)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_signing_key(path).public_key().public_bytes_raw().hex() == result.stdout.strip()
    again = run("holder-key", str(path), code=2)
    assert "already exists" in again.stderr


@pytest.mark.slow
def test_a_hospital_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("race,gender\nmartian,Female\n")
    config = tmp_path / "run.toml"
    config.write_text(TEXT.replace(f"{EXAMPLE.parent}/data/hospitals/west.csv.gz", "bad.csv"))
    result = run("federate", str(config), "--quiet", code=1)
    assert "west did not start" in result.stderr
    assert "martian" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("epsilon = 1.0", "epsilom = 1.0"), "unknown key 'epsilom', did you mean 'epsilon'"),
        (("minimum = 2", "minimun = 2"), "unknown key 'minimun'"),
        (('method = "tree"', 'method = "magic"'), "method must be one of"),
        (('method = "tree"', 'method = "noisy-model"'), "takes no delta"),
        (('name = "south"', 'name = "north"'), "a name of its own"),
        (('name = "west"\ndata =', 'name = "west"\nurl = "https://x"\ndata ='), "either url or data"),
        (("[federation]", "[federation"), "not valid TOML"),
        (("delta = 1e-6\ndomain", 'delta = "small"\ndomain'), ".federation.: delta must be a finite number"),
    ],
    ids=range(8),
)
def test_mistakes_in_a_run_are_named(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    text = EXAMPLE.read_text()
    assert change[0] in text
    config = tmp_path / "run.toml"
    config.write_text(text.replace(*change))
    result = run("federate", str(config), code=2)
    assert re.search(complaint, result.stderr), result.stderr


@pytest.fixture(scope="module")
def hospitals() -> dict[str, Records]:
    example = RunConfig.read(EXAMPLE)
    domain = Domain.load(example.domain)
    return {member.name: Records.load(member.data, domain) for member in example.members if member.data}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "pairs" else [])
        for name in METHODS
        if name != "distributed-parameters"
    ],
)
def test_the_example_runs_with_every_method(hospitals: dict[str, Records], name: str) -> None:
    """The hospitals are in this process, with the budgets of the example; none of them refuses."""
    example = RunConfig.read(EXAMPLE)
    holders = [
        Holder(member.name, hospitals[member.name], epsilon=member.epsilon, delta=member.delta)
        for member in example.members
    ]
    federation = Federation(Domain.load(example.domain), holders, minimum=3)
    result = _with_method(example, name).method.run(federation)
    assert result.claim.epsilon == 1.0
    assert all(0.0 < holder.ledger.epsilon <= 1.0 + 1e-9 for holder in holders)


def _chain(tmp_path: Path) -> tuple[Path, BayesianNetwork]:
    """Write a network in which every attribute depends on the one before it."""
    domain = Domain.load(RunConfig.read(EXAMPLE).domain)
    parents = ((), *((attribute,) for attribute in range(len(domain) - 1)))
    tables = [np.ones([domain.sizes[i] for i in (*family, child)]) for child, family in enumerate(parents)]
    network = BayesianNetwork(domain, parents, tuple(table / table.sum(-1, keepdims=True) for table in tables))
    save(network, tmp_path / "chain.json")
    return tmp_path / "chain.json", network


def test_the_parameters_of_a_structure_are_learned(tmp_path: Path, hospitals: dict[str, Records]) -> None:
    """The structure of the file is kept, its tables are not; clipping at the holders is an option of the file."""
    file, chain = _chain(tmp_path)
    text = EXAMPLE.read_text().replace("data/", f"{EXAMPLE.parent}/data/")
    chosen = f'method = "distributed-parameters"\nstructure = "{file}"\nclip_at_holder = true'
    config = tmp_path / "run.toml"
    config.write_text(text.replace('method = "tree"', chosen).replace("delta = 1e-6\ndomain", "domain"))
    example = RunConfig.read(config)
    assert example.method.clip_at_holder
    holders = [Holder(name, records, epsilon=2.0) for name, records in hospitals.items()]
    result = example.method.run(Federation(Domain.load(example.domain), holders, minimum=3))
    assert result.network.parents == chain.parents
    assert result.claim.epsilon == 1.0
    bits = result.network.cross_entropy(hospitals["west"])
    assert bits < chain.cross_entropy(hospitals["west"]) - 0.1
    config.write_text(text.replace('method = "tree"', f'method = "tree"\nstructure = "{file}"'))
    with pytest.raises(ConfigError, match="takes no structure"):
        RunConfig.read(config)
    with pytest.raises(InvalidParameter, match="needs structure in"):
        _with_method(RunConfig.read(EXAMPLE), "distributed-parameters")


def test_split_and_clipping_of_the_thesis_are_options(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    printed = 'method = "majority-voting"\nsplit = 0.3\nclip_at_holder = true'
    text = EXAMPLE.read_text().replace("delta = 1e-6\ndomain", "domain")
    config.write_text(text.replace('method = "tree"', printed))
    method = RunConfig.read(config).method
    assert (method.split, method.clip_at_holder) == (0.3, True)
    config.write_text(text.replace('method = "tree"', 'method = "average-scores"\naverage = "median"'))
    assert RunConfig.read(config).method.average == "median"
    for options, words in (
        ('method = "tree"\nsplit = 0.3', "'tree' takes no split"),
        ('method = "noisy-statistics"\naverage = "mean"', "'noisy-statistics' takes no average"),
        ('method = "majority-voting"\nsplit = 1.5', "split"),
    ):
        config.write_text(text.replace('method = "tree"', options))
        with pytest.raises(PanstreamError, match=words):
            RunConfig.read(config)


def test_persons_with_several_records_share_their_epsilon(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(EXAMPLE.read_text().replace("epsilon = 1.0 ", "contributions = 4\nepsilon = 1.0 "))
    example = RunConfig.read(config)
    assert (example.epsilon, example.contributions) == (1.0, 4)
    assert example.method.epsilon == per_record_epsilon(1.0, 1e-6, 4) < 0.25
    assert _with_method(example, "noisy-statistics").method.epsilon == 0.25
    config.write_text(EXAMPLE.read_text().replace("epsilon = 1.0 ", "contributions = 0\nepsilon = 1.0 "))
    with pytest.raises(ConfigError, match="contributions must be at least 1"):
        RunConfig.read(config)


def test_help_lists_the_methods() -> None:
    shown = run("federate", "--help").stdout
    text = " ".join(shown.split()).replace("- ", "-")  # lines also end at hyphens
    assert f"{', '.join(list(METHODS)[:-1])} or {list(METHODS)[-1]}." in text
    assert f"{', '.join(list(METHODS)[:-1])} or {list(METHODS)[-1]}" in EXAMPLE.read_text()


def test_another_method_keeps_what_it_shares_with_the_configured_one(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(EXAMPLE.read_text().replace('method = "tree"', 'method = "gaussian-sums"\ndegree = 3'))
    given = RunConfig.read(config)
    for name, kept in {
        "noisy-model": {"epsilon": 1.0, "degree": 3},
        "gaussian-sums": {"epsilon": 1.0, "delta": 1e-6, "degree": 3},
        "tree": {"epsilon": 1.0, "delta": 1e-6},
    }.items():
        method = _with_method(given, name).method
        assert kept.items() <= {key: getattr(method, key) for key in method.__dataclass_fields__}.items()
    pure = _with_method(given, "noisy-model")
    with pytest.raises(InvalidParameter, match="delta"):
        _with_method(pure, "tree")  # which would bring a delta that nobody declared


def test_the_holder_of_the_tutorial_is_read(tmp_path: Path) -> None:
    page = (EXAMPLE.parents[1] / "docs" / "tutorial" / "three-hospitals.md").read_text()
    config = tmp_path / "holder.toml"
    config.write_text(re.search(r"```toml\n(\[holder\].*?)```", page, re.DOTALL)[1])  # type: ignore[index]
    found = HolderConfig.read(config)
    assert (found.name, found.epsilon, found.port, found.analysts) == ("north", 2.0, 8443, ("analyst",))
    run("holder", str(config), code=2)  # its files are not here


def test_the_example_is_read_and_its_tables_fit_the_domain() -> None:
    example = RunConfig.read(EXAMPLE)
    domain = Domain.from_json(example.domain.read_text())
    sizes = [len(Records.load(member.data, domain)) for member in example.members if member.data]
    assert sizes == [4000, 2500, 1500]
    assert example.test is not None and len(Records.load(example.test, domain)) == 2000
