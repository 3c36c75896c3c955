"""The command line: one module per command or group in ``commands``, put together by ``app``.

Commands have options, texts and exit codes; the work is done by the packages they call. Importing this package is
quick: commands load what they need when they run.
"""

from panstream.cli.main import main

__all__ = ["main"]
