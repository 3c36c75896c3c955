// The page "Answers": every question with its latest answer, its history, and what is left to ask.

import * as api from "./api.js";
import { Asking } from "./asking.js";
import { History, drawable, interval } from "./chart.js";
import { h, say, show } from "./dom.js";
import { answer, loss, many, moment } from "./format.js";

export const title = "Answers";

/** Return the page; it updates itself when the store changes. */
export function page(store) {
  const cards = new Map();
  const list = h("div", { class: "cards" });
  const empty = h("div", { class: "empty", hidden: true });
  const node = h("div", null, h("h1", null, "Answers"),
    h("p", { class: "lead" }, "Each figure is an estimate with the range that holds the true figure 95 times out of 100."), empty, list);

  function update() {
    if (!store.queries) return;
    for (const query of store.queries) {
      if (!cards.has(query.name)) {
        cards.set(query.name, new Card(store, query));
        list.append(cards.get(query.name).node);
      }
      cards.get(query.name).update(query);
    }
    const none = store.series.size === 0;
    empty.hidden = !none;
    if (none) show(empty, h("h2", null, "Nothing has been published yet"), h("p", null, `Send events to the stream “${store.stream.name}”. The first answer appears here when it is due, or when an administrator asks for it.`),
      h("pre", null, h("code", null, `curl --data-binary @events.csv -H 'Content-Type: text/csv' \\\n  ${location.origin}/v1/streams/${encodeURIComponent(store.stream.name)}/events`)));
  }
  return { node, update };
}

class Card {
  constructor(store, query) {
    this.store = store;
    this.chosen = query.series[0];
    const id = `q-${query.name.replace(/\W+/g, "-")}`;
    this.value = h("p", { class: "figure" });
    this.range = h("p", { class: "range" });
    this.when = h("p", { class: "when" });
    this.left = h("p", { class: "left" });
    this.unsure = h("p", { class: "unsure" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.button = h("button", { class: "main", type: "button", "aria-haspopup": "dialog", onclick: () => this.ask() }, "Answer now");
    this.asking = new Asking(`${id}-asking`, this.button, () => this.release());
    this.groups = h("div", { class: "groups" });
    this.history = new History(`History of ${query.name}`);
    this.table = h("tbody");
    this.more = h("details", { class: "more", ontoggle: () => this.#rows() }, h("summary", null, "History as a table"),
      h("div", { class: "scroll" }, h("table", null,
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "#"), h("th", { scope: "col" }, "Published"), h("th", { scope: "col" }, "Value"), h("th", { scope: "col" }, "95% from"), h("th", { scope: "col" }, "to"))), this.table)));
    this.node = h("section", { class: "card", "aria-labelledby": id },
      h("header", null, h("h2", { id }, query.name), h("p", { class: "chip" }, rhythm(query))),
      h("div", { class: "split" },
        h("div", { class: "latest" }, this.value, this.range, this.unsure, this.when, this.left, this.button, this.problem),
        this.side = h("div", { class: "side" }, this.groups, this.history.node)),
      h("div", { class: "under" }, promise(query), this.more), this.asking.node);
    this.query = query;
  }

  update(query) {
    this.query = query;
    const known = this.store.series.get(this.chosen) ?? [];
    const last = known.at(-1);
    this.node.dataset.empty = String(!last);
    const said = last && answer(last);
    say(this.value, last ? said.shown : "No answer yet");
    this.value.classList.toggle("none", !last);
    this.value.classList.toggle("words", Boolean(last?.statement || last?.too_uncertain));
    say(this.unsure, last?.too_uncertain ? `The range reaches further than the answer itself. What would help: ${last.help}.` : "");
    say(this.range, last ? (last.statement ? `95%${said.more ? `: ${said.more}` : ""}` : `95%: ${said.low} to ${said.high}`) : "");
    say(this.when, last ? `${about(last)}answer ${last.number}, ${moment(last.time)}` : "");
    const { planned } = query.releases;
    const made = Math.max(query.releases.made, last?.number ?? 0); // an answer may be here before its count
    say(this.left, planned === null ? `${many(made, "answer")} so far` : query.finished ? `${planned === 1 ? "The one paid answer was given. It stays" : `All ${many(planned, "paid answer")} were given. They stay`} published; nothing more can be asked of this data.` : `${made.toLocaleString("en")} of ${many(planned, "answer")} given`);
    this.left.classList.toggle("spent", query.finished);
    this.button.hidden = !query.on_demand || query.finished;
    this.#groups(query);
    this.history.node.hidden = known.length < 2;
    const drawn = `${this.chosen} ${known.length}`;
    if (known.length > 1 && drawn !== this.drawn) this.history.update(known);
    this.drawn = drawn;
    this.more.hidden = known.length < 1;
    this.side.hidden = query.series.length < 2 && known.length < 2;
    this.#rows();
  }

