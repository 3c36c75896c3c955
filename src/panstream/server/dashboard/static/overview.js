// The page "Overview": every question on one screen, with its last answer, its history and what changed.

import { h, say, show } from "./dom.js";
import { answer, duration } from "./format.js";
import { first } from "./first.js";
import { groupsOf, ranked } from "./groups.js";
import { newest, within } from "./periods.js";
import { address, picker } from "./picker.js";
import { bar, span, spark } from "./pictures.js";
import { about } from "./chart.js";
import { short } from "./trend.js";

export const title = "Overview";
const SHOWN = 3; // groups in a tile

/** Return the page; it updates itself when the store changes. */
export function page(store, { choose }) {
  const tiles = new Map(),
    periods = picker(choose);
  const list = h("ul", { class: "tiles" });
  const empty = h("div", { class: "empty", hidden: true });
  const node = h(
    "div",
    { class: "overview" },
    h("div", { class: "head" }, h("h1", null, "Overview"), periods.node),
    empty,
    list,
  );

  function update({ period }) {
    periods.update(period);
    if (!store.queries) return;
    list.dataset.many = String(store.queries.length > 12);
    for (const query of store.queries) {
      if (!tiles.has(query.name)) {
        tiles.set(query.name, new Tile(store, query));
        list.append(tiles.get(query.name).node);
      }
      tiles.get(query.name).update(query, period);
    }
    empty.hidden = store.series.size > 0;
    if (!empty.hidden && !empty.firstChild) show(empty, welcome(store));
  }
  return { node, update };
}

function welcome({ stream }) {
  const target = `${location.origin}/v1/streams/${encodeURIComponent(stream.name)}/events`;
  return [
    h("h2", null, "Nothing has been published yet"),
    h(
      "p",
      null,
      `Send events to the stream “${stream.name}”. The first answer appears here when it is due, or when an ` +
        "administrator asks for it.",
    ),
    h("pre", null, h("code", null, `curl --data-binary @events.csv -H 'Content-Type: text/csv' \\\n  ${target}`)),
  ];
}

/** How often a question is answered. */
export function rhythm(query) {
  if (query.every !== null && query.window !== null)
    return `every ${duration(query.every)} of each ${duration(query.window)}`;
  if (query.window !== null) return `once every ${duration(query.window)}`;
  if (query.every !== null) return `every ${duration(query.every)}`;
  return query.on_demand ? "when asked" : "at the end";
}

class Tile {
  constructor(store, query) {
    this.store = store;
    this.link = h("a", null, query.name);
    this.body = h("div", { class: "tile-body" });
    this.when = h("p", { class: "chip" });
    this.node = h("li", { class: "tile" }, h("h2", null, this.link), this.when, this.body);
  }

  update(query, period) {
    const end = newest(query, this.store);
    const series = query.series.map((name) => this.store.series.get(name) ?? []);
    const lengths = series.map((releases) => releases.length);
    const wanted = `${period} ${end} ${query.next_answer} ${lengths} ${query.finished}`;
    if (wanted === this.drawn) return;
    this.drawn = wanted;
    this.link.href = address("question", period, query.name);
    const last = series.map((releases) => releases.at(-1)).find(Boolean);
    say(this.when, last ? about(last) : `${rhythm(query)}; ${first(query)}`);
    show(
      this.body,
      !last
        ? h("p", { class: "figure none" }, "No answer yet")
        : query.series.length > 1 || last.items
          ? this.#groups(ranked(groupsOf(query, this.store)))
          : this.#single(query, series[0], last, period, end),
    );
  }

  #single(query, releases, last, period, end) {
    const said = answer(last),
      { additive } = query.outputs[0];
    return [
      h("p", { class: last.too_uncertain || last.description ? "figure words" : "figure" }, said.shown),
      h("p", { class: "range" }, said.range),
      spark(within(releases, period, end)),
      h("p", { class: "change" }, short(query, additive, releases, period, end) ?? ""),
    ];
  }

  #groups(sorted) {
    if (!sorted.length) return h("p", { class: "figure none" }, "No name stands out");
    const scale = span(sorted.flatMap(({ last }) => last ?? []));
    const rows = sorted.slice(0, SHOWN).map(({ name, last }) => {
      const said = last && answer(last);
      return h(
        "div",
        { class: "mini", title: said ? said.range : "" },
        h("dt", null, name),
        h("dd", null, bar(last, scale), h("span", null, !said ? "–" : last.too_uncertain ? "uncertain" : said.value)),
      );
    });
    const rest = sorted.length - SHOWN;
    return [
      h("dl", { class: "minis" }, rows),
      h("p", { class: "change" }, rest > 0 ? `and ${rest.toLocaleString("en")} more` : ""),
    ];
  }
}
