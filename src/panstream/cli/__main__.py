"""``python -m panstream.cli``."""

from panstream.cli.main import main

main()
