"""What the examples share: where a picture goes, and how truth, estimate and band are drawn."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panstream.errors import MissingExtra


def target(description: str | None, name: str) -> Path:
    """Return where --out says the picture shall go; a temporary directory by default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, help="where to write the picture (default: a temporary directory)")
    out: Path | None = parser.parse_args().out
    return out or Path(tempfile.mkdtemp(prefix="panstream-")) / name


def draw(out: Path, panels: Sequence[dict[str, Any]]) -> None:
    """Draw each panel's truth, estimate and band against x; needs matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("drawing the example's picture", "plots") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "panstream"})
    figure, axes = plt.subplots(1, len(panels), figsize=(4.8 * len(panels), 3.4), squeeze=False)
    for panel, axis in zip(panels, axes[0], strict=True):
        axis.fill_between(panel["x"], panel["low"], panel["high"], color="#b9d4ee", lw=0, label="95% band")
        axis.plot(panel["x"], panel["estimate"], color="#1f5f9e", lw=1.5, label="published")
        axis.plot(panel["x"], panel["truth"], "k--", lw=1, label="truth")
        axis.set(title=panel["title"], xlabel=panel["xlabel"], ylabel=panel["ylabel"])
        if "ylim" in panel:
            axis.set_ylim(*panel["ylim"])
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(out)
    plt.close(figure)
    print(f"picture: {out}")
