"""The application with all commands and groups."""

from panstream.cli.command_loader import NAMES, app_with

app = app_with(*NAMES)
