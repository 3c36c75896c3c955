"""The memory drill: a server under real traffic, whose memory and files are then searched for what was sent.

Here belong the traffic and the report; how memory is searched is in ``testing.memory``.
Nothing of the product imports this room but the command that runs it.
"""
