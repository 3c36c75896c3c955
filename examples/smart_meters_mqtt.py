"""Smart meters over MQTT: five homes send a reading a minute to a broker, and every hour their mean is published.

Mosquitto (Debian: mosquitto) runs here on a port of its own. The homes are five days of the bundled one. A reading is
overwritten after its batch; what stays is a state that may be stolen, and 24 published answers.
"""

import csv
import gzip
import threading
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from shared.broker import mosquitto, publish

from panstream.engine import Engine, ingest, read_config

HOMES = 5
HOURS = 24
CONFIG = {
    "stream": {"name": "meters", "time": "at", "columns": {"at": "timestamp", "kilowatts": "double"}},
    "query": [
        {
            "name": "mean power so far",
            "sql": "SELECT AVG(kilowatts) FROM meters",
            "epsilon": 1.0,
            "lower": 0,
            "upper": 10,  # kilowatts: what the main fuse lets through
            "every": "1 hour",
            "horizon": HOURS,
        }
    ],
}


def readings() -> list[list[float]]:
    """Return every minute's kilowatts, of all homes."""
    with gzip.open(Path(__file__).parent / "data" / "household_power.csv.gz", "rt") as file:
        kilowatts = [float(row["kilowatts"]) for row in csv.DictReader(file) if row["kilowatts"]]
    minutes = HOURS * 60 + 1  # the first minute of the next day closes the last hour
    return [[kilowatts[home * 1440 + minute] for home in range(HOMES)] for minute in range(minutes)]


def message(minute: int, home: int, kilowatts: float) -> tuple[str, str]:
    at = datetime(2026, 1, 1 + minute // 1440, minute // 60 % 24, minute % 60).isoformat()
    return f"meters/{home}/power", f'{{"at": "{at}", "kilowatts": {kilowatts}}}'


def main() -> None:
    minutes = readings()
    sent = [message(minute, home, power) for minute, homes in enumerate(minutes) for home, power in enumerate(homes)]
    with Engine(read_config(CONFIG)) as engine, mosquitto() as port:
        meters = threading.Thread(target=publish, args=(port, sent))

        def watch(rows: int, share: float | None) -> None:
            if meters.ident is None:  # a broker keeps messages for those who asked before
                meters.start()
            if rows == len(sent):
                raise KeyboardInterrupt  # as Ctrl-C ends `panstream run`

        ingest(engine, [f"mqtt://127.0.0.1:{port}/meters/+/power"], on_batch=watch)
        meters.join()
        published = [release.record for release in engine.log.history("mean power so far")]
    table = Table(title=f"Mean power so far (kW), {len(sent):,} messages", caption="one reading is protected")
    for column in ("after hour", "published", "95% interval", "true"):
        table.add_column(column, justify="right")
    for hour in (1, 2, 6, 12, 18, 24):
        answer = published[hour - 1]
        so_far = [power for homes in minutes[: 60 * hour] for power in homes]
        low, high = answer["interval"]
        true = sum(so_far) / len(so_far)
        table.add_row(str(hour), f"{answer['value']:.2f}", f"{low:.2f} to {high:.2f}", f"{true:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
