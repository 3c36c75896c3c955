"""The environment of a process whose allocator overwrites what is freed (glibc on Linux); it must be set before the start."""

from __future__ import annotations

__all__ = ["ENVIRONMENT", "MARK"]

# Small freed chunks are overwritten only without the cache of each thread. Large ones are overwritten too, so they may as well
# stay: given back to the system at every commit, they cost more than the commit's own work.
_TUNABLES = {"tcache_count": 0, "mmap_threshold": 1 << 25, "trim_threshold": 1 << 26}
ENVIRONMENT = {
    "PYTHONMALLOC": "malloc",
    "MALLOC_PERTURB_": "165",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in _TUNABLES.items()),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
MARK = "PANSTREAM_HARDENED"  # set to 1 in a process that was started so
