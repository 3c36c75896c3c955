// The page "Site": the visitors of a site and what they look at, from the questions that panstream web proposes.

import { h, show } from "./dom.js";
import { answer, number } from "./format.js";
import { groupsOf, ranked } from "./groups.js";
import { personSentence } from "./budget.js";
import { newest, within } from "./periods.js";
import { address } from "./picker.js";
import { bar, span, spark } from "./pictures.js";
import { about } from "./chart.js";
import { short } from "./trend.js";

export const title = "Site";
const FIGURES = {
  "visitors per hour": "Visitors in an hour",
  "visitors today": "Visitors today, so far",
  "visitors per day": "Visitors in a day",
  "visitors per week": "Visitors in 7 days",
  "visitors per month": "Visitors in 30 days",
  "page views per hour": "Page views in an hour",
  "page views per day": "Page views in a day",
  "errors per hour": "Errors in an hour",
  "errors per day": "Errors in a day",
};
const LISTS = {
  pages: "Top pages",
  referrers: "Referrers",
  sections: "Sections",
  countries: "Countries",
  devices: "Devices",
  "entry pages": "Entry pages",
  campaigns: "Campaigns",
  events: "Events",
  "load time": "Load time, milliseconds",
};
const ROWS = 8; // of a list before its own page

/** An answer as a count is read: whole and not below 0, whatever noise made of it, in a range that holds the other. */
const counted = (release) => {
  const [low, high] = release.interval,
    value = release.value === null ? null : Math.round(Math.max(0, release.value));
  return {
    ...release,
    value,
    interval: [Math.floor(Math.max(0, low ?? 0)), high === null ? null : Math.ceil(Math.max(0, high))],
  };
};

/** Whether two machines hold what is counted. */
const isShared = (queries) => queries.some(({ claim }) => claim.intrusions.machines);

const hint = (release) => (release?.value < 0 ? `published as ${answer(release).value}` : null);

const country = (() => {
  const names = new Intl.DisplayNames(["en"], { type: "region", fallback: "code" });
  return (code) => (/^[A-Z]{2}$/.test(code) ? names.of(code) : code);
})();

/** Return the page; it updates itself when the store changes. */
export function page(store) {
  const heading = h("h1", null, "Site"),
    figures = h("ul", { class: "tiles site-figures" }),
    lists = h("ul", { class: "site-lists" }),
    unasked = h("p", { class: "small" }),
    person = h("p", { class: "person" }),
    side = h("div", { class: "site-notes" }),
    cards = new Map();
  const node = h("div", { class: "site" }, h("div", { class: "head" }, heading), person, figures, lists, unasked, side);

  function update() {
    if (!store.queries) return;
    if (!store.web) return show(node, h("h1", null, "Site"), h("p", null, "This stream is not about a site: [web]."));
    show(heading, store.web.site);
    if (store.ledger) show(person, personSentence(store));
    const asked = new Map(store.queries.map((query) => [query.name, query]));
    for (const [kinds, list, draw] of [
      [FIGURES, figures, figure],
      [LISTS, lists, listed],
    ])
      for (const [name, words] of Object.entries(kinds)) {
        if (!asked.has(name)) continue;
        if (!cards.has(name)) {
          cards.set(name, h("li", { class: "tile" }));
          list.append(cards.get(name));
        }
        const card = cards.get(name),
          query = asked.get(name);
        const drawn = query.series.map((series) => store.series.get(series)?.at(-1)?.number ?? 0).join();
        if (card.dataset.drawn === drawn) continue;
        card.dataset.drawn = drawn;
        show(card, draw(query, words, store));
      }
    const missing = Object.keys({ ...FIGURES, ...LISTS }).filter((name) => !asked.has(name));
    show(
      unasked,
      "A visitor is an address with a user agent and a language, not a person. Counts are shown from 0 up: noise may " +
        "have published less, which a question’s own page shows. ",
      missing.length
        ? `Not asked: ${missing.join(", ")}. Left out is what would be too uncertain at the declared size` +
            (store.web.source === "log" ? ", and what a log does not tell" : "") +
            (isShared(store.queries) ? ", and what two machines cannot keep." : ".")
        : "",
    );
    if (!side.firstChild) show(side, thief(store.queries), visitors(), sharing());
  }
  return { node, update };
}

