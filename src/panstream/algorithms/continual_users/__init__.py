"""The number of users that have appeared, released at every tick.

The state is the cells of a density or distinct-count algorithm. Their set bits are released through the trees of
``panstream.algorithms.continual`` or one by one, whichever has the smaller error (``release_strategies``).
"""

from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.continual_users.continual_distinct import ContinualDistinct

__all__ = ["ContinualBitmap", "ContinualDensity", "ContinualDistinct"]
