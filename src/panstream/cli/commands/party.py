"""``panstream party``: one of the two machines that hold a stream's cells as shares."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from panstream.cli.common import KeyFile, NoHardening, StopSignal, exit_codes, operator_key
from panstream.cli.hardening import lock_memory, reexec_hardened

_STEP_TIMEOUT = 60.0  # seconds that the dealer may take between two messages of a step
_LOST = (
    "warning: not hardened. What is lost: messages and shares of earlier steps may stay readable in freed memory, so a "
    "copy of this process counts for earlier epochs too, in which the other machine may have been copied."
)


def party(
    directory: Annotated[Path, typer.Argument(help="Directory for this machine's shares; no other may copy it.")],
    stream: Annotated[str, typer.Option(help="The stream, as in its configuration.")],
    role: Annotated[Literal["a", "b"], typer.Option("--as", help="Its role: a leads and connects to b, b listens.")],
    front: Annotated[str, typer.Option(help="The name of the front end's certificate.")],
    peer_name: Annotated[str, typer.Option(help="The name of the other machine's certificate.")],
    certificate: Annotated[Path, typer.Option(help="This machine's certificate, PEM.")],
    key: Annotated[Path, typer.Option(help="Its private key, PEM.")],
    authority: Annotated[Path, typer.Option(help="The authority that signs all three certificates, PEM.")],
    peer: Annotated[str | None, typer.Option(help="With --as a: the address of machine b, https://…")] = None,
    listen: Annotated[str, typer.Option(help="Address and port to listen on.")] = "127.0.0.1:8443",
    blind: Annotated[
        str, typer.Option(help="With --as a: re-randomise the shares after this long without a step.")
    ] = "60s",
    key_file: KeyFile = None,
    no_hardening: NoHardening = False,
) -> None:
    """Hold one share of every cell of a stream, for a front end that runs elsewhere.

    Two people should operate the two machines: whoever sees both in one epoch sees everything. Two virtual machines
    under one hypervisor, backup or orchestrator are one machine. Stops on SIGTERM or Ctrl-C.
    """
    if not no_hardening:
        reexec_hardened()
    with exit_codes():
        if no_hardening or sys.platform != "linux":
            typer.echo(_LOST, err=True)
        else:
            lock_memory()
        from panstream.distributed.two_party.https import HttpsPeer, ParticipantServer
        from panstream.distributed.two_party.participant import Participant
        from panstream.errors import InvalidParameter, PanstreamError
        from panstream.primitives.durations import parse_duration
        from panstream.primitives.mutual_tls import Identity

        if (role == "a") != (peer is not None):
            raise InvalidParameter("--peer is the address of machine b, and is given with --as a only")
        if len({front, peer_name}) < 2:
            raise InvalidParameter("the front end and the machines must have different certificates")
        seconds = parse_duration(blind, name="blind")
        host, _, port = listen.rpartition(":")
        if not port.isdecimal():
            raise InvalidParameter(f"listen must be address:port, got listen={listen!r}")
        identity = Identity(certificate=certificate, key=key, authority=authority)
        other = None if peer is None else HttpsPeer(peer_name, peer, identity)
        machine = Participant(
            directory, first=role == "a", stream=stream, peer=other, operator_key=operator_key(key_file)
        )
        names = (front,) if role == "a" else (front, peer_name)
        server = ParticipantServer(machine, identity, names, peer=other, host=host, port=int(port))
        stop = StopSignal()
        server.start()
        typer.echo(f"machine {role} of {stream} answers at {server.address}")
        requests = server.message_count
        idle = 0.0
        while not stop.wait(seconds):
            idle = 0.0 if server.message_count != requests else idle + seconds
            requests = server.message_count
            # An epoch ends with a step; without steps, re-randomise, so that later copies are of another epoch.
            if role == "a" and idle >= (_STEP_TIMEOUT if machine.reserved else seconds):
                try:
                    server.rerandomize_idle()
                except PanstreamError as error:
                    typer.echo(f"the shares could not be re-randomised: {error}", err=True)
        server.stop()
        machine.close()
        stop.exit()
