"""How many users came, published at every tick: the cells of ``density`` and ``distinct`` under the trees of
``continual``.

Here belong the algorithms that count noisy bits again and again, and the choice of what that costs least.
"""

from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.continual_users.continual_distinct import ContinualDistinct

__all__ = ["ContinualBitmap", "ContinualDensity", "ContinualDistinct"]
