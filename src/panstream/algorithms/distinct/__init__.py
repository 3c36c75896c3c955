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

from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.merged_bitmap import MergedBitmap
from panstream.algorithms.distinct.sketch import Sketch
from panstream.algorithms.distinct.sketch_bitmap import SketchBitmap
from panstream.algorithms.distinct.sketch_functions import sketch_count, sketch_overlap, sketch_union
from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap

__all__ = [
    "Bitmap",
    "MergedBitmap",
    "Sketch",
    "SketchBitmap",
    "TogglingBitmap",
    "sketch_count",
    "sketch_overlap",
    "sketch_union",
]
