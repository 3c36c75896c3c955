"""The command line. Importing this package is quick; commands load what they need when they run."""

from panstream.cli.main import main

__all__ = ["main"]
