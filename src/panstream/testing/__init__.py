"""Public test tools: exact enumeration, instrumented sources, conformance checks, the memory scanner.

They test a mechanism without trusting it, yours as well as ours. ``panstream.audit`` judges claims with them.
"""
