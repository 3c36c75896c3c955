"""Public test tools: exact enumeration, instrumented sources, conformance checks, the memory scanner."""
