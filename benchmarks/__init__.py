"""Measurements that are too long or too noisy for tests; run one with ``python -m benchmarks.FOLDER.SCRIPT``.

speed/     events, queries and bytes per second, beside peers where there are any
accuracy/  errors and coverage of answers and synthetic rows
soak/      long runs under failures, floods, fuzzed bodies and attacks
release/   build, installation and first use of what is published
peers/     what the table of docs/benchmarks.md compares with; ``python -m benchmarks.bench`` writes that table
"""
