"""``panstream inspect``, ``recover`` and ``intrusion announce``: operations on a store other than running queries.

Public parameters are always shown, the state itself only as an announced intrusion.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from panstream.cli.common import ConfigFile, KeyFile, Yes, exit_codes, operator_key
from panstream.errors import BudgetExhausted, InvalidParameter, LatestSnapshotDamaged, NotSupported
from panstream.primitives.time_grid import CalendarGrid, FixedGrid, TimeGrid

intrusion = typer.Typer(help="Announce an intrusion.", no_args_is_help=True, rich_markup_mode=None)

_MEANS = (
    "The newest state is damaged. The previous one is intact and can be used from now on. It lacks the rows that were "
    "acknowledged since, which their senders must send again, and the damaged one is overwritten for good."
)


def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A store's directory, or the bytes of one state.")],
    state: Annotated[
        bool, typer.Option("--state", help="Print the state itself: asks first, and records an announced intrusion.")
    ] = False,
    yes: Yes = False,
    key_file: KeyFile = None,
) -> None:
    """Print public parameters as JSON: queries, claims, releases made, the ledger. Nothing about the state itself."""
    with exit_codes():
        if not path.exists():
            raise InvalidParameter(f"{path.name} does not exist")
        if path.is_dir():
            _store(path, state, yes, key_file)
            return
        from panstream.primitives import codec

        if state:
            raise NotSupported("a single file cannot record that it was read: use a store's directory")
        header, _ = codec.read_header(path.read_bytes())
        typer.echo(json.dumps({"algorithm": header["algorithm"], "parameters": header["parameters"]}, indent=2))


def recover(
    path: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A store's directory.")],
    yes: Yes = False,
    key_file: KeyFile = None,
) -> None:
    """Restore the previous state, if the newest state of a store is damaged and the previous one still exists."""
    with exit_codes():
        from panstream.engine.runtime.checkpoint import EngineCheckpoint
        from panstream.engine.storage.snapshot_store import SnapshotStore

        if not (path / "state.sealed").exists():
            raise InvalidParameter(f"{path.name!r} holds no store")
        key = operator_key(key_file)
        with contextlib.suppress(LatestSnapshotDamaged):
            with SnapshotStore(path, operator_key=key) as store:
                store.load()
            typer.echo("The newest state is intact: there is nothing to recover.")
            return
        typer.echo(_MEANS, err=True)
        if not yes:
            typer.confirm("Restore it?", abort=True, err=True)
        with SnapshotStore(path, operator_key=key, accept_previous=True) as store:
            parts = store.load() or {}
            meta = EngineCheckpoint.meta(parts)
            # The lost rows were applied by now at the latest; a copy made before this moment may contain them.
            meta["applied"] = max(math.ceil(time.time()), meta["applied"] or 0)
            store.commit({**parts, "meta": json.dumps(meta).encode()})
        typer.echo("The previous state was restored.")


@intrusion.command("announce")
def _announce(
    config: ConfigFile,
    copied_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the state was copied, with a time zone: 2026-03-08T03:00:00Z. If rows were applied since, "
            "questions that are refreshed by freezing their state are not covered.",
        ),
    ] = None,
    just_now: Annotated[
        bool,
        typer.Option(
            "--just-now", help="The state was copied just now: no row has been applied since. Instead of --copied-at."
        ),
    ] = False,
    yes: Yes = False,
    key_file: KeyFile = None,
) -> None:
    """Record that the state was or may have been copied, refresh every state that supports it, and say what is covered.

    Without --copied-at and --just-now, the time of the copy is not known: then rows may have been applied since, and
    only questions that are refreshed by adding noise (COUNT, SUM, names, ...) are covered.
    """
    with exit_codes():
        from panstream.distributed.two_party.session import open_stream
        from panstream.engine.planner.person_division import load_divided_config
        from panstream.engine.runtime.intrusions import CopyTime, describe_record

        copy = CopyTime.parse("--copied-at", copied_at, just_now=just_now)
        copy.check_past(time.time())
        loaded = load_divided_config(config)
        if loaded.directory is None:
            raise InvalidParameter("[store] directory is needed: without it there is no stored state to refresh")
        with open_stream(loaded, operator_key=operator_key(key_file)) as engine:
            for plan in engine.plans:
                typer.echo(f"  {plan.config.name}: {engine.exposure.outlook(plan)[1]}", err=True)
            for record in engine.intrusions:
                typer.echo(f"  announced before: {describe_record(record)}", err=True)
            if not yes:
                typer.confirm("Announce an intrusion now?", abort=True, err=True)
            for state in engine.announce_intrusion(copy):
                typer.echo(str(state))


def _store(path: Path, state: bool, yes: bool, key_file: Path | None) -> None:
    from panstream.engine.runtime.checkpoint import EngineCheckpoint
    from panstream.engine.storage.snapshot_store import SnapshotStore

    if not (path / "state.sealed").exists():
        raise InvalidParameter(f"{path.name!r} holds no store")
    with SnapshotStore(path, operator_key=operator_key(key_file)) as store:
        parts = store.load() or {}
        meta = EngineCheckpoint.meta(parts)
        if state:
            _check_unseen(meta)
            _confirm(meta, yes)
            shown = _read_states(parts, meta)
            store.commit(parts)  # the intrusion is recorded before anything is shown
            typer.echo(json.dumps(shown, indent=2))
            return
    typer.echo(json.dumps(_public(meta), indent=2))


def _public(meta: dict[str, Any]) -> dict[str, Any]:
    return {
        "stream": meta["stream"],
        "queries": {
            name: {
                "sql": query["declared"]["sql"],
                "algorithm": query["algorithm"],
                "releases made": query["before"] + query["made"],
                "claim": query["claim"],
            }
            for name, query in meta["queries"].items()
        },
        "ledger": meta["ledger"],
        "producers": len(meta["seen"]),
        "announced intrusions": meta["intrusions"],
    }


def _check_unseen(meta: dict[str, Any]) -> None:
    """Raise BudgetExhausted if a state was copied before and not refreshed since."""
    for name, query in meta["queries"].items():
        if query["exposed"]:
            raise BudgetExhausted(
                f"the state of {name!r} was seen in an announced intrusion and could not be refreshed: its claim "
                "covers one intrusion, and a second one is not covered"
            )


def _confirm(meta: dict[str, Any], yes: bool) -> None:
    from panstream.engine.runtime.intrusions import describe_record

    typer.echo(
        "Reading the state is an intrusion and is recorded. States that can be refreshed are, at no cost; for all "
        "others this is the one intrusion that their claims cover, and a second one is not covered:",
        err=True,
    )
    for name, query in meta["queries"].items():
        typer.echo(f"  {name}: {query['algorithm']}", err=True)
    for record in meta["intrusions"]:
        typer.echo(f"  announced before: {describe_record(record)}", err=True)
    if not yes:
        typer.confirm("Read it?", abort=True, err=True)


def _read_states(parts: dict[str, bytes], meta: dict[str, Any]) -> dict[str, Any]:
    """Return the states as plain values; refresh them in ``parts``, and record the intrusion there."""
    from panstream.core.monitor import Monitor
    from panstream.engine.runtime.checkpoint import stored_states
    from panstream.engine.runtime.intrusions import CopyTime, RefreshOutcome, intrusion_record, refresh_state
    from panstream.engine.runtime.release_record import iso_timestamp

    shown: dict[str, Any] = {}
    states: list[RefreshOutcome] = []
    now = math.ceil(time.time())
    for label, name, (window, group), data in list(stored_states(parts)):
        monitor = Monitor[Any].from_bytes(data, verify_checksum=False)
        layout = monitor.algorithm.layout()
        shown[f"{window}/{group}/{name}"] = {
            field_name: _plain(getattr(monitor.state, field_name), field) for field_name, field in layout.items()
        }
        query = meta["queries"][name]
        verdict, exposed = refresh_state(monitor, monitor.claim().intrusions, rows_since_copy=False)
        grid = _stored_windows(query["declared"])
        start = None if grid is None else iso_timestamp(grid.start(window))
        states.append(RefreshOutcome(query=name, verdict=verdict, window=start))
        if exposed:
            query["exposed"] = [*query["exposed"], [window, group]]
            continue
        refreshed = dict(query["refreshed"])
        if now not in refreshed.setdefault(window, []):  # the groups of a window are refreshed together
            refreshed[window].append(now)
        query["refreshed"] = list(refreshed.items())
        parts[label] = monitor.to_bytes(checksum=False)
    meta["intrusions"].append(intrusion_record(now, CopyTime(just_now=True), states))
    parts["meta"] = json.dumps(meta).encode()
    return shown


def _stored_windows(declared: dict[str, Any]) -> TimeGrid | None:
    """Return the windows of a stored query; None if it has none."""
    if (length := declared.get("window")) is None:
        return None
    return FixedGrid(length) if (calendar := declared.get("calendar")) is None else CalendarGrid.parse(calendar)


def _plain(value: Any, field: Any) -> Any:
    """Return a field of a state as plain numbers; packed bits as a list of 0 and 1."""
    if field.kind == "packed":
        from panstream.primitives.packed_bits import unpack_bits

        return unpack_bits(value, field.shape[-1]).tolist()
    return value.tolist() if hasattr(value, "tolist") else value
