"""The command line: one module per command or group in ``commands``, collected by ``app``.

Commands define options, texts and exit codes; the packages they call do the work. They import those packages when they
run, so that importing this one is quick.
"""

from panstream.cli.main import main

__all__ = ["main"]
