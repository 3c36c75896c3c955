"""The memory audit: search the memory and files of a server under real traffic for what was sent.

The package has the traffic and the report; the search itself is in ``testing.memory``. Only the command that runs the
audit imports it.
"""
