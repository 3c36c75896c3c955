"""Public test tools: exact enumeration, instrumented sources, conformance checks, the memory scanner.

Here belongs what tests a mechanism without trusting it; it works on algorithms of yours as on ours. What judges claims
with these tools is in ``audit``.
"""
