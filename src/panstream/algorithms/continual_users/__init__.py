"""How many users came, released at every tick.

The state is the cells of a density or distinct-count algorithm; their set bits are released through the trees of
``panstream.algorithms.continual``, or as ``release_strategies`` finds cheapest.
"""

from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.continual_users.continual_distinct import ContinualDistinct

__all__ = ["ContinualBitmap", "ContinualDensity", "ContinualDistinct"]
