"""The environment of a process whose allocator overwrites what is freed (glibc on Linux); it must be set before the start."""

from __future__ import annotations

__all__ = ["ENVIRONMENT", "MARK"]

ENVIRONMENT = {
    "PYTHONMALLOC": "malloc",
    "MALLOC_PERTURB_": "165",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
MARK = "PANSTREAM_HARDENED"  # set to 1 in a process that was started so
