"""Fill a site's store with simulated past visitors, so that its dashboard has something to show.

Writes example.org.toml, as panstream web does, unless it is there; another file can be given, and --days 35 fills a
month. Then start it with: panstream serve example.org.toml. The rows go the way that beacons go; only the clock is set
back, and runs through the days. So the store must be new.
"""

import argparse
import sys
from pathlib import Path

from shared.site_traffic import last_midnight, traffic

from panstream.engine import Engine, RowSchema, Selector, load_config
from panstream.engine.presets.website import propose_queries
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.engine.presets.website_text import to_toml
from panstream.engine.sources.formats.arrow_columns import from_arrow

SHOWN = ("visitors per day", "page views per day", "devices [device=mobile]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, nargs="?", default=Path("example.org.toml"))
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--visitors", type=int, default=1_000, help="a day")
    given = parser.parse_args()
    if not given.config.exists():
        given.config.write_text(to_toml(propose_queries(WebsiteSpec(site="example.org", visitors=given.visitors))))
    config = load_config(given.config)
    if config.web is None or config.web.source != "beacon":
        sys.exit("the configuration must have a [web] section whose source is beacon")
    if config.directory is not None and config.directory.exists():
        sys.exit("the store exists already; its clock cannot be set back")
    until = last_midnight(config.stream.time_zone)
    schema = RowSchema.of(config.stream, config.needed_columns)
    now = until - given.days * 86400.0
    with Engine(config, clock=lambda: now, elapsed=lambda: now) as engine, Selector(config) as select:
        engine.declare("http")
        for hour in traffic(config.web.site, days=given.days, visitors=given.visitors, until=until):
            now = hour.start
            engine.step()
            engine.apply(select(from_arrow(hour.rows, schema, label="the simulation")), commit=False)
            select.wipe()
        now = until
        engine.step()
        print(
            f"{given.days} days, {sum(engine.release_count(plan.config.name) for plan in engine.plans):,} answers "
            "published"
        )
        for name in SHOWN:
            for release in engine.log.latest([name], limit=1):
                low, high = release.record["interval"]
                print(f"{name}, yesterday: {release.record['value']:,.0f} ({low:,.0f} to {high:,.0f})")


if __name__ == "__main__":
    main()
