"""Public test tools: exact enumeration, instrumented noise sources, conformance checks, the memory scanner.

They test a mechanism without trusting it, also mechanisms from outside this library. ``panstream.audit`` checks claims
with them.
"""
