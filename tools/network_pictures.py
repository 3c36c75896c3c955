"""Draw the published seven-attribute network and the Chow–Liu tree of the Diabetes records into docs/pictures.

    PANSTREAM_DATA=<directory with diabetic_data.csv.gz> python tools/network_pictures.py

The tree is learned without noise: the records are public (UCI Diabetes 130-US hospitals, CC BY 4.0). Without the data
only the first picture is drawn.
"""

import os
from pathlib import Path

from panstream.models.networks import (
    chow_liu,
    fit_tables,
    marginal_tables,
    pairwise,
    seven_attributes,
    to_svg,
)
from panstream.papers.diabetes_table import prepare

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def main() -> None:
    (PICTURES / "seven-attributes.svg").write_text(to_svg(seven_attributes(), title="Seven attributes, 5.12 bits"))
    data = Path(os.environ.get("PANSTREAM_DATA", ".")) / "diabetic_data.csv.gz"
    if not data.exists():
        print("seven-attributes.svg written; PANSTREAM_DATA holds no diabetic_data.csv.gz")
        return
    records = prepare(data)
    tables = marginal_tables(pairwise(records))
    network = fit_tables(records.domain, chow_liu(records.domain, tables), tables)
    (PICTURES / "diabetes-tree.svg").write_text(to_svg(network, title="Diabetes: Chow–Liu tree of 43 attributes"))
    print("seven-attributes.svg and diabetes-tree.svg written")


if __name__ == "__main__":
    main()
