"""The engine over HTTP: events in, private answers out. ``openapi`` describes the whole interface.

Here belong connections and their limits (``door``, ``protocol``, ``access``), bodies on their way to the engine's
thread (``bodies``, ``jobs``, ``applying``, ``worker``), the reading side (``app``, ``service``), and the wiping of all
of it.
"""
