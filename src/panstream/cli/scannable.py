"""The panstream command in a process that a memory scan may read: ``python -m panstream.cli.scannable serve ...``.

It is hardened like the command, except that other processes of the same user may read its memory. The memory audit
starts it; the command itself has no such switch. ``--instrument MODULE:ARGUMENT`` before the command calls
``MODULE.install(ARGUMENT)`` first: tests record secrets this way, with a module that is not in the wheel.
"""

from __future__ import annotations

import importlib
import os
import sys

_INSTRUMENT = "--instrument"


def _main() -> None:
    from panstream.primitives.memory.process_hardening import ENVIRONMENT, MARK

    if "--no-hardening" not in sys.argv and os.environ.get(MARK) != "1":
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **ENVIRONMENT, MARK: "1"})
    from panstream.cli import main as command
    from panstream.primitives.memory.secret_memory import VARIABLE, enable_secret_memory
    from panstream.testing.memory import allow_scan

    allow_scan()
    if sys.argv[1:2] == [_INSTRUMENT]:
        module, _, argument = sys.argv[2].partition(":")
        del sys.argv[1:3]
        importlib.import_module(module).install(argument)
    if os.environ.get(MARK) == "1" and os.environ.get(VARIABLE) == "1":  # a scan cannot read secret memory
        enable_secret_memory()
    command()


if __name__ == "__main__":
    _main()
