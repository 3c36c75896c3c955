"""How many distinct users appeared, for ids of any kind from an open universe.

::

    privacy/bitmap_loss.py   moments, splits, losses of merges
          |
    likelihood.py            noisy counts -> number of users and interval
          |
    bitmap_base.py           cells, state, start, release: shared by all bitmaps
          |
    bitmap.py                Bitmap: arrivals redraw a cell
    merged_bitmap.py         MergedBitmap: the noisy OR of sites that share users
    toggling_bitmap.py       TogglingBitmap: users come and go
    sketch_bitmap.py         SketchBitmap: a window whose cells are published when it closes
          |
    sketch.py                Sketch: the published cells as a value; unions, overlaps, retention
    sketch_functions.py      the same for columns of sketches in DuckDB, pandas and Spark
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.distinct.bitmap import Bitmap as Bitmap
    from panstream.algorithms.distinct.merged_bitmap import MergedBitmap as MergedBitmap
    from panstream.algorithms.distinct.sketch import Sketch as Sketch
    from panstream.algorithms.distinct.sketch_bitmap import SketchBitmap as SketchBitmap
    from panstream.algorithms.distinct.sketch_functions import register_duckdb as register_duckdb
    from panstream.algorithms.distinct.sketch_functions import register_spark as register_spark
    from panstream.algorithms.distinct.sketch_functions import sketch_count as sketch_count
    from panstream.algorithms.distinct.sketch_functions import sketch_overlap as sketch_overlap
    from panstream.algorithms.distinct.sketch_functions import sketch_union as sketch_union
    from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap as TogglingBitmap

_MODULES = {
    "Bitmap": "panstream.algorithms.distinct.bitmap",
    "MergedBitmap": "panstream.algorithms.distinct.merged_bitmap",
    "Sketch": "panstream.algorithms.distinct.sketch",
    "SketchBitmap": "panstream.algorithms.distinct.sketch_bitmap",
    "TogglingBitmap": "panstream.algorithms.distinct.toggling_bitmap",
    "register_duckdb": "panstream.algorithms.distinct.sketch_functions",
    "register_spark": "panstream.algorithms.distinct.sketch_functions",
    "sketch_count": "panstream.algorithms.distinct.sketch_functions",
    "sketch_overlap": "panstream.algorithms.distinct.sketch_functions",
    "sketch_union": "panstream.algorithms.distinct.sketch_functions",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