  /** Fill the table, if it is open and something is new: building it is the dearest part of a page. */
  #rows() {
    const known = this.store.series.get(this.chosen) ?? [];
    const wanted = `${this.chosen} ${known.length}`;
    if (!this.more.open || wanted === this.tabled) return;
    this.tabled = wanted;
    show(this.table, known.slice(-500).reverse().map((release) => {
      const { value, low, high } = answer(release); // the number stays readable here
      return h("tr", null, [String(release.number), moment(release.time), value, low, high].map((text) => h("td", null, text)));
    }));
  }

  #groups(query) {
    if (query.series.length < 2) return;
    const latest = query.series.map((name) => [name, this.store.series.get(name)?.at(-1)]);
    const ends = latest.flatMap(([, release]) => (!release || !drawable(release) ? [] : [...release.interval, release.value].filter((end) => end !== null)));
    const scale = [Math.min(0, ...ends), Math.max(...ends, 1)];
    const focused = this.groups.contains(document.activeElement) ? document.activeElement.dataset.series : null;
    show(this.groups, h("ul", null, latest.map(([name, release]) => h("li", null,
      h("button", { type: "button", class: "group", "data-series": name, "aria-pressed": String(name === this.chosen), onclick: () => this.choose(name) },
        h("span", { class: "key" }, release?.group ? Object.values(release.group).join(", ") : name.replace(/^.*\[(.*)\]$/, "$1")),
        release && drawable(release) ? interval(release, scale) : h("span", { class: "interval" }),
        h("span", { class: "number" }, release ? answer(release).shown : "–"))))));
    if (focused) [...this.groups.querySelectorAll("button")].find((button) => button.dataset.series === focused)?.focus();
  }

  choose(name) {
    this.chosen = name;
    this.update(this.query);
  }

  ask() {
    const last = (this.store.series.get(this.chosen) ?? []).at(-1);
    this.asking.open(this.query, Math.max(this.query.releases.made, last?.number ?? 0));
  }

  async release() {
    this.button.disabled = true;
    this.problem.hidden = true;
    try {
      await api.release(this.query.name);
    } catch (error) {
      say(this.problem, error.message);
      this.problem.hidden = false;
    }
    this.button.disabled = false;
    await this.store.refresh().catch(() => {});
    if (this.button.hidden) {
      this.left.tabIndex = -1; // the button is gone: keep the keyboard where it was
      this.left.focus();
    }
  }
}

const about = (release) => (release.window ? `window from ${moment(release.window[0])}, ` : "");

function rhythm(query) {
  if (query.window !== null) return `once every ${duration(query.window)}`;
  if (query.every !== null) return `every ${duration(query.every)}`;
  return query.on_demand ? "when asked" : "at the end";
}

function duration(seconds) {
  for (const [unit, length] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (seconds >= length && seconds % length === 0) return seconds === length ? unit : many(seconds / length, unit);
  }
  return seconds === 1 ? "second" : many(seconds, "second");
}

function promise(query) {
  const { claim } = query;
  const rows = [
    ["Question", h("code", null, query.sql)],
    ["Protects", `one ${claim.unit} (${claim.adjacency}), ε = ${loss(claim.epsilon)}`],
    ["Against", `${claim.intrusions.unannounced} unannounced copy of ${claim.places.join(" and ")}${claim.intrusions.announced ? `, ${claim.intrusions.announced} announced` : ""}, together with every answer`],
    ["Algorithm", `${query.algorithm}, ${query.state_bytes.toLocaleString("en")} bytes. ${query.why}`],
    ["Not protected", claim.public.join("; ")],
    ["Note", claim.note],
  ];
  return h("details", { class: "more" }, h("summary", null, `Promise: ε = ${loss(claim.epsilon)} per ${claim.unit}`),
    h("dl", null, rows.filter(([, text]) => text).map(([name, text]) => [h("dt", null, name), h("dd", null, text)])));
}
