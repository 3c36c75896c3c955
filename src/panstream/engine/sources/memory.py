"""Freed memory that is overwritten: what readers leave behind on the way.

Decoders copy: a page is decompressed here, its strings are laid out there, and what is given back to the allocator keeps its bytes until
somebody else gets it. ``wipe_freed_memory`` makes glibc overwrite whatever is freed and makes Arrow use glibc.
"""

from __future__ import annotations

import ctypes
import platform

from panstream.engine.arrow import pa

__all__ = ["wipe_freed_memory"]

_PERTURB, _TRIM_THRESHOLD, _MMAP_THRESHOLD = -6, -1, -3  # from malloc.h
_FILL = 0xA5


def wipe_freed_memory() -> bool:
    """Overwrite memory when it is freed, in the whole process and for good; tell whether that is possible here.

    It is on Linux with glibc. Small pieces (up to about a kilobyte) may rest unwiped in a cache of the thread that freed them, unless
    the process was started with ``GLIBC_TUNABLES=glibc.malloc.tcache_count=0``. Python's own small objects and DuckDB have
    allocators of their own. Reading becomes about a tenth slower.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # Without these two, large pieces would go back to the system and come again page by page.
    settings = ((_TRIM_THRESHOLD, 1 << 28), (_MMAP_THRESHOLD, 1 << 25), (_PERTURB, _FILL))
    if not all(mallopt(option, value) for option, value in settings):
        return False
    pa.set_memory_pool(pa.system_memory_pool())
    return True
