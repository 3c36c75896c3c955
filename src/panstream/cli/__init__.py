"""The command line: a module for each command or group, which ``app`` puts together.

Here belong options, texts for people and exit codes; what a command does is in the room that it calls. Importing this
package is quick: commands load what they need when they run.
"""

from panstream.cli.main import main

__all__ = ["main"]
