// The page "Site": the visitors of a site and what they look at, from the questions that panstream web proposes.

import { h, show } from "./dom.js";
import { answer, duration, localDay, number } from "./format.js";
import { groupsOf, ranked } from "./groups.js";
import { personSentence } from "./budget.js";
import { begins, ends } from "./periods.js";
import { address } from "./picker.js";
import { bar, span, spark } from "./pictures.js";
import { about } from "./chart.js";
import { first } from "./first.js";
import { before, change, days, rangeOf, rangePicker, total } from "./ranges.js";
import { changed, short } from "./trend.js";
import { isShared, sharing, thief, visitors } from "./site_cards.js";
import { filterPicker, groupIn } from "./site_filter.js";
import { RETURNING, Returning } from "./site_returning.js";

export const title = "Site";
// What adds up over days, and the question that has it: the first of these that is asked.
const SUMS = {
  "Page views": ["page views per day"],
  Errors: ["errors per hour", "errors per day"],
};
const FIGURES = {
  "visitors per hour": "Visitors in an hour",
  "visitors today": "Visitors today, so far",
  "visitors per day": "Visitors in a day",
  "visitors per week": "Visitors in a week",
  "visitors per month": "Visitors in a month",
  "page views per hour": "Page views in an hour",
};
const FILTERED = "page views by section and device";
const LISTS = {
  pages: "Top pages",
  referrers: "Referrers",
  sections: "Sections",
  countries: "Countries",
  devices: "Devices",
  "entry pages": "Entry pages",
  campaigns: "Campaigns",
  events: "Events",
  browsers: "Browsers",
  systems: "Operating systems",
  sources: "Sources (utm_source)",
  mediums: "Mediums (utm_medium)",
  terms: "Terms (utm_term)",
  contents: "Contents (utm_content)",
  "load time": "Load time, milliseconds",
};
// Asked for by those who want them, so that nobody misses them.
const OPTIONAL = new Set(["visitors per hour", "visitors today", "sources", "mediums", "terms", "contents"]);
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

const hint = (release) => (release?.value < 0 ? `published as ${answer(release).value}` : null);

const country = (() => {
  const names = new Intl.DisplayNames(["en"], { type: "region", fallback: "code" });
  return (code) => (/^[A-Z]{2}$/.test(code) ? names.of(code) : code);
})();

const allDays = { from: -Infinity, to: Infinity };
const noDays = { from: Infinity, to: -Infinity };

/** What the address says of the range and the filter: `#/site?range=month&section=/blog`. */
function chosenIn(hash) {
  const asked = new URLSearchParams(hash.split("?")[1] ?? "");
  const date = (name) => (/^\d{4}-\d{2}-\d{2}$/.test(asked.get(name)) ? asked.get(name) : "");
  return {
    range: ["day", "week", "month", "dates"].includes(asked.get("range")) ? asked.get("range") : "week",
    from: date("from"),
    to: date("to"),
    section: asked.get("section") ?? "",
    device: asked.get("device") ?? "",
  };
}

/** Return the page; it updates itself when the store changes. */
export function page(store) {
  const heading = h("h1", null, "Site"),
    figures = h("ul", { class: "tiles site-figures" }),
    lists = h("ul", { class: "site-lists" }),
    unasked = h("p", { class: "small" }),
    person = h("p", { class: "person" }),
    none = h("p", { class: "problem", role: "status" }),
    side = h("div", { class: "site-notes" }),
    cards = new Map();
  let back;
  const choose = (changes) => {
    const now = { ...chosenIn(location.hash), ...changes };
    const asked = new URLSearchParams(Object.entries(now).filter(([, value]) => value !== ""));
    history.replaceState(null, "", `#/site?${asked}`);
    update();
  };
  const ranges = rangePicker(({ range, from, to }) => choose({ range, from, to }));
  const filters = filterPicker(choose);
  const node = h(
    "div",
    { class: "site" },
    h("div", { class: "head" }, heading, ranges.node),
    person,
    filters.node,
    none,
    figures,
    lists,
    unasked,
    side,
  );

  function update() {
    if (!store.queries) return;
    if (!store.web) return show(node, h("h1", null, "Site"), h("p", null, "This stream is not about a site: [web]."));
    show(heading, store.web.site);
    if (store.ledger) show(person, personSentence(store));
    const asked = new Map(store.queries.map((query) => [query.name, query]));
    const chosen = chosenIn(location.hash);
    const known = days(["visitors per day", "page views per day"].map((name) => store.series.get(name) ?? []));
    const found = rangeOf(chosen, known),
      range = found ?? (chosen.range === "dates" ? noDays : allDays);
    // The newest hour is after the last day.
    const shown = chosen.range === "dates" ? range : { ...range, to: Infinity };
    ranges.update({ range: chosen.range, from: chosen.from || day(range.from), to: chosen.to || day(range.to - 1) });
    filters.update(asked.get(FILTERED), chosen);
    show(none, range === noDays ? "No whole day between these dates has an answer." : "");
    const draw = (name, list, query, drawn, make) => {
      if (!cards.has(name)) {
        cards.set(name, h("li", { class: "tile" }));
        list.append(cards.get(name));
      }
      const card = cards.get(name),
        state = `${JSON.stringify([range, chosen, query.next_answer])} ${drawn}`;
      if (card.dataset.drawn === state) return;
      card.dataset.drawn = state;
      show(card, [...make(), bounded(query, store)]);
    };
    const numbers = (query) => query.series.map((series) => store.series.get(series)?.at(-1)?.number ?? 0).join();
    for (const [words, names] of Object.entries(SUMS)) {
      const query = names.map((name) => asked.get(name)).find(Boolean);
      if (query)
        draw(words, figures, query, numbers(query), () => {
          const series = summands(query, chosen, asked).map((name) => store.series.get(name) ?? []);
          return summed(query, words, series, range, known, chosen);
        });
    }
    const returning = asked.get(RETURNING);
    if (returning) {
      asked.set("visitors per week", returning); // it is one of the answers
      back ??= new Returning();
      draw(RETURNING, lists, returning, numbers(returning), () => back.show(returning, store, shown, link));
    }
    for (const [kinds, list, make] of [
      [FIGURES, figures, figure],
      [LISTS, lists, listed],
    ])
      for (const [name, words] of Object.entries(kinds)) {
        const query = asked.get(name);
        if (query)
          draw(name, list, query, numbers(query), () => make(query, words, store, shown));
      }
    const missing = [
      ...Object.entries(SUMS).flatMap(([words, names]) => (names.some((name) => asked.has(name)) ? [] : [words])),
      ...Object.keys({ ...FIGURES, ...LISTS }).filter((name) => !asked.has(name) && !OPTIONAL.has(name)),
    ];
    show(
      unasked,
      "A visitor is an address with a user agent and a language, not a person. Counts are shown from 0 up; if noise " +
        "made a published count negative, the question’s own page shows it. Page views and errors of several days " +
        "are sums of published answers, with an interval for their joint noise. Visitors are not added up, because " +
        "someone who returns would count twice: the newest whole day, week and month are shown, with their dates. ",
      missing.length
        ? `Not asked: ${missing.join(", ")}. Questions are left out that would be too uncertain at the declared size` +
            (store.web.source === "log" ? ", or that a log cannot answer" : "") +
            (isShared(store.queries) ? ", or that two machines cannot answer." : ".")
        : "",
    );
    if (!side.firstChild) show(side, thief(store.queries), visitors(), sharing());
  }
  return { node, update };
}

