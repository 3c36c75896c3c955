"""``panstream recover``: go back to the state before, where the newest one is damaged."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.inspect import KeyFile
from panstream.cli.outcome import operator_key, outcome
from panstream.errors import InvalidParameter

__all__ = ["recover"]

_MEANS = (
    "The newest state is damaged. The one before it is whole, and can be used from now on. It lacks the rows that were "
    "acknowledged since, which their senders must send again, and the damaged one is overwritten for good."
)


def recover(
    path: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A store's directory.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    key_file: KeyFile = None,
) -> None:
    """Go back to the state before, if the newest state of a store is damaged and that one is still there."""
    with outcome():
        from panstream.errors import NewestDamaged
        from panstream.store.snapshot import SnapshotStore

        if not (path / "state.sealed").exists():
            raise InvalidParameter(f"{path.name!r} holds no store")
        key = operator_key(key_file)
        with contextlib.suppress(NewestDamaged):
            with SnapshotStore(path, operator_key=key) as store:
                store.load()
            typer.echo("The newest state is whole: there is nothing to recover.")
            return
        typer.echo(_MEANS, err=True)
        if not yes:
            typer.confirm("Go back to it?", abort=True, err=True)
        with SnapshotStore(path, operator_key=key, accept_previous=True) as store:
            store.load()
        typer.echo("Went back to the state before.")
