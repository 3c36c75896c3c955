"""Draw the published seven-attribute network and the Chow–Liu tree of the Diabetes records into docs/pictures.

    PANSTREAM_DATA=<directory with diabetes43.csv.gz> python experiments/network_pictures.py

The tree is learned without noise: the records are public (UCI Diabetes 130-US hospitals, CC BY 4.0). Without the data
only the first picture is drawn.
"""

import json
import os
from pathlib import Path

import pandas as pd

from panstream.networks import (
    Records,
    chow_liu,
    fit_tables,
    pairwise,
    propose_domain,
    seven_attributes,
    tables_from,
    to_svg,
)

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def main() -> None:
    (PICTURES / "seven-attributes.svg").write_text(to_svg(seven_attributes(), title="Seven attributes, 5.12 bits"))
    data = Path(os.environ.get("PANSTREAM_DATA", "."))
    if not (data / "diabetes43.csv.gz").exists():
        print("seven-attributes.svg written; PANSTREAM_DATA holds no diabetes43.csv.gz")
        return
    domain = propose_domain(json.loads((data / "diabetes43-domain.json").read_text()))
    records = Records(domain, pd.read_csv(data / "diabetes43.csv.gz").to_numpy().T)
    tables = tables_from(pairwise(records))
    network = fit_tables(domain, chow_liu(domain, tables), tables)
    (PICTURES / "diabetes-tree.svg").write_text(to_svg(network, title="Diabetes: Chow–Liu tree of 43 attributes"))
    print("seven-attributes.svg and diabetes-tree.svg written")


if __name__ == "__main__":
    main()