const day = (seconds) => (Number.isFinite(seconds) ? localDay(seconds) : "");

const link = (query, words) => h("h2", null, h("a", { href: address("question", "month", query.name) }, words));

/** How many rows of one visitor an answer counts, where it leaves out the others. */
function bounded(query, store) {
  const share = store.ledger?.person.shares.find(({ name }) => name === query.name);
  if (share?.bounded_by !== "sender" || !(share.contributions > 1)) return null;
  const most = `At most ${number(share.contributions)} of one visitor count in each ${duration(query.claim.window)}.`;
  return h("p", { class: "small" }, most);
}

/** The series that a sum is about: all page views, or those of a section or a device. */
function summands(query, { section, device }, asked) {
  const by = query.name === "page views per day" && (section || device) ? asked.get(FILTERED) : undefined;
  if (!by) return query.series;
  return by.series.filter((series) => {
    const group = groupIn(series);
    return (!section || group.section === section) && (!device || group.device === device);
  });
}

const spanBefore = ({ from, to }) => {
  const count = Math.round((to - from) / 86400);
  return count === 1 ? "the day before" : `the ${count} days before`;
};

/** What adds up over the chosen days, with the interval of its noise together, and the change from the days before. */
function summed(query, words, several, range, known, { section, device }) {
  const now = total(several, range),
    earlier = now?.whole ? total(several, before(range, known)) : null,
    said = now && answer(counted(now));
  const history = known
    .filter(([begin, end]) => begin >= range.from && end <= range.to)
    .map(([begin, end]) => total(several, { from: begin, to: end }))
    .filter((sum) => sum?.whole)
    .map(counted);
  const of = query.name === SUMS["Page views"][0] ? [section, device].filter(Boolean) : [];
  const compared = earlier?.whole ? changed(change(now, earlier), spanBefore(range)) : "";
  return [
    link(query, words),
    h("p", { class: "chip" }, [now ? about(now) : first(query), ...of].join(", ")),
    h("p", { class: "figure", title: hint(now) }, said ? said.shown : "–"),
    h("p", { class: "range" }, said ? said.range : ""),
    spark(history),
    h("p", { class: "change" }, !now || now.whole ? compared : h("span", { class: "than" }, now.part)),
  ];
}

/** The newest answer about whole windows up to the end of the range, what changed since the one before, and others. */
function figure(query, words, store, range) {
  const releases = (store.series.get(query.series[0]) ?? []).filter((release) => ends(release) <= range.to),
    last = releases.at(-1),
    said = last && answer(counted(last)),
    drawn = releases.filter((release) => begins(release) >= Math.min(range.from, ends(last) - 30 * 86400)),
    since = last && query.every === null ? short(query, true, releases, "all", ends(last)) : null;
  return [
    link(query, words),
    h("p", { class: "chip" }, last ? about(last) : first(query)),
    h("p", { class: last?.too_uncertain ? "figure words" : "figure", title: hint(last) }, said ? said.shown : "–"),
    h("p", { class: "range" }, said ? said.range : ""),
    spark(drawn.map(counted)),
    h("p", { class: "change" }, since ?? ""),
  ];
}

/** The largest groups or names, each with its interval. */
function listed(query, words, store, range) {
  const groups = groupsOf(query, store, range.to),
    sorted = query.name === "load time" ? groups : ranked(groups),
    scale = span(sorted.flatMap(({ last }) => (last ? counted(last) : []))),
    latest = (store.series.get(query.series[0]) ?? []).findLast((release) => ends(release) <= range.to);
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
    h("p", { class: "chip" }, latest ? about(latest) : first(query)),
    rows.length ? h("ol", { class: "ranked" }, rows) : h("p", { class: "small" }, latest ? "No name stands out." : ""),
    rest > 0 && h("p", { class: "small" }, `and ${number(rest)} more`),
    least
      ? h("p", { class: "small" }, `Names with at least ${number(Math.ceil(least))} events are listed (95%).`)
      : null,
  ];
}
