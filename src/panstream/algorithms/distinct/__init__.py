"""How many different users came, for ids of any kind from a universe that nobody knows.

::

    privacy/bitmap.py   moments, splits, losses of merges
          |
    likelihood.py       noisy counts -> number of users and interval
          |
    counting.py         cells, state, start, release: what all bitmaps share
          |
    bitmap.py           Bitmap: arrivals draw a cell afresh
    merged.py           MergedBitmap: the noisy OR of sites that share users
    toggling.py         TogglingBitmap: users come and go
"""

from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.merged_bitmap import MergedBitmap
from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap

__all__ = ["Bitmap", "MergedBitmap", "TogglingBitmap"]
