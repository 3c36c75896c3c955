"""The CNIL's conditions for audience measurement without consent, for a site that ``panstream web`` counts."""

from __future__ import annotations

from panstream.engine.reporting.checklists.checklist import Checklist, Field
from panstream.engine.reporting.checklists.facts import Facts, joined, stated
from panstream.errors import ConfigError

_CONDITIONS = "Conditions of the exemption"
_RECOMMENDATIONS = "Recommendations of the CNIL"
_PROVIDER = "Provider and configuration"
_SOURCES = (
    "CNIL: Cookies : solutions pour les outils de mesure d’audience, 4 July 2025 (www.cnil.fr/fr/node/167364): "
    "the conditions, and the recommendations on information, lifetimes (13 and 25 months) and their review.",
    "CNIL: outil d’auto-évaluation mesure d’audience, July 2025, with 14 criteria. Its text was not at hand for "
    "this list: check each criterion against it. A self-assessment is not a certification.",
    "Article 82 of the French data protection act is about reading from and writing to a device. Whether it applies to "
    "a page that stores nothing is for the operator and the authority to judge.",
)


def cnil_checklist(facts: Facts) -> Checklist:
    """Fill in the conditions and recommendations.

    Args:
        facts: Texts about the configuration.

    Raises:
        ConfigError: The configuration is not that of a site.
    """
    web = facts.config.web
    if web is None:
        raise ConfigError("--for cnil is about audience measurement: it needs a configuration of panstream web")
    operator = facts.config.statement
    fill = facts.filled
    by_operator = facts.by_operator
    stored = "Nothing is stored in the browser: no cookie, no local storage."
    if web.source == "log":
        stored = "Nothing is sent to or stored in the browser: rows are lines of the server's access log."
    elif web.counter:
        stored = (
            "The browser stores how many page views it has sent in each open window, and no identifier; the numbers of "
            "windows that are over are deleted."
        )
    lifetime = "No tracker is stored, so it has no lifetime."
    if web.counter and web.source == "beacon":
        lifetime = "The numbers are stored until their windows are over, a month at most, far below 13 months."
    return Checklist(
        title="Audience measurement: conditions of the CNIL",
        sources=_SOURCES,
        fields=(
            Field(
                section=_CONDITIONS,
                name="Purpose strictly limited to measuring the audience of the site",
                answer=joined([facts.questions(), f"By the operator: {operator.purpose}." if operator.purpose else ""])
                if operator.purpose
                else "",
                origin="operator",
                hint=stated("purpose"),
            ),
            by_operator(
                _CONDITIONS, "For the exclusive account of the publisher", operator.controller, stated("controller")
            ),
            fill(
                _CONDITIONS,
                "Only anonymous statistics",
                f"Published are counts with noise. {facts.person()}",
            ),
            fill(
                _CONDITIONS,
                "No matching with other processing",
                "The state holds noisy counts only, and no identifier by which it could be matched. The key that turns "
                "addresses into hashes belongs to this configuration alone.",
                program=True,
            ),
            fill(
                _CONDITIONS,
                "No transfer of data that are not anonymous to third parties",
                "The server sends nothing but published answers. Rows are wiped once they are counted.",
                program=True,
            ),
            fill(
                _CONDITIONS,
                "No tracking across sites or applications",
                f"The visitor’s hash contains the site ({web.site}): the same visitor of another site has another "
                "hash, and neither is stored.",
            ),
            fill(_CONDITIONS, "What is read from and written to the device", stored),
            by_operator(
                _RECOMMENDATIONS,
                "Visitors are informed",
                "",
                "link to /privacy, which this server shows, in the site's policy",
            ),
            fill(_RECOMMENDATIONS, "Lifetime of trackers (13 months at most, not renewed)", lifetime),
            by_operator(
                _RECOMMENDATIONS,
                "Retention of the information (25 months at most)",
                operator.retention,
                stated("retention"),
            ),
            by_operator(_RECOMMENDATIONS, "Periodic review of these periods", "", "when, and by whom"),
            fill(
                _PROVIDER,
                "Addresses and location",
                "An address is used to compute the hash on receipt and is then overwritten; it is not stored and not "
                "logged. The country follows from the browser's language setting or is not counted; there is no "
                "lookup of addresses.",
                program=True,
            ),
            fill(_PROVIDER, "Questions", facts.questions()),
            fill(
                _PROVIDER,
                "Reuse by the provider",
                "The program runs on the operator's own machine, and sends nothing to its authors.",
                program=True,
            ),
            by_operator(
                _PROVIDER, "Hosting, processors and transfers outside the EU", "", "who runs the machine, where"
            ),
            by_operator(_PROVIDER, "Logs of the web server and proxies", "", "how long they keep addresses"),
            facts.audited(_PROVIDER, "Audits on this machine"),
        ),
    )