const link = (query, words) => h("h2", null, h("a", { href: address("question", "month", query.name) }, words));

/** A figure with its interval, what changed since the period before, and the last 30 days. */
function figure(query, words, store) {
  const releases = store.series.get(query.series[0]) ?? [],
    last = releases.at(-1),
    end = newest(query, store);
  const said = last && answer(counted(last));
  return [
    link(query, words),
    h("p", { class: "chip" }, last ? about(last) : "no answer yet"),
    h("p", { class: last?.too_uncertain ? "figure words" : "figure", title: hint(last) }, said ? said.shown : "–"),
    h("p", { class: "range" }, said ? said.range : ""),
    spark(within(releases, "month", end).map(counted)),
    h("p", { class: "change" }, last && query.every === null ? (short(query, true, releases, "all", end) ?? "") : ""),
  ];
}

/** The largest groups or names, each with its interval. */
function listed(query, words, store) {
  const groups = groupsOf(query, store),
    sorted = query.name === "load time" ? groups : ranked(groups),
    scale = span(sorted.flatMap(({ last }) => (last ? counted(last) : []))),
    latest = (store.series.get(query.series[0]) ?? []).at(-1);
  const rows = sorted.slice(0, ROWS).map(({ name, last }) => {
    const shown = last && counted(last),
      said = shown && answer(shown);
    return h(
      "li",
      null,
      h("span", { class: "key" }, query.name === "countries" ? country(name) : name),
      bar(shown, scale),
      h(
        "span",
        { class: "number" },
        h("b", { title: hint(last) }, !said ? "–" : last.too_uncertain ? "uncertain" : said.value),
        said && h("small", null, `${said.low} to ${said.high}`),
      ),
    );
  });
  const rest = sorted.length - ROWS,
    least = latest?.listing_threshold;
  return [
    link(query, words),
    h("p", { class: "chip" }, latest ? about(latest) : "no answer yet"),
    rows.length ? h("ol", { class: "ranked" }, rows) : h("p", { class: "small" }, latest ? "No name stands out." : ""),
    rest > 0 && h("p", { class: "small" }, `and ${number(rest)} more`),
    least
      ? h("p", { class: "small" }, `Names with at least ${number(Math.ceil(least))} events are listed (95%).`)
      : null,
  ];
}

/** What a copy of the server is worth. */
function thief(queries) {
  const worst = Math.max(...queries.map(({ claim }) => (claim.epsilon === "inf" ? Infinity : claim.epsilon)));
  const locations = new Set(queries.flatMap(({ claim }) => claim.locations));
  const copied = locations.has("disk") ? "memory and disk" : "memory",
    shared = isShared(queries);
  return h(
    "section",
    { class: "card" },
    h("h2", null, "What a thief would see"),
    h(
      "p",
      null,
      shared
        ? "Two machines hold what is counted as shares, and each share alone is random. Whoever copies one of them " +
            "at a time, as often as they like, and never both in one epoch, finds no addresses, no visitors’ ids and " +
            "no salt. This server itself keeps only the answers. From all of that, the odds of a right guess about "
        : `Whoever copies this server’s ${copied} finds no addresses, no visitors’ ids and no salt: only cells that ` +
            "were random from the start, and the answers on this page. From one copy and all answers, the odds of a " +
            "right guess about ",
      `what a question protects change by a factor of at most ${number(Math.exp(worst))} for each question`,
      queries.some(({ claim }) => claim.delta)
        ? " (where δ is given, not always, but with a probability close to 1: see the privacy page). "
        : ". ",
      "What arrived in the last moment and is not yet counted is readable.",
    ),
    h("p", null, h("a", { href: "#/intruder" }, "Try it in a simulation")),
  );
}

function visitors() {
  return h(
    "section",
    { class: "card" },
    h("h2", null, "For your visitors"),
    h("p", null, "This server has a page in plain words about what is counted. Link to it from your site."),
    h("p", null, h("a", { href: "privacy" }, "Privacy page for visitors")),
  );
}

function sharing() {
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Share this page"),
    h(
      "p",
      null,
      "A link with a token of its own shows all answers and changes nothing. Make one where the token file is:",
    ),
    h("pre", null, h("code", null, `panstream token tokens public \\\n  --scope read \\\n  --link ${location.origin}`)),
    h("p", { class: "small" }, "To end it, remove the token’s line from the file and restart the server."),
  );
}
