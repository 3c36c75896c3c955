"""A proposal for a website as text: a table for people, and the configuration file."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from panstream.engine.presets._counter_queries import what_is_counted
from panstream.engine.presets.website import Proposal, propose_queries
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.errors import InvalidParameter
from panstream.primitives.toml_config import toml_lines
from panstream.privacy.rounding import rounded_up

SIZES = (1_000, 10_000, 100_000)  # daily visitors for which errors are shown
_FROM = {"beacon": "beacons of browsers", "log": "an access log"}
_PROFILES = {
    "one machine": "Nothing is stored in browsers. Questions about visitors, and about their devices, browsers, "
    "systems and countries, read one bit of a visitor however much she does, so one number holds for her 30 days. "
    "Nothing bounds how many pages she opens: lists and counts of page views protect a single page view, and have no "
    "number for a visitor.",
    "counter": "Browsers number what they send, in a count of under 100 bytes that names nobody and is never sent, and "
    "only the first few rows of one browser in a window are counted. So one number holds for all that one visitor does "
    "in 30 days and all questions together. The count is stored in the browser, which in many countries needs consent.",
    "two machines": "Two machines hold what is counted as shares, of which one alone is random, however often it is "
    "copied; so the noise of answers is all there is, and errors are small. Questions about visitors have one number "
    "for her 30 days; counts of page views protect a single page view.",
}


def to_text(proposal: Proposal) -> str:
    """Return a table of the proposed queries, their errors and costs, and what they protect."""
    site = proposal.site
    sizes = (site.visitors,) if site.counter else SIZES  # dividing a budget between lists takes seconds
    exactness = {size: _exactness(site, size) for size in sizes if size != site.visitors}
    exactness[site.visitors] = {candidate.question.name: candidate.exactness for candidate in proposal.asked}
    total = proposal.person_total()
    rows = [("question", "window", "protects one", "epsilon", *(f"{n:,}/day" for n in sizes), "30 days of a visitor")]
    for candidate in proposal.asked:
        claim = candidate.plan.claim
        spent = rounded_up(claim.epsilon) + (f", {claim.delta:.0e}" if claim.delta else "")
        errors = (exactness[n].get(candidate.question.name, "-") for n in sizes)
        share = replace(total, shares=(candidate.share,)).epsilon
        sum_ = "not bounded" if math.isinf(share) else rounded_up(share)
        rows.append((candidate.question.name, candidate.window, candidate.protects, spent, *errors, sum_))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    epsilon, delta = proposal.page_view_loss()
    bounded = total.bounded
    lines = [
        f"{site.site}: {site.visitors:,} visitors a day declared, about 3 page views each; from {_FROM[site.source]}",
        *_wrapped(_PROFILES[_profile(site)]),
        "how far a 95% interval reaches, if this many visitors come a day and that is what you declare (for devices,",
        "  browsers, systems and countries, with a tenth of all visitors):",
        "",
        *table,
        "",
    ]
    if bounded.shares:
        lines += [
            f"one visitor, any 30 days, {'the questions about visitors' if total.unbounded else 'all questions'}, "
            "one intrusion: epsilon "
            f"{rounded_up(bounded.epsilon)}{f', delta {bounded.stated_delta:.0e}' if bounded.stated_delta else ''}"
            f"{', less than the sum of the column' if bounded.stated_delta else ''}"
        ]
    if site.retention:
        what = "noisy cells of four past weeks stay in the state"
        if site.machines is not None:
            what = "answers only; cells of four past weeks stay as shares"
        lines += [f"  of that, who came back takes {rounded_up(site.retention_loss())}: {what}"]
    if total.unbounded:
        lines += [
            "one visitor, any 30 days, the other questions: not bounded, since nothing limits how many rows she has",
            f"one page view, the other questions together: epsilon {rounded_up(epsilon)}"
            f"{f', delta {delta:.0e}' if delta else ''}",
        ]
    capped = [(one.question.name, what_is_counted(one.question, one.window)) for one in proposal.asked]
    if any(what for _, what in capped):
        lines += [
            "",
            "what these answers count, so that they are smaller than all that comes (shares as in a real log):",
        ]
        lines += [f"  {names}: {what}" for names, what in _by_reason(capped) if what]
        lines += [""]
    lines += [
        "a visitor is an address with a user agent and a language, not a person: people who share all of these are",
        "  counted once, and someone who changes one of them is counted again",
    ]
    if proposal.left_out:
        lines += ["", "left out, since the answers would be useless or there are none:"]
        lines += [f"  {names}: {why}" for names, why in _by_reason(proposal.left_out)]
    return "\n".join(lines)


def to_toml(proposal: Proposal) -> str:
    """Return the configuration file, with comments."""
    file = proposal.config()
    site = proposal.site
    lines = [f"# {site.site}: written by panstream web for {site.visitors:,} visitors a day. Serve it with", "#"]
    served = "panstream serve FILE" + (" --follow LOG" if site.source == "log" else "")
    lines += [f"#   {served}", "", "[web]", *toml_lines(file["web"]), "", "[stream]"]
    lines += toml_lines({key: value for key, value in file["stream"].items() if not isinstance(value, dict)})
    lines += ["", "[stream.columns]", *toml_lines(file["stream"]["columns"])]
    lines += ["", "# What one visitor may lose in any 30 days.", "[stream.budget]"]
    lines += toml_lines(file["stream"]["budget"])
    if "two_party" in file:
        lines += ["", "[two_party]", *toml_lines(file["two_party"])]
    for candidate in proposal.asked:
        about = f"# protects one {candidate.protects}; 95% error at about {candidate.size:,}: {candidate.exactness}"
        what = what_is_counted(candidate.question, candidate.window)
        counts = [f"# counts {what}"] if what else []
        lines += ["", about, *counts, "[[query]]", *toml_lines(candidate.keys)]
    if proposal.left_out:
        lines += ["", "# Left out:", *(f"# {names}: {why}" for names, why in _by_reason(proposal.left_out))]
    lines += ["", "# Printed by panstream statement and on /privacy: fill it in.", "[statement]"]
    lines += toml_lines(file["statement"])
    lines += ["", "[store]", *toml_lines(file["store"])]
    return "\n".join([*lines, "# Keep it out of backups: every copy of it is an intrusion.", ""])


def _profile(site: WebsiteSpec) -> str:
    if site.counter:
        return "counter"
    return "one machine" if site.machines is None else "two machines"


def _exactness(site: WebsiteSpec, visitors: int) -> dict[str, str]:
    """Return the errors of the questions that are useful at a size, with the same budget."""
    try:
        proposal = propose_queries(replace(site, visitors=visitors))
        return {candidate.question.name: candidate.exactness for candidate in proposal.asked}
    except InvalidParameter:
        return {}


def _wrapped(text: str) -> list[str]:
    words = text.split()
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 117:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _by_reason(left_out: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return each reason with the names of its queries, joined."""
    names: dict[str, list[str]] = {}
    for name, why in left_out:
        names.setdefault(why, []).append(name)
    return [(", ".join(some), why) for why, some in names.items()]
