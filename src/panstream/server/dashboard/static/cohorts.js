// Who came back: a table of cohorts coloured by the share that came again, for questions that ask RETENTION.

import { h, show } from "./dom.js";
import { number, windowed } from "./format.js";
import { Curve, legend, Weeks } from "./returning.js";

const COHORTS = 13;
const NOTHING = 0.9; // part of all possible values: an interval as wide says nothing

/** Whether a question asks who came back. */
export const asksRetention = (query) => query.outputs.some(({ name }) => name === "rate_1");

/** After how many windows a question asks. */
export const lagsOf = (query) =>
  query.outputs.filter(({ name }) => name.startsWith("rate_")).map((_, index) => index + 1);

/** The latest answers of the group that a series belongs to, by window and lag; of those that are `wanted`. */
export function read(query, store, chosen, wanted = () => true) {
  const [, group = ""] = chosen.match(/( \[.*\])?$/s) ?? [];
  const windows = new Map(),
    rates = new Map();
  const back = new Map();
  for (const series of query.series) {
    if (group && !series.endsWith(group)) continue;
    for (const release of store.series.get(series) ?? []) {
      if (release.interval[0] === null || !release.answer || !wanted(release)) continue;
      const kind = release.answer.replace(/_\d+$/, "");
      if (kind === "rate") rates.set(release.lag, release);
      else if (kind === "back") back.set(`${release.cohort[0]} ${release.lag}`, release);
      else {
        if (!windows.has(release.window[0])) windows.set(release.window[0], { window: release.window });
        windows.get(release.window[0])[kind] = release;
      }
    }
  }
  const rows = [...windows.values()].sort((one, other) => (one.window[0] < other.window[0] ? -1 : 1));
  return { rows: rows.slice(-COHORTS), back, rates };
}

/** A cell: its text, and how it is drawn. The colour is the part of the cohort that came again. */
function cell(release, of, percent) {
  if (!release) return h("td", { class: "blank" }, h("span", { class: "unseen" }, "not known yet"));
  const [low, high] = release.interval;
  const scale = percent ? 100 : 1,
    sign = percent ? "%" : "";
  const width = Math.min(scale * (high - low), 10);
  const [value, from, to] = [release.value, low, high].map((each) => number(scale * each, width));
  const says = of === undefined || high - low < NOTHING * of;
  const span = says ? `${from} to ${to}${sign}` : "too few to say";
  const kind = !says ? "says-nothing" : release.too_uncertain ? "uncertain" : "certain";
  const share = of ? Math.min(Math.max(release.value / of, 0), 1) : 0;
  const depth = of && says ? ` share-${Math.min(Math.ceil(share * 10), 6)}` : ""; // half and more are rare
  const figure = kind === "certain" && h("b", null, `${value}${sign}`);
  return h("td", { class: `${kind}${depth}` }, figure, h("small", null, span));
}

/** Who came back: the share that comes again, new and returning users, and the table of cohorts with their numbers. */
export class Cohorts {
  constructor(name) {
    this.body = h("div");
    this.curve = new Curve();
    this.weeks = new Weeks();
    this.node = h(
      "section",
      { class: "cohorts", "aria-label": `Who came back, ${name}` },
      h("h2", null, "Who came back"),
      h(
        "div",
        { class: "cohort-pictures" },
        h("figure", null, h("figcaption", null, "Share of users who return, by number of windows"), this.curve.node),
        h("figure", null, h("figcaption", null, "New and returning users of each window"), this.weeks.node, legend()),
      ),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Cohorts" }, this.body),
      h(
        "p",
        { class: "cohort-key" },
        "Each row is a window and its users; the columns show how many of them returned that many windows later, " +
          "with a 95% interval. The darker, the larger the share. Hatched: only the interval is certain.",
      ),
    );
  }

  update(query, store, series) {
    const { rows, back, rates } = read(query, store, series);
    const lags = lagsOf(query);
    this.node.hidden = !rows.length;
    const wanted = `${series} ${rows.length} ${rows.at(-1)?.window[0]} ${back.size} ${rates.size}`;
    if (wanted === this.drawn) return;
    this.drawn = wanted;
    this.curve.update(rates, lags);
    this.weeks.update(rows, back);
    const head = ["Window", "Users", "Not in the one before", ...lags.map((lag) => `After ${lag}`)];
    show(
      this.body,
      h(
        "table",
        null,
        h("caption", { class: "unseen" }, "Users of each window, and how many came again later"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            head.map((text) => h("th", { scope: "col" }, text)),
          ),
        ),
        h(
          "tbody",
          null,
          h(
            "tr",
            { class: "pooled" },
            h("th", { scope: "row" }, "Share of all"),
            h("td", { class: "blank" }),
            h("td", { class: "blank" }),
            lags.map((lag) => cell(rates.get(lag), 1, true)),
          ),
          rows.map(({ window, users, new: fresh }) =>
            h(
              "tr",
              null,
              h("th", { scope: "row" }, windowed(window)),
              cell(users),
              cell(fresh),
              lags.map((lag) => cell(back.get(`${window[0]} ${lag}`), users?.value)),
            ),
          ),
        ),
      ),
    );
  }
}
