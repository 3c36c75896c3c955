"""A matplotlib figure that notebooks show without ``%matplotlib inline``."""

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure outside pyplot, so that nothing holds it after its owner; IPython asks it for a PNG."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.savefig(data, format="png", dpi=110)
        return data.getvalue()
