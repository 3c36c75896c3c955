"""``panstream federate``: learn one network from several holders; ``panstream holder``: serve one holder's table."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.common import StopSignal, exit_codes
from panstream.errors import FederationAborted, InvalidParameter
from panstream.primitives.toml_config import toml_lines

if TYPE_CHECKING:
    from panstream.models.federated.analyst import FederatedModel, Federation
    from panstream.models.federated.config import HolderAddress, RunConfig
    from panstream.primitives.certificates import Authority
    from panstream.primitives.mutual_tls import Identity

_ANALYST = "analyst"


def federate(
    config: Annotated[Path, typer.Argument(help="Configuration of the run (TOML).")],
    out: Annotated[Path | None, typer.Option(help="Write the network here (JSON or BIF).")] = None,
    ledgers: Annotated[Path | None, typer.Option(help="Directory for the ledgers of holders started here.")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Method to use instead of the configuration's: automatic, pairs, tree, gaussian-sums, independent, "
            "noisy-statistics, majority-voting, noisy-model, average-scores or distributed-parameters. "
            "Automatic is pairs by secure sums if three or more holders have pinned each other's keys, else tree."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.")] = False,
) -> None:
    """Learn one network from the holders of CONFIG and show it, with what every holder spent.

    Holders with a url run elsewhere and are asked there. Holders with data are started here, each as a process with
    its own ledger and certificate, and stopped at the end: use this to try a federation on one machine.

    Where CONFIG names no method and three or more holders have pinned each other's keys, what they send can be read
    only as a sum, also if one of five drops out on the way; otherwise the method is tree.
    """
    with exit_codes(), ExitStack() as stack:
        from panstream.models.federated.analyst import Federation
        from panstream.models.federated.config import RunConfig
        from panstream.models.federated.https import HttpsChannel
        from panstream.models.networks.domain import Domain
        from panstream.models.networks.records import Records
        from panstream.models.networks.serialization import save
        from panstream.privacy.composition import claim_of_person

        run_config = _with_method(RunConfig.read(config), method)
        domain = Domain.load(run_config.domain)

        def report(line: str) -> None:
            if not quiet:
                typer.echo(f"  {line}", err=True)

        addresses = stack.enter_context(_holders(run_config, ledgers, report))
        channels = [
            HttpsChannel(member.name, addresses[member.name][0], addresses[member.name][1], timeout=run_config.timeout)
            for member in run_config.members
        ]
        federation = Federation(domain, channels, run=run_config.run, minimum=run_config.minimum, report=report)
        result = run_config.method.run(federation)
        result = replace(result, claim=claim_of_person(result.claim, run_config.epsilon, run_config.contributions))
        typer.echo(_network(result))
        typer.echo("\n" + _spent(federation, result))
        if run_config.test is not None:
            bits = result.network.cross_entropy(Records.load(run_config.test, domain))
            uniform = f"uniform guessing: {math.log2(domain.cells):.3f}"
            typer.echo(f"\ncross entropy on the test table: {bits:.3f} bits per record ({uniform})")
        if out is not None:
            save(result.network, out, {"claim": result.claim.to_json(), "method": result.method, "run": result.run})
            typer.echo(f"\nwrote {out}")


def holder(config: Annotated[Path, typer.Argument(help="Configuration of the holder (TOML).")]) -> None:
    """Serve one holder's table over HTTPS: every question is checked, charged and answered once.

    Stops on SIGTERM or Ctrl-C. What was answered stays in the ledger, so a restart neither forgets a charge nor draws
    again.
    """
    with exit_codes():
        from panstream.models.federated.config import HolderConfig
        from panstream.models.federated.https import HolderServer

        holder_config = HolderConfig.read(config)
        if holder_config.identity is None:
            raise InvalidParameter("[holder] must have certificate, key and authority")
        with holder_config.open() as opened:
            server = HolderServer(
                opened, holder_config.identity, holder_config.analysts, host=holder_config.host, port=holder_config.port
            )
            stop = StopSignal()
            server.start()
            typer.echo(f"{holder_config.name} answers at {server.address}")
            stop.wait()
            server.stop()
            typer.echo(
                f"{holder_config.name} stopped; spent epsilon {opened.ledger.epsilon:.4g} of {holder_config.epsilon:g}"
            )
        stop.exit()


def holder_key(file: Annotated[Path, typer.Argument(help="Where to write the signing key (PEM).")]) -> None:
    """Write a signing key for secure sums and print its public half, for [holder.members] of all other holders.

    Exchange public keys between the holders themselves: an analyst who hands them out could invent holders.
    """
    with exit_codes():
        from panstream.primitives.signing import write_signing_key

        try:
            typer.echo(write_signing_key(file).hex())
        except FileExistsError:
            raise InvalidParameter(f"{file} already exists; a signing key is never overwritten") from None


def _with_method(run_config: RunConfig, name: str | None) -> RunConfig:
    if name is None:
        return run_config
    from panstream.models.federated.config import METHOD_OPTIONS, METHODS, PURE, read_parents
    from panstream.privacy.composition import per_record_epsilon

    if name not in METHODS:
        raise InvalidParameter(f"method must be one of {', '.join(METHODS)}, got method={name!r}")
    kind = METHODS[name]
    shared = ("epsilon", "delta", *METHOD_OPTIONS)
    overrides: dict[str, Any] = {"delta": 0.0}  # where the configuration has none, a method must not bring its own
    overrides |= {key: getattr(run_config.method, key) for key in shared if hasattr(run_config.method, key)}
    if name in PURE and not overrides.get("secure"):
        del overrides["delta"]  # it comes with secure sums only
    overrides["epsilon"] = per_record_epsilon(
        run_config.epsilon, overrides.get("delta", 0.0), run_config.contributions or 1
    )
    if name == "distributed-parameters":
        if run_config.structure is None:
            raise InvalidParameter("method distributed-parameters needs structure in [federation], a file of a network")
        overrides["parents"] = read_parents(run_config.structure, run_config.domain)
    return replace(
        run_config, method=kind(**{key: overrides[key] for key in overrides if key in kind.__dataclass_fields__})
    )


@contextmanager
def _holders(run_config: RunConfig, ledgers: Path | None, report: object) -> Iterator[dict[str, tuple[str, Identity]]]:
    """Start the holders with local data; yield every holder's address and the identity to connect with."""
    from panstream.primitives.certificates import Authority

    with tempfile.TemporaryDirectory(prefix="panstream-federate-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        authority = Authority(folder / "certificates")
        analyst = authority.issue(_ANALYST)
        addresses: dict[str, tuple[str, Identity]] = {}
        started = []
        local = [member.name for member in run_config.members if member.url is None]
        rosters = _rosters(local, folder) if _needs_keys(run_config, len(local)) else {}
        for member in run_config.members:
            if member.url is not None:
                assert run_config.identity is not None
                addresses[member.name] = (member.url, run_config.identity)
                continue
            file = _holder_file(member, run_config.domain, folder, authority, ledgers, rosters.get(member.name, {}))
            started.append((member, stack.enter_context(_process(file))))
        for member, process in started:
            addresses[member.name] = (_address(member, process), analyst)
        yield addresses


def _needs_keys(run_config: RunConfig, local: int) -> bool:
    """Return whether holders started here form secure sums; keys of holders elsewhere are not known here."""
    from panstream.models.federated.automatic_method import AutomaticMethod
    from panstream.models.federated.secure_sums import MIN_MEMBERS

    if isinstance(run_config.method, AutomaticMethod):
        return MIN_MEMBERS <= local == len(run_config.members)
    return getattr(run_config.method, "secure", False)


def _rosters(names: list[str], folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Write a signing key for every local holder; return their settings, with all public keys."""
    from panstream.primitives.signing import write_signing_key

    files = {name: folder / f"signing-{number}.pem" for number, name in enumerate(names)}
    members = {name: write_signing_key(file).hex() for name, file in files.items()}
    return {name: {"holder": {"signing_key": str(files[name])}, "holder.members": members} for name in names}


def _holder_file(
    member: HolderAddress,
    domain: Path,
    folder: Path,
    authority: Authority,
    ledgers: Path | None,
    roster: dict[str, dict[str, str]],
) -> Path:
    assert member.data is not None
    identity = authority.issue(member.name)
    ledger_folder = (ledgers or folder / "ledgers").absolute()
    ledger_folder.mkdir(parents=True, exist_ok=True)
    values = {
        "name": member.name,
        "data": str(member.data.absolute()),
        "domain": str(domain.absolute()),
        "epsilon": member.epsilon,
        "delta": member.delta,
        "ledger": str(ledger_folder / f"{identity.certificate.stem}.sqlite"),
        "certificate": str(identity.certificate),
        "key": str(identity.key),
        "authority": str(identity.authority),
        "analysts": [_ANALYST],
        **roster.get("holder", {}),
    }
    path = folder / f"{identity.certificate.stem}.toml"
    lines = ["[holder]", *toml_lines(values)]
    if roster:
        lines += ["[holder.members]", *toml_lines(roster["holder.members"])]
    path.write_text("\n".join(lines), "utf-8")
    return path


@contextmanager
def _process(file: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "panstream.cli", "holder", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _address(member: HolderAddress, process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if " answers at " not in line:
        _, problem = process.communicate()
        raise FederationAborted(
            f"{member.name} did not start: {problem.strip().removeprefix('error: ') or 'no reason given'}"
        )
    return line.rsplit(" ", 1)[1].strip()


def _network(result: FederatedModel) -> str:
    from panstream.algorithms.planning.tables import format_table
    from panstream.models.networks.mixture import Mixture

    learned = result.network
    network = learned.nearest_tree() if isinstance(learned, Mixture) else learned
    names = network.domain.names
    rows = []
    for attribute in network.order:
        parents = ", ".join(names[parent] for parent in network.parents[attribute]) or "-"
        rows.append((names[attribute], parents, str(network.domain.sizes[attribute])))
    edges = "the strongest dependences" if isinstance(learned, Mixture) else f"{len(network.edges)} edges"
    title = f"{result.method}: {edges}, {result.records:,} records, {result.questions} questions"
    return format_table(title, ("attribute", "depends on", "categories"), rows, right={2})


def _spent(federation: Federation, result: FederatedModel) -> str:
    from panstream.algorithms.planning.tables import format_table

    rows = []
    for info in federation.introductions():
        limit = "unlimited" if info.epsilon is None else f"{info.epsilon:g}"
        figures = (f"{info.records:,}", f"{info.spent:.4g}", limit, f"{info.delta:g}")
        rows.append((info.holder, *figures, "took part"))
    missing = set(result.holders) - {row[0] for row in rows}
    rows += [(name, "", "", "", "", "took part, no longer answers") for name in sorted(missing)]
    rows += [(name, "", "", "", "", f"left out: {why}") for name, why in result.dropped.items()]
    head = ("holder", "records", "epsilon spent", "budget", "delta", "")
    table = format_table("what every holder has spent, by its own ledger", head, rows, right={1, 2, 3, 4})
    notes = "".join(f"; {text}" for text in (result.claim.assumption, result.claim.note) if text)
    whose = "one record of any holder" if result.claim.unit == "record" else "all records of one person"
    claim = f"this run: epsilon {result.claim.epsilon:g}, delta {result.claim.delta:g} for {whose}"
    return f"{table}\n\n{claim} (replace-one; run {result.run}){notes}"
